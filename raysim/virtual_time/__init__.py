"""A virtual clock, with late and lost hospitals."""
