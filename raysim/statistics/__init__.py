"""Statements about figures, with their uncertainty."""
