"""Clipping, which bounds the effect of one hospital or patient on a sum.

Adaptive clipping: the clip follows the noisy share of hospitals whose update was shorter than the clip (G. Andrew,
O. Thakkar, H. B. McMahan, S. Ramaswamy: *Differentially Private Learning with Adaptive Clipping*, NeurIPS 2021). The
noise of a round is in units of the clip of the same round's updates, never of the next one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from raysim.core.arrays import Floats

BELOW = 1.0 - 1e-12
"""The factor on clipping factors, so that rounding does not make the result longer than the clip."""


def norm(vectors: Sequence[Floats]) -> float:
    """Return the 2-norm of the concatenated ``vectors``, in float64."""
    return math.sqrt(sum(float(np.dot(vector, vector)) for vector in vectors))


def clip_factor(length: float, clip: float) -> float:
    """Return the factor that shortens a vector of norm ``length`` to ``clip``: exactly 1 if it is short enough."""
    return 1.0 if length <= clip else clip / length * BELOW


def clipped(vectors: Sequence[Floats], clip: float) -> list[Floats]:
    """Return the ``vectors`` of one hospital's message, clipped together to the norm ``clip``; zeros if they are not
    finite.

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


def update_multiplier(multiplier: float, bits: float) -> float:
    """Return the noise multiplier of the updates such that updates and bits together cost as much as one release with
    ``multiplier``.

    A bit says whether an update was shorter than the clip; it is 1/2 or -1/2. ``bits`` is the standard deviation of the
    noise on the sum of the bits. The result is ``(multiplier^-2 - (2 bits)^-2)^(-1/2)`` (Theorem 1 of the paper above).
    Raises ``ValueError`` if the bits alone cost more.
    """
    if multiplier == 0 or math.isinf(bits):
        return multiplier
    if not 2.0 * bits > multiplier:
        raise ValueError(f"the noise {bits:g} on the bits must be above half the noise multiplier, {multiplier / 2:g}")
    return float((multiplier**-2 - (2.0 * bits) ** -2) ** -0.5)


def next_clip(clip: float, share: float, quantile: float, rate: float) -> float:
    """Return the clip of the next round, ``clip exp(-rate (share - quantile))``.

    ``share`` is the noisy share of updates whose norm was at most ``clip``, and ``quantile`` is the target share. A
    ``rate`` of 0 does not change the clip.
    """
    if rate == 0:
        return clip
    return clip * math.exp(-rate * (share - quantile))
