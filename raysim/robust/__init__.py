"""Robust rules over updates, some of them wrong."""
