"""Adaptive clipping: the clip follows the noisy share of hospitals whose update was shorter than the clip.

G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy: *Differentially Private Learning with Adaptive Clipping*, NeurIPS
2021.

The noise of a round is in units of the clip of the same round's updates, never of the next one.
"""

from __future__ import annotations

import math


def update_multiplier(multiplier: float, bits: float) -> float:
    """Return the noise multiplier of the updates so that updates and bits together cost one event of ``multiplier``.

    Theorem 1: ``(multiplier^-2 - (2 bits)^-2)^(-1/2)``. ``bits``: the standard deviation of the noise on the sum of the
    bits, which are 1/2 or -1/2. Raises ``ValueError`` if the bits alone cost more.
    """
    if multiplier == 0 or math.isinf(bits):
        return multiplier
    if not 2.0 * bits > multiplier:
        raise ValueError(f"the noise {bits:g} on the bits must be above half the noise multiplier, {multiplier / 2:g}")
    return float((multiplier**-2 - (2.0 * bits) ** -2) ** -0.5)


def next_clip(clip: float, share: float, quantile: float, rate: float) -> float:
    """Return the clip of the next round, ``clip exp(-rate (share - quantile))``; a ``rate`` of 0 does not change it.

    ``share``: the noisy share of updates that were at most ``clip`` long; ``quantile``: the wanted share.
    """
    if rate == 0:
        return clip
    return clip * math.exp(-rate * (share - quantile))
