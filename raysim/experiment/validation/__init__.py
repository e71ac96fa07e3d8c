"""Validation of an existing model or score at every hospital, without training."""
