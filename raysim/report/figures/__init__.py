"""Figures of pages: frames in, inline SVG out."""
