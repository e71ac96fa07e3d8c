"""Simulates what a planned comparison can demonstrate."""
