"""Divides the noise of one event between clipped vectors and the counts of hospitals sent with them."""

from __future__ import annotations

import math

COUNTS = 0.1
"""The share of a round's budget that goes to counts, where squares of sensitivity over noise add up."""


def split(multiplier: float) -> tuple[float, float]:
    """The noise multipliers of vectors, in clips, and of counts, in hospitals, that together cost one event.

    A hospital adds a vector of at most the clip, and a single 1 to the counts: ``1/vectors^2 + 1/counts^2 =
    1/multiplier^2``.
    """
    return multiplier / math.sqrt(1.0 - COUNTS), multiplier / math.sqrt(COUNTS)
