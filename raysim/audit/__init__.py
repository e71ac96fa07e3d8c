"""Attacks that infer patients' data from a run."""
