"""Differential privacy: clips, noise and accountants."""
