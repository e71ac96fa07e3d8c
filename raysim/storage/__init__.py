"""Checkpoints, a run's files, and going on from them."""
