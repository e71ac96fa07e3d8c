"""Whole pages of HTML: their content, and how they are written."""
