"""Write and read a run's checkpoints and files, and resume a run from them."""
