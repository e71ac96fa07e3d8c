"""Secure aggregation: masks, keys, lost hospitals."""
