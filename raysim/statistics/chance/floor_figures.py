"""Figures of dispersion over hospitals beside their noise floor: from drawn federations to p-values and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.statistics.chance.inversion import SAME, Estimate, at
from raysim.statistics.levels import LEVEL, Z

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FigureBesideFloor:
    """A figure of dispersion beside what equal service shows.

    - ``value``: on the test rows. ``floor``: the mean of it under equal service, ``low`` to ``high`` its central 95 %.
    - ``p``: how often equal service shows one as bad or worse (``size_bias``: as far from its floor on either side).
    - ``beyond``: ``value - floor``.
    - ``true``: the noise-free figure of these hospitals that the spread implies. Its interval adds up, as squares, what
      is uncertain in the spread, how much such hospitals differ by chance, and for figures that are AUROCs the
      uncertainty of the common one. ``excess``: what the spread adds to the floor. NaN for ``size_bias``, which a
      spread unrelated to size does not imply.
    """

    value: float
    floor: float
    low: float
    high: float
    p: float
    beyond: float
    true: Estimate
    excess: Estimate


def beside_floor(
    name: str,
    value: float,
    observed: Floats,
    true: Estimate,
    tau: Estimate,
    taus: Sequence[float],
    *,
    worse_when_lower: bool,
) -> FigureBesideFloor:
    """A figure with its floor, from its values in draws at each tau, ``observed [T, B]``, and the noise-free one."""
    equal = observed[0]
    floor = float(equal.mean())
    if name == "size_bias":
        extreme = np.abs(equal - floor) >= abs(value - floor) - SAME
    else:
        extreme = equal <= value + SAME if worse_when_lower else equal >= value - SAME
    low, high = np.quantile(equal, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    excess = Estimate(*[float("nan")] * 3) if name == "size_bias" else at(tau, taus, observed.mean(axis=1) - floor)
    if worse_when_lower:  # more spread is a lower figure
        excess = Estimate(*excess[::-1])
    return FigureBesideFloor(
        value, floor, float(low), float(high), share_as_extreme(extreme), value - floor, true, excess
    )


def noise_free_figure(
    true: Floats, level: Floats | float, level_se: float, tau: Estimate, taus: Sequence[float], most: float
) -> Estimate:
    """The noise-free figure of these hospitals, from that of draws at each tau, ``true [T, B]``.

    ``level [T, B]`` is the draws' common figure, known with standard error ``level_se``, if the figure lies around it;
    else 0. The distance of the figure from it has a mean at each tau, which the spread implies, and a deviation, as
    hospitals of one spread differ by chance. The parts are added as squares, each side by itself, within 0 and
    ``most``.
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
    """The p-value, with the observed federation counted as one of the draws."""
    return float((1 + extreme.sum()) / (extreme.size + 1))
