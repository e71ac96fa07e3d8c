"""Common basics: errors, random streams, the registry, and exact sums."""
