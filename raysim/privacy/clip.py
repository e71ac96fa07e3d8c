"""Clipping, which bounds the effect of one hospital or patient on a sum.

In adaptive clipping, the clipping norm changes each round with the noisy share of hospitals whose update was shorter
than this norm (G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy: *Differentially Private Learning with Adaptive
Clipping*, NeurIPS 2021). The noise of a round is a multiple of the clipping norm in the same round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from raysim.core.arrays import Floats

BELOW = 1.0 - 1e-12
"""Clipped vectors are multiplied by this number, so that rounding does not make them longer than the clipping norm."""


def norm(vectors: Sequence[Floats]) -> float:
    """Return the 2-norm of the concatenated ``vectors``, in float64."""
    return math.sqrt(sum(float(np.dot(vector, vector)) for vector in vectors))


def clip_factor(length: float, clip: float) -> float:
    """Return the factor that scales a vector of norm ``length`` to just below the norm ``clip``; exactly 1 if ``length
    <= clip``.
    """
    return 1.0 if length <= clip else clip / length * BELOW


def clipped(vectors: Sequence[Floats], clip: float) -> list[Floats]:
    """Return the ``vectors`` of one hospital's message, scaled by one factor so that their joint norm is at most
    ``clip``.

    If their joint norm is at most ``clip``, the vectors are returned unchanged, bit for bit. If any value is not
    finite, all vectors become zeros.
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
    """Return the noise multiplier for updates, if each hospital also sends a bit for adaptive clipping.

    Updates and bits together then cost as much privacy as one release with ``multiplier``. ``bits`` is the standard
    deviation of the noise on the sum of the bits, each of which is 1/2 or -1/2. The result is ``(multiplier^-2 - (2
    bits)^-2)^(-1/2)`` (Andrew et al., *Differentially Private Learning with Adaptive Clipping*, Theorem 1). Raises
    ``ValueError`` if the bits alone cost at least as much as this release.
    """
    if multiplier == 0 or math.isinf(bits):
        return multiplier
    if not 2.0 * bits > multiplier:
        raise ValueError(
            f"bits: {bits:g} is the noise on the bits that adapt the clip, and must be above half the noise multiplier "
            f"({multiplier / 2:g}); raise bits"
        )
    return float((multiplier**-2 - (2.0 * bits) ** -2) ** -0.5)


def next_clip(clip: float, share: float, quantile: float, rate: float) -> float:
    """Return the clipping norm of the next round, ``clip exp(-rate (share - quantile))``.

    ``share`` is the noisy share of updates whose norm was at most ``clip``, and ``quantile`` is the desired share.
    """
    if rate == 0:
        return clip
    return clip * math.exp(-rate * (share - quantile))
