"""Judges predictions from any framework."""
