"""Figures of a hospital, and equity over hospitals."""
