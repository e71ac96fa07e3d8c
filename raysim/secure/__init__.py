"""Secure sums: masks, shares of keys, lost hospitals."""
