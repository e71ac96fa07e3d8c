"""Clipping: bounds how far one hospital or patient can move a sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BELOW = 1.0 - 1e-12
"""Factors that clip are multiplied by this, so that rounding does not put the result above the clip."""


def norm(vectors: Sequence[Floats]) -> float:
    """The 2-norm of the concatenated ``vectors``, in float64."""
    return math.sqrt(sum(float(np.dot(vector, vector)) for vector in vectors))


def clip_factor(length: float, clip: float) -> float:
    """The factor that shortens a vector of norm ``length`` to ``clip``; exactly 1 where it is short enough."""
    return 1.0 if length <= clip else clip / length * BELOW


def clipped(vectors: Sequence[Floats], clip: float) -> list[Floats]:
    """The ``vectors`` of one hospital's message, clipped together to the norm ``clip``; zeros where not finite.

    A message that is short enough is returned bit for bit.
    """
    with np.errstate(over="ignore"):
        length = norm(vectors)
    if not all(np.isfinite(vector).all() for vector in vectors):
        return [np.zeros_like(vector) for vector in vectors]
    if math.isinf(length):  # the squares are too large, the entries are not
        scale = max(float(np.abs(vector).max(initial=0.0)) for vector in vectors)
        vectors = [vector / scale for vector in vectors]
        length, clip = norm(vectors), clip / scale
        return [vector * (clip_factor(length, clip) * scale) for vector in vectors]
    factor = clip_factor(length, clip)
    return list(vectors) if factor == 1.0 else [vector * factor for vector in vectors]
