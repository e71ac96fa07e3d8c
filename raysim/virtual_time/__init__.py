"""A virtual clock for the simulation: late and lost hospitals."""
