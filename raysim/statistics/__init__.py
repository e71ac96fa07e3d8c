"""Estimates, intervals and tests for the figures that raysim reports."""
