"""Differences in calibration between hospitals: their intercepts in the large, and a test against chance.

The test simulates every hospital's events from the predictions after one common recalibration, and needs no minimum
number of events. The interval of the spread inverts that test over true spreads. The mean uses the hospitals whose own
intercept is well defined. They are selected by expected events and weighted by expected variance, because hospitals
that happen to have events have intercepts that are too large. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.statistics.chance.inversion import TAUS, Estimate, invert
from raysim.statistics.chance.simulate import NODES, WEIGHTS
from raysim.statistics.clinical.calibration import ENOUGH, Groups, calibration
from raysim.statistics.meta_analysis.spread import Mean, hartung_knapp, paule_mandel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAN = float("nan")

CACHED = 1 << 17
"""Rows simulated at a time; they fit into the processor's cache."""

LOGITS = 32
"""Number of bins of predicted logits for locating the middle of intercepts."""

HALVINGS = 24
"""Number of steps after which that middle is known to a millionth."""

FEWEST = 3
"""The smallest number of hospitals for a statement about their spread."""


@dataclass(frozen=True, eq=False)
class CalibrationSpread:
    """Intercepts in the large of ``H`` hospitals.

    - ``intercept [H]`` with ``se [H]``: NaN if the recalibrated predictions expect fewer than ten events or non-events,
      or with one class only.
    - ``hospitals``: the number of defined intercepts. ``mean``: their mean with its interval; NaN for fewer than three.
    - ``tau``: the true standard deviation of the intercepts of all hospitals with rows, normal around their middle. Its
      ``high`` is infinite if every spread of the grid is compatible with the data.
    - ``p``: the probability that equally calibrated hospitals differ as much in observed and expected events. ``p`` and
      ``tau`` are NaN for fewer than three hospitals with rows.
    """

    intercept: Floats
    se: Floats
    hospitals: int
    mean: Mean
    tau: Estimate
    p: float


def calibration_spread(hospitals: Sequence[Groups], rng: np.random.Generator, draws: int = 1000) -> CalibrationSpread:
    """Compute the spread of calibration over ``hospitals``, each with its groups of rows. NaN if a prediction is 0 or
    1."""
    intercept, se = np.full((2, len(hospitals)), np.nan)
    common = _common(hospitals)
    for h, groups in enumerate(hospitals):
        p = expit(groups.logit + common)
        expected, information = float(groups.rows @ p), float(groups.rows @ (p * (1 - p)))
        if min(expected, groups.rows.sum() - expected) >= ENOUGH:
            intercept[h], se[h] = calibration(groups).in_the_large.estimate, information**-0.5
    se[np.isnan(intercept)] = np.nan
    defined = np.isfinite(intercept)
    mean = Mean(NAN, NAN, NAN, NAN)
    if defined.sum() >= FEWEST:
        y, v = intercept[defined], np.square(se[defined])
        mean = hartung_knapp(y, v, paule_mandel(y, v))
    p = _chance(hospitals, common, rng, draws)
    return CalibrationSpread(intercept, se, int(defined.sum()), mean, _spread(hospitals, common, rng, draws), p)


def calibration_chance(hospitals: Sequence[Groups], rng: np.random.Generator, draws: int = 1000) -> float:
    """Return only the ``p`` of :func:`calibration_spread`, which needs no hospital's own intercept."""
    return _chance(hospitals, _common(hospitals), rng, draws)


def _common(hospitals: Sequence[Groups]) -> float:
    """Return the intercept in the large of all rows; NaN if there is none."""
    if not hospitals:
        return NAN
    together = Groups(*(np.concatenate(parts) for parts in zip(*hospitals, strict=True)))
    return calibration(together).in_the_large.estimate


class _Rows(NamedTuple):
    """The ``B`` groups of rows of the ``H`` hospitals with rows, under one common intercept.

    - ``logit`` and ``chance [B]`` of a row; ``counts [B]`` of rows; ``hospital [N]`` of each row, in order.
    - ``observed``, ``expected`` and ``variance [H]``: of each hospital's events.
    """

    logit: Floats
    chance: Floats
    counts: Ints
    hospital: Ints
    observed: Floats
    expected: Floats
    variance: Floats

    def statistic(self, apart: Floats) -> Floats:
        """Return the sum of squares of ``apart [..., H]``, events less expected events, divided by their variance."""
        return np.asarray((np.square(apart) / self.variance).sum(axis=-1))


