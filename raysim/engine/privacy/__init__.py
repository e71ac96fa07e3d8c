"""Guarantees of privacy: clipping, noise, its calibration, and the privacy cost of a run."""
