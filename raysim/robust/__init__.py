"""Robust rules: one update out of many of which some may be wrong."""
