"""Sizes of Winograd's tiles, and where their points are in memory."""

from __future__ import annotations

TILE, LINES, POINTS = 4, 6, 36
"""Outputs in a row of a tile, and its inputs; points at which its polynomials are multiplied."""
APART = 16
"""Numbers between points: those of a tile would else compete for the same few lines of the cache."""


def plane(rows: int, columns: int) -> int:
    """Numbers from one of the 36 points to the next, of ``rows x columns`` each."""
    return rows * columns + APART
