"""Robust rules for updates that may be wrong."""
