"""A clock of the simulation: late and lost hospitals."""
