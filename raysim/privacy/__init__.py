"""Differential privacy: clipping, noise and accountants."""
