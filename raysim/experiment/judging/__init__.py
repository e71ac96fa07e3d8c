"""Judges predictions of any framework."""
