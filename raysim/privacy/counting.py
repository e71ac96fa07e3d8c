"""Noise on clipped vectors and on counts of hospitals that are told with them, as one event."""

from __future__ import annotations

import math

COUNTS = 0.1
"""The part that counts take of what a round may tell: squares of what is told over its noise add up."""


def split(multiplier: float) -> tuple[float, float]:
    """The noise multipliers of vectors, in clips, and of counts, in hospitals, that together cost one event.

    A hospital adds a vector of at most the clip, and a single 1 to the counts: ``1/vectors^2 + 1/counts^2 =
    1/multiplier^2``.
    """
    return multiplier / math.sqrt(1.0 - COUNTS), multiplier / math.sqrt(COUNTS)
