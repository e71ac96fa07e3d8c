"""Attacks that infer patients' data from what leaves hospitals."""
