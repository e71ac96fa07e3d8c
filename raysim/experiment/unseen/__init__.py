"""Hospitals that are left out in turn: which ones, their evaluation, and the estimate for a further hospital."""
