"""Secure aggregation: masks, keys, and lost hospitals."""
