"""Boosted trees over hospitals: grown from sums over hospitals, or sent whole by single hospitals."""
