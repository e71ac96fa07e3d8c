"""Boosted trees over hospitals: grown from sums, or whole by single hospitals."""
