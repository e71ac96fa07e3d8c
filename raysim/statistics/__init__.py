"""Estimates, intervals and tests of figures."""
