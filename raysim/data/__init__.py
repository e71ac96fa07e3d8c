"""Build federations from tables: sources and splits."""
