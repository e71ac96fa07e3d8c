"""Robust rules for updates, some of which may be wrong."""
