"""Equity between hospitals in each clinical figure, and a test of whether hospitals differ more than by chance.

For calibration figures, hospitals' distances from the best value, such as 1 for the slope, are compared. For figures
that are shares of rows, differences by chance are simulated, with the same true share at all hospitals. Definitions:
``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.core.arrays import Floats
from raysim.metrics.equity import over_hospitals, worst_decile
from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.calibration import Groups, calibration, from_histogram
from raysim.statistics.clinical.clinical_figures import ClinicalFigure

NAN = float("nan")

DRAWS = 200
"""Number of simulations of hospitals at which the model is equally good."""

FEWEST = 3
"""The smallest number of hospitals for a test of whether they differ more than by chance."""

CACHED = 1 << 17
"""Largest number of rows simulated at a time, unless one federation has more."""

DISTANCES: dict[str, Callable[[Floats], Floats]] = {
    "calibration_in_the_large": np.abs,
    "calibration_slope": lambda slope: np.abs(slope - 1),
    "observed_over_expected": lambda ratio: np.abs(np.log(np.where(ratio > 0, ratio, np.nan))),
    "calibration_error": np.abs,
}
"""Functions that compute the distance of a calibration metric from its best value, by the name of the metric."""

SHARES = ("sensitivity", "specificity", "ppv", "npv", "sensitivity_at_specificity", "specificity_at_sensitivity")
"""Metrics that are shares of rows, so that their variation by chance is binomial."""


class ClinicalEquity(NamedTuple):
    """How one clinical figure differs between hospitals.

    - ``figure``, ``at`` and ``threshold`` are as in :class:`ClinicalFigure`. ``measure`` is ``distance`` if hospitals'
      distances from the figure's best value are compared, otherwise ``value``.
    - ``over``: the result of :func:`raysim.metrics.equity.over_hospitals`, whose ``mean`` is weighted by rows.
    - ``floor_std`` and ``floor_worst_decile``: the standard deviation and the worst decile of hospitals that differ
      only by chance, averaged over simulations. ``p``: the probability that hospitals differ by chance alone at least
      as much as observed. Each of the three is NaN if it is not computed for this figure, or for fewer than three
      hospitals.
    """

    figure: str
    at: float
    threshold: float
    measure: str
    over: dict[str, float]
    floor_std: float
    floor_worst_decile: float
    p: float


def clinical_equity(
    counts: ScoreCounts, figures: Sequence[ClinicalFigure], stays: NDArray[np.int64], rng: np.random.Generator
) -> list[ClinicalEquity]:
    """Summarise over ``H`` hospitals each of the ``figures`` for which equity is defined. ``stays [H]`` counts all rows
    of each hospital.
    """
    rows, equities = counts.rows, []
    for figure in figures:
        chance = (NAN, NAN, NAN)
        if figure.name in DISTANCES:
            with np.errstate(invalid="ignore", divide="ignore"):
                values, measure, larger = DISTANCES[figure.name](figure.value), "distance", False
            if figure.name == "calibration_in_the_large":
                chance = (NAN, NAN, calibration_chance(_groups(counts), rng, DRAWS))
        elif figure.name in (*SHARES, "net_benefit"):
            values, measure, larger = figure.value, "value", True
            if figure.name in SHARES:
                chance = _binomial(figure, rng)
        else:
            continue
        over = over_hospitals("mean", values, rows, stays, larger=larger)
        if measure == "value" and (values < 0).any():
            over["gini"] = NAN  # undefined for values that can be negative
        equities.append(ClinicalEquity(figure.name, figure.at, figure.threshold, measure, over, *chance))
    return equities


def calibration_chance(hospitals: Sequence[Groups], rng: np.random.Generator, draws: int = 1000) -> float:
    """Return the probability that hospitals with equal calibration would differ from each other at least as much as
    these ``hospitals``.

    Each hospital's events are simulated from its predictions, recalibrated by one intercept common to all hospitals.
    The result is NaN for fewer than three hospitals with rows, if all rows have one class, or if a prediction is 0 or
    1.
    """
    full = [groups for groups in hospitals if len(groups.rows)]
    if len(full) < FEWEST:
        return NAN
    together = Groups(*(np.concatenate(parts) for parts in zip(*full, strict=True)))
    common = calibration(together).in_the_large.estimate
    if not np.isfinite(common):
        return NAN
    p = expit(together.logit + common)
    first = np.cumsum([0, *(len(groups.rows) for groups in full[:-1])])
    of_groups = together.events, together.rows * p, together.rows * (p * (1 - p))
    observed, expected, variance = (np.add.reduceat(each, first) for each in of_groups)

    def statistic(apart: Floats) -> Floats:
        return np.asarray((np.square(apart) / variance).sum(axis=-1))

    counts = together.rows.astype(np.int64)
    hospital = np.repeat(np.arange(len(full)), [len(groups.rows) for groups in full]).repeat(counts)
    # Each row is sampled in single precision: probabilities are off by less than one in ten million.
    of_row = np.repeat(p.astype(np.float32), counts)
    least, reached, size = statistic(observed - expected), 0, max(1, CACHED // len(of_row))
    for start in range(0, draws, size):
        federations = min(size, draws - start)
        drawn, row = np.nonzero(rng.random((federations, len(of_row)), np.float32) < of_row)
        events = np.bincount(drawn * len(full) + hospital[row], minlength=federations * len(full))
        apart = events.reshape(federations, -1).astype(np.float64) - expected
        reached += int((statistic(apart) >= least).sum())
    return (1 + reached) / (draws + 1)


def _groups(counts: ScoreCounts) -> list[Groups]:
    together, offsets = from_histogram(counts.histogram), counts.offsets.tolist()
    judged = np.flatnonzero((counts.rows > 0) & ~counts.broken).tolist()
    return [Groups(*(part[offsets[h] : offsets[h + 1]] for part in together)) for h in judged]


def _binomial(figure: ClinicalFigure, rng: np.random.Generator) -> tuple[float, float, float]:
    """Simulate hospitals with equal true shares. Return the standard deviation and the worst decile of hospitals'
    shares, each averaged over simulations, and the p-value of equal shares.
    """
    defined = np.isfinite(figure.value)
    of = figure.of[defined].astype(np.int64)
    right = np.rint(figure.value[defined] * of)
    if len(of) < FEWEST:
        return NAN, NAN, NAN
    common = right.sum() / of.sum()
    simulated = rng.binomial(of[:, None], common, (len(of), DRAWS)).T  # sampling hospital by hospital is faster
    # Squared deviations from the expected number, divided by the variance without its common factor p (1 - p).
    observed, chance = (np.sum(np.square(x - of * common) / of, axis=-1) for x in (right, simulated))
    p = (1 + int(np.sum(chance >= observed * (1 - 1e-12)))) / (DRAWS + 1)
    shares = simulated / of
    return float(shares.std(axis=1).mean()), float(worst_decile(shares).mean()), p
