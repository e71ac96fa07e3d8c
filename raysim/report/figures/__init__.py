"""Figures of pages: data frames in, inline SVG out."""
