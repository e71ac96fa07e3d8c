"""The engine: one round of a run, with its messages, training, merging and evaluation."""
