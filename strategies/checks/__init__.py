"""Checks of the values that a strategy returns. The engine checks each returned value once, before it uses it."""
