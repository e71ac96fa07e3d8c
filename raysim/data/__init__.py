"""From tables to a federation: sources, splits, cache."""
