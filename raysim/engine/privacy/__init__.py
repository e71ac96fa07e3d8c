"""Guarantees of privacy: clipping, noise, its calibration, and what a run has spent."""
