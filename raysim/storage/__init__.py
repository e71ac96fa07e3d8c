"""A run's checkpoints and files; resuming a run."""
