"""Checkpoints, a run's files, and resuming from them."""
