"""The difference of two strategies at the same hospitals, and of many strategies at once."""
