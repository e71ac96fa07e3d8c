"""Differential privacy: clipping, noise, accountants."""
