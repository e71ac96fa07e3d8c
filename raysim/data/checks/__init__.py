"""Checks of a table before training: features that give the label away, and differences between hospitals."""
