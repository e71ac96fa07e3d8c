"""A virtual clock: late and lost hospitals."""
