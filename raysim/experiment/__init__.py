"""A run, a comparison, a curve, a plan."""
