"""Score rows with a run's models, or export models."""
