"""Test inversion: the true spreads between hospitals that are compatible with the observed statistic.

The statistic is simulated for each true spread (a standard deviation) on a grid. A spread is in the interval if the
observed value is among the middle 95 % of values simulated with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from raysim.core.arrays import Floats
from raysim.core.levels import LEVEL, POWER

TAUS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.6, 2.2, 4)
"""The true standard deviations between hospitals at which federations are simulated. For AUROC, they are standard
deviations of the logit; for an error, of the logarithm."""

SAME = 1e-9
"""Difference, relative or absolute, below which two values of a statistic count as equal."""


class Estimate(NamedTuple):
    """An estimate with the limits of its 95 % interval."""

    low: float
    estimate: float
    high: float


def invert(q: float, simulated: Floats, taus: Sequence[float]) -> Estimate:
    """Estimate the true spread (standard deviation) between hospitals, with its 95 % interval, from the observed
    statistic ``q``.

    ``simulated [T, B]`` are ``B`` simulated values of the statistic at each of the spreads ``taus [T]``. At the
    estimate, half of the simulated values are at least ``q``.
    """
    share = np.maximum.accumulate((simulated >= q - SAME * q).mean(axis=1))
    tail = (1 - LEVEL) / 2
    return Estimate(*(_crossing(share, taus, level) for level in (tail, 0.5, 1 - tail)))


def at(tau: Estimate, taus: Sequence[float], values: Floats) -> Estimate:
    """Interpolate ``values [T]``, which belong to the spreads ``taus [T]``, at the estimate ``tau`` and both of its
    limits.

    At an infinite spread, the value at the largest of ``taus`` is used.
    """
    return Estimate(*(float(np.interp(t, taus, values)) for t in tau))


def visible(simulated: Floats, taus: Sequence[float]) -> float:
    """Return the smallest true spread at which the interval of the spread excludes 0 in 80 % of simulations. It is
    infinite if none of ``taus`` is large enough.

    ``simulated [T, B]`` are ``B`` simulated values of the statistic at each of the spreads ``taus [T]``.
    """
    critical = np.quantile(simulated[0], (1 + LEVEL) / 2, method="higher")
    return _crossing(np.maximum.accumulate((simulated > critical).mean(axis=1)), taus, POWER)


def _crossing(share: Floats, taus: Sequence[float], level: float) -> float:
    """Return the spread at which the ascending ``share [T]`` reaches ``level``, interpolated between ``taus [T]``. It
    is 0 if the first share is at least ``level``, and infinite if the last is below.
    """
    if share[0] >= level:
        return 0.0
    if share[-1] < level:
        return float("inf")
    after = int(np.argmax(share >= level))
    part = (level - share[after - 1]) / (share[after] - share[after - 1])
    return float(taus[after - 1] + part * (taus[after] - taus[after - 1]))
