"""Errors, random streams, registry, exact sums."""
