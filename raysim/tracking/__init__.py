"""Records runs, rounds and trials in MLflow."""
