"""Checks of a table before training: features that reveal the label, and differences between hospitals."""
