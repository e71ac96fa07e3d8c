"""Checks of the values that a strategy returns. The engine checks every answer once, before it uses it."""
