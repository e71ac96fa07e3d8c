"""A model's metrics at hospitals, and its equity."""
