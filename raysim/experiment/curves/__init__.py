"""Comparisons over the values of one hyper-parameter, and what they find."""
