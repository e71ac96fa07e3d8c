"""Build federations from tables: sources, splits, preprocessing and the cache."""
