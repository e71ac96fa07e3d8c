"""Score new rows with a run's models, and export models."""
