"""Runs, comparisons, curves, plans and validations."""
