"""Checks of the values that a strategy returns."""
