"""Secure aggregation: masks, shares of keys, lost hospitals."""
