"""Figures of a hospital, and figures of equity over hospitals."""
