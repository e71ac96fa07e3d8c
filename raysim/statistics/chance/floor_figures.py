"""Compare figures of dispersion over hospitals with their noise floor: p-values and intervals by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.levels import LEVEL, Z
from raysim.statistics.chance.inversion import SAME, Estimate, at


@dataclass(frozen=True)
class FigureAndFloor:
    """A figure of dispersion over hospitals, compared with its distribution under equal service: all hospitals have the
    same true performance.

    - ``value``: the figure on the test rows.
    - ``floor``: its mean under equal service. ``low`` to ``high``: its 95 % range under equal service.
    - ``p``: the share of simulations under equal service in which the figure is at least as bad as ``value``; for
      ``size_bias``, the share in which it is at least as far from the floor, on either side.
    - ``true``: the estimated figure without noise, computed from the estimated true spread (standard deviation) between
      hospitals.
    - ``excess``: the expected figure at the estimated true spread, minus ``floor``.

    ``true`` and ``excess`` are NaN for ``size_bias``, the slope of hospitals' performance on size.
    """

    value: float
    floor: float
    low: float
    high: float
    p: float
    true: Estimate
    excess: Estimate


def compared_with_floor(
    name: str,
    value: float,
    observed: Floats,
    true: Estimate,
    tau: Estimate,
    taus: Sequence[float],
    *,
    worse_when_lower: bool,
) -> FigureAndFloor:
    """Compare a figure of dispersion with its noise floor.

    ``value`` is the figure on the test rows. ``taus`` are ``T`` true spreads between hospitals, the first of them 0.
    ``observed [T, B]`` are ``B`` simulated values of the figure at each spread. ``true`` is the estimate of the figure
    without noise, and ``tau`` the estimate of the spread.
    """
    equal = observed[0]
    floor = float(equal.mean())
    if name == "size_bias":
        extreme = np.abs(equal - floor) >= abs(value - floor) - SAME
    else:
        extreme = equal <= value + SAME if worse_when_lower else equal >= value - SAME
    low, high = np.quantile(equal, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    excess = Estimate(*[float("nan")] * 3) if name == "size_bias" else at(tau, taus, observed.mean(axis=1) - floor)
    if worse_when_lower:  # with more spread the figure is lower
        excess = Estimate(*excess[::-1])
    return FigureAndFloor(value, floor, float(low), float(high), share_as_extreme(extreme), true, excess)


def noise_free_figure(
    true: Floats, level: Floats | float, level_se: float, tau: Estimate, taus: Sequence[float], most: float
) -> Estimate:
    """Estimate the noise-free value of a figure of dispersion. ``true [T, B]`` are its noise-free values in ``B``
    simulated federations at each of the ``T`` true spreads ``taus``.

    ``tau`` is the estimated spread, at which simulated values are interpolated. ``level [T, B]`` is the weighted mean
    of the hospitals' true metrics in each simulation; its standard error is ``level_se``. For the standard deviation
    and the Gini index, callers pass 0 as ``level`` and as ``level_se``.

    The limits are between 0 and ``most``.
    """
    apart = true - level
    low, centre, high = at(tau, taus, apart.mean(axis=1))
    low, high = min(low, high), max(low, high)
    chance = Z * float(np.hypot(level_se, at(tau, taus, apart.std(axis=1)).estimate))
    estimate = at(tau, taus, true.mean(axis=1)).estimate
    return Estimate(
        max(estimate - float(np.hypot(centre - low, chance)), 0.0),
        estimate,
        min(estimate + float(np.hypot(high - centre, chance)), most),
    )


def share_as_extreme(extreme: NDArray[np.bool_]) -> float:
    """Return the p-value of the observed figure; ``extreme`` marks the simulations whose figure is at least as extreme.
    The observed federation counts as one of the simulations.
    """
    return float((1 + extreme.sum()) / (extreme.size + 1))
