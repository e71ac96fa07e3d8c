"""Test inversion: which true spreads between hospitals the observed statistic is compatible with.

The statistic is drawn at a grid of spreads; a spread is in the interval when the observed value is in the middle 95 %
of its draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.statistics.levels import LEVEL, POWER

Floats = NDArray[np.float64]

TAUS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.6, 2.2, 4)
"""True spreads (standard deviations of the logit of AUROC) that are tried; between them is interpolated."""

SAME = 1e-9
"""Figures this close are equal: hospitals with few rows have few values, and rounding must not part them."""


class Estimate(NamedTuple):
    """A figure with its 95 % interval."""

    low: float
    estimate: float
    high: float


def invert(q: float, drawn: Floats, taus: Sequence[float]) -> Estimate:
    """The spreads at which ``q`` is neither too large nor too small, from draws of it ``[T, B]`` at ``taus [T]``.

    A spread is in the interval when between 2.5 % and 97.5 % of its draws are at least ``q``; the estimate is where
    half of them are. The shares are made to ascend, and interpolated linearly.
    """
    share = np.maximum.accumulate((drawn >= q - SAME * q).mean(axis=1))
    tail = (1 - LEVEL) / 2
    return Estimate(*(_crossing(share, taus, level) for level in (tail, 0.5, 1 - tail)))


def at(tau: Estimate, taus: Sequence[float], values: Floats) -> Estimate:
    """``values [T]`` at the three spreads; at one without a limit, those of the largest that was tried."""
    return Estimate(*(float(np.interp(t, taus, values)) for t in tau))


def visible(drawn: Floats, taus: Sequence[float]) -> float:
    """The spread from which on 0 is excluded in 80 % of draws ``[T, B]`` at ``taus [T]``; infinite where none is."""
    critical = np.quantile(drawn[0], (1 + LEVEL) / 2, method="higher")
    return _crossing(np.maximum.accumulate((drawn > critical).mean(axis=1)), taus, POWER)


def _crossing(share: Floats, taus: Sequence[float], level: float) -> float:
    """Where an ascending ``share [T]`` reaches ``level``: 0 where it starts above it, infinite where it stays below."""
    if share[0] >= level:
        return 0.0
    if share[-1] < level:
        return float("inf")
    after = int(np.argmax(share >= level))
    part = (level - share[after - 1]) / (share[after] - share[after - 1])
    return float(taus[after - 1] + part * (taus[after] - taus[after - 1]))
