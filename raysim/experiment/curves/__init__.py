"""A comparison as one hyper-parameter takes its values, and what that shows."""
