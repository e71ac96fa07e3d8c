"""Scores new rows with a run's models; exports them."""