def _rows(hospitals: Sequence[Groups], common: float) -> _Rows | None:
    """Return the grouped rows; None for fewer than three hospitals with rows, and without a common intercept."""
    full = [groups for groups in hospitals if len(groups.rows)]
    if len(full) < FEWEST or not np.isfinite(common):
        return None
    together = Groups(*(np.concatenate(parts) for parts in zip(*full, strict=True)))
    logit = together.logit + common
    p = expit(logit)
    first = np.cumsum([0, *(len(groups.rows) for groups in full[:-1])])
    of_groups = together.events, together.rows * p, together.rows * (p * (1 - p))
    counts = together.rows.astype(np.int64)
    hospital = np.repeat(np.arange(len(full)), [len(groups.rows) for groups in full]).repeat(counts)
    return _Rows(logit, p, counts, hospital, *(np.add.reduceat(each, first) for each in of_groups))


def _chance(hospitals: Sequence[Groups], common: float, rng: np.random.Generator, draws: int) -> float:
    """Return the p-value of the statistic of the observed events."""
    rows = _rows(hospitals, common)
    if rows is None:
        return NAN
    # Row by row, in single precision: a chance is off by less than one in ten million.
    of_row = np.repeat(rows.chance.astype(np.float32), rows.counts)
    full, observed = len(rows.observed), rows.statistic(rows.observed - rows.expected)
    reached, size = 0, max(1, CACHED // len(of_row))
    for start in range(0, draws, size):
        federations = min(size, draws - start)
        drawn, row = np.nonzero(rng.random((federations, len(of_row)), np.float32) < of_row)
        events = np.bincount(drawn * full + rows.hospital[row], minlength=federations * full)
        apart = events.reshape(federations, -1).astype(np.float64) - rows.expected
        reached += int((rows.statistic(apart) >= observed).sum())
    return (1 + reached) / (draws + 1)


def _spread(hospitals: Sequence[Groups], common: float, rng: np.random.Generator, draws: int) -> Estimate:
    """Return the spreads of intercepts that are compatible with the observed statistic.

    All spreads use the same random numbers. Simulated federations are recalibrated like the observed one, by one step
    of Newton's method.
    """
    rows = _rows(hospitals, common)
    if rows is None:
        return Estimate(NAN, NAN, NAN)
    middles, logit = _middles(rows, TAUS), np.repeat(rows.logit.astype(np.float32), rows.counts)
    first = np.searchsorted(rows.hospital, np.arange(len(rows.observed)))
    drawn, size = np.empty((len(TAUS), draws)), max(1, CACHED // len(logit))
    for start in range(0, draws, size):
        some = slice(start, min(start + size, draws))
        # A row has the event where its hospital's own intercept is above this: logistic noise less its logit.
        u = np.maximum(rng.random((some.stop - start, len(logit)), np.float32), np.finfo(np.float32).tiny)
        needed = np.log(u / (1 - u)) - logit
        z = rng.standard_normal((some.stop - start, len(first)), np.float32)
        for t, (middle, tau) in enumerate(zip(middles, TAUS, strict=True)):
            intercepts = (middle + tau * z).astype(np.float32)
            events = np.add.reduceat(needed < intercepts[:, rows.hospital], first, axis=1, dtype=np.int64)
            apart = events - rows.expected
            step = apart.sum(axis=1, keepdims=True) / rows.variance.sum()
            drawn[t, some] = rows.statistic(apart - rows.variance * step)
    return invert(float(rows.statistic(rows.observed - rows.expected)), drawn, TAUS)


def _middles(rows: _Rows, taus: Sequence[float]) -> Floats:
    """Return the middle of hospitals' intercepts at each of ``taus [T]``, relative to the common one, that keeps the
    expected number of events, ``[T]``."""
    counts, edges = np.histogram(rows.logit, LOGITS, weights=rows.counts)
    logits = (edges[:-1] + edges[1:]) / 2
    around = logits[:, None] + np.outer(taus, NODES)[:, None, :]
    wanted = counts @ expit(logits)
    reach = float(np.abs(edges).max()) + 3 * max(taus)
    low, high = np.full(len(taus), -reach), np.full(len(taus), reach)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = (expit(around + middle[:, None, None]) @ (WEIGHTS / WEIGHTS.sum())) @ counts < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.asarray((low + high) / 2)
