"""What equal service would show at the hospitals' counts, and the true spread that the data support beyond it.

Hospitals with few events differ in AUROC by chance alone. The floor draws federations in which every hospital has the
same true AUROC and ROC shape, at the counts that were tested, and says where each figure of dispersion then lies. The
test is that of Q, the weighted sum of squares around the mean; inverting it over true spreads gives an interval of the
spread, and with it of every figure's noise-free value, so that no two figures can contradict each other.

The floor holds where hospitals have one ROC shape; hospitals may differ in prevalence and in their scores' level. The
interval takes hospitals' true AUROCs to be normal on the logit scale and unrelated to their size. Definitions and what
was covered: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from raysim.statistics.auroc import PairSums
from raysim.statistics.common_curve import CommonCurve, common_curve
from raysim.statistics.dispersion import WORSE_WHEN_LOWER, Dispersion
from raysim.statistics.drawn import centres, federations
from raysim.statistics.levels import LEVEL, POWER, Z

Floats = NDArray[np.float64]

FEWEST = 3
"""Judged hospitals below which nothing is said of their spread."""

TAUS = (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4)
"""True spreads (standard deviations of the logit of AUROC) that are tried; between them is interpolated."""

DRAWS = 1000

SAME = 1e-9
"""Figures this close are equal: hospitals with few rows have few values, and rounding must not part them."""


class Estimate(NamedTuple):
    """A figure with its 95 % interval."""

    low: float
    estimate: float
    high: float


@dataclass(frozen=True)
class Figure:
    """A figure of dispersion beside what equal service shows.

    - ``value``: on the test rows. ``floor``: the mean of it under equal service, ``low`` to ``high`` its central 95 %.
    - ``p``: how often equal service shows one as bad or worse (``size_bias``: as far from its floor on either side).
    - ``beyond``: ``value - floor``.
    - ``true``: the noise-free figure that the spread implies; ``excess``: what that spread adds to the floor. NaN for
      ``size_bias``, which a spread unrelated to size does not imply.
    """

    value: float
    floor: float
    low: float
    high: float
    p: float
    beyond: float
    true: Estimate
    excess: Estimate


@dataclass(frozen=True, eq=False)
class NoiseFloor:
    """The noise floor of one model's AUROC over hospitals.

    - ``curve``: what the hospitals have in common. ``hospitals``: how many are judged.
    - ``q`` and ``p``: twice how often equal service shows a Q as large, as the interval of ``tau`` has two sides.
    - ``tau``: the true standard deviation of hospitals' logit AUROC. Its ``high`` is infinite where every spread that
      was tried is compatible with the data.
    - ``shown``: whether a difference between hospitals is shown: ``tau`` excludes 0, ``p`` is below .05.
    - ``visible``: the smallest tau that is shown in 80 % of such federations; infinite where none that was tried is.
    - ``figures``: by name, those of :class:`raysim.statistics.dispersion.Dispersion`.

    Fewer than three judged hospitals have no figures, and all numbers are NaN.
    """

    curve: CommonCurve
    hospitals: int
    q: float
    p: float
    tau: Estimate
    shown: bool
    visible: float
    figures: dict[str, Figure]

    def sentence(self) -> str:
        """What may be said of the spread between hospitals."""
        if self.hospitals < FEWEST:
            return f"With {self.hospitals} judged hospitals nothing can be said of differences between hospitals."
        if self.shown:
            low, high = auroc_range(self.curve.common, self.tau.estimate)
            least, most = auroc_range(self.curve.common, self.tau.low)
            return (
                f"Hospitals are served differently: the true AUROC of 95 % of them is estimated between {low:.2f} and "
                f"{high:.2f}, and the data exclude that all lie within {least:.2f} to {most:.2f}."
            )
        nothing = f"No difference between hospitals beyond test noise can be shown (p = {self.p:.2f})"
        if np.isinf(self.visible):
            return f"{nothing}; these data could not show any."
        low, high = auroc_range(self.curve.common, self.visible)
        return (
            f"{nothing}; these data show a difference in four of five cases only where 95 % of hospitals' true AUROCs "
            f"reach from {low:.2f} to {high:.2f}."
        )


def noise_floor(
    sums: PairSums,
    sizes: ArrayLike,
    rng: np.random.Generator,
    *,
    minimum_events: int = 5,
    draws: int = DRAWS,
    taus: Sequence[float] = TAUS,
) -> NoiseFloor:
    """The floor of ``H`` hospitals from the sums that each sends.

    ``sizes [H]`` are all rows of each hospital (for ``size_bias``), ``minimum_events`` the events from which a hospital
    may be named the lowest; the test and the spread use every judged hospital. ``taus`` ascend from 0. Strategies that
    are compared share their draws when each comes with a generator of the same seed.
    """
    if not len(taus) or taus[0] != 0 or np.any(np.diff(taus) <= 0):
        raise ValueError(f"taus: {tuple(taus)} do not ascend from 0")
    curve = common_curve(sums)
    judged = curve.judged
    hospitals = int(judged.sum())
    if hospitals < FEWEST:
        nothing = Estimate(*[float("nan")] * 3)
        return NoiseFloor(curve, hospitals, float("nan"), float("nan"), nothing, False, float("nan"), {})
    events, non_events = sums.events[judged], sums.non_events[judged]
    dispersion = Dispersion(events >= minimum_events, np.log(np.asarray(sizes, dtype=np.float64)[judged]))
    auroc, weights = curve.auroc[judged], 1.0 / curve.variance[judged]

    q, shown_by_chance = weighted_squares(auroc, weights), []
    observed: dict[str, list[Floats]] = {name: [] for name in dispersion.figures(auroc)}
    true: dict[str, list[Floats]] = {name: [] for name in observed}
    for block in federations(events, non_events, curve.common, curve.event_sd, taus, draws, rng):
        shown_by_chance.append(weighted_squares(block.observed, weights))
        for kept, values in ((observed, block.observed), (true, block.true)):
            for name, figure in dispersion.figures(values).items():
                kept[name].append(figure)
    drawn_q = np.concatenate(shown_by_chance, axis=1)
    p = min(1.0, 2.0 * _share_as_extreme(drawn_q[0] >= q - SAME * q))
    tau = invert(q, drawn_q, taus)
    figures = {
        name: _figure(name, float(value), np.hstack(observed[name]), np.hstack(true[name]), tau, taus)
        for name, value in dispersion.figures(auroc).items()
    }
    return NoiseFloor(curve, hospitals, float(q), p, tau, tau.low > 0, _visible(drawn_q, taus), figures)


def weighted_squares(auroc: Floats, weights: Floats) -> Floats:
    """Q of ``auroc [..., M]`` with fixed ``weights [M]``: ``sum w (A - mean_w A)^2``, ``[...]``."""
    mean = auroc @ weights / weights.sum()
    return np.asarray(np.square(auroc - mean[..., None]) @ weights)


def invert(q: Floats | float, drawn: Floats, taus: Sequence[float]) -> Estimate:
    """The spreads at which ``q`` is neither too large nor too small, from draws of it ``[T, B]`` at ``taus [T]``.

    A spread is in the interval when between 2.5 % and 97.5 % of its draws are at least ``q``; the estimate is where
    half of them are. The shares are made to ascend, and interpolated linearly.
    """
    share = np.maximum.accumulate((drawn >= q - SAME * q).mean(axis=1))
    tail = (1 - LEVEL) / 2
    return Estimate(*(_crossing(share, taus, level) for level in (tail, 0.5, 1 - tail)))


def auroc_range(common: float, tau: float) -> tuple[float, float]:
    """Where the true AUROC of 95 % of hospitals lies, with mean ``common`` and the spread ``tau`` of their logits."""
    if not np.isfinite(tau):
        return float("nan"), float("nan")
    (mu,) = centres(common, [tau])
    return float(expit(mu - Z * tau)), float(expit(mu + Z * tau))


def over_seeds(floors: Sequence[NoiseFloor]) -> dict[str, tuple[float, float]]:
    """Each figure's value and floor, averaged over a run's seeds.

    Tests and intervals are those of one seed: seeds test some of the same patients, and are no independent evidence.
    Figures that a seed lacks are left out.
    """
    names = [name for name in floors[0].figures if all(name in floor.figures for floor in floors)]
    each = {name: [floor.figures[name] for floor in floors] for name in names}
    return {
        name: (float(np.mean([f.value for f in figures])), float(np.mean([f.floor for f in figures])))
        for name, figures in each.items()
    }


def _figure(name: str, value: float, observed: Floats, true: Floats, tau: Estimate, taus: Sequence[float]) -> Figure:
    """From the figure in draws at each tau, ``[T, B]``, on the rows (``observed``) and noise-free (``true``)."""
    equal = observed[0]
    floor = float(equal.mean())
    if name == "size_bias":
        extreme = np.abs(equal - floor) >= abs(value - floor) - SAME
    else:
        extreme = equal <= value + SAME if name in WORSE_WHEN_LOWER else equal >= value - SAME
    low, high = np.quantile(equal, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if name == "size_bias":
        implied = excess = Estimate(*[float("nan")] * 3)
    else:
        implied = _at(tau, taus, true.mean(axis=1))
        excess = _at(tau, taus, observed.mean(axis=1) - floor)
    if name in WORSE_WHEN_LOWER:  # more spread is a lower figure
        implied, excess = Estimate(*implied[::-1]), Estimate(*excess[::-1])
    return Figure(value, floor, float(low), float(high), _share_as_extreme(extreme), value - floor, implied, excess)


def _share_as_extreme(extreme: NDArray[np.bool_]) -> float:
    """The p-value, with the observed federation counted as one of the draws."""
    return float((1 + extreme.sum()) / (extreme.size + 1))


def _crossing(share: Floats, taus: Sequence[float], level: float) -> float:
    """Where an ascending ``share [T]`` reaches ``level``: 0 where it starts above it, infinite where it stays below."""
    if share[0] >= level:
        return 0.0
    if share[-1] < level:
        return float("inf")
    after = int(np.argmax(share >= level))
    part = (level - share[after - 1]) / (share[after] - share[after - 1])
    return float(taus[after - 1] + part * (taus[after] - taus[after - 1]))


def _at(tau: Estimate, taus: Sequence[float], values: Floats) -> Estimate:
    """``values [T]`` at the three spreads, NaN at an infinite one."""
    return Estimate(*(float(np.interp(t, taus, values)) if np.isfinite(t) else float("nan") for t in tau))


def _visible(drawn: Floats, taus: Sequence[float]) -> float:
    critical = np.quantile(drawn[0], (1 + LEVEL) / 2, method="higher")
    return _crossing(np.maximum.accumulate((drawn > critical).mean(axis=1)), taus, POWER)
