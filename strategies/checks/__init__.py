"""Whether what a strategy returns can be used. The engine checks every answer once, before it acts on it."""
