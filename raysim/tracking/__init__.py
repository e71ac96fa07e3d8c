"""Runs, rounds and trials as MLflow records them."""
