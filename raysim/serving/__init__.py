"""Uses the models of a finished run: scores new rows, and exports the models."""
