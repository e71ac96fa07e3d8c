"""Boosted trees over hospitals: grown from sums over hospitals, or grown by single hospitals and sent whole."""
