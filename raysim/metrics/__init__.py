"""A model's metrics at hospitals, and their equity."""
