"""Where modules are found, exits, and compute threads."""
