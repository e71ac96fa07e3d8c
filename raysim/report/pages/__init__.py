"""Whole pages of HTML: what stands on each, and how it is written."""
