"""Whether predicted probabilities are right: in the large, in slope, in bins, and over hospitals.

Everything is computed from groups of rows with one prediction each: raw rows are groups of one, and a histogram of
scores is groups by bin (:func:`from_histogram`). Sources: Cox 1958 (intercept and slope); Murphy 1973 (the parts of the
Brier score). Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from raysim.core.streams import stream
from raysim.metrics.measures import ScoreHistogram
from raysim.statistics.intervals import observed_over_expected
from raysim.statistics.levels import LEVEL, Z

Floats = NDArray[np.float64]

NAN = float("nan")

STEPS = 25
"""Newton steps after which there is no finite solution."""

STEEPEST = 20.0
"""A slope, or an intercept beyond it, that separates the classes."""

ENOUGH = 10
"""Events and non-events that a hospital has at least for its own intercept and slope."""

BINS = 10
"""Of equal width between 0 and 1, closed at the left; the last at both ends."""

BINNED_ROWS = 100
"""Rows below which the calibration error is mostly its own floor."""


class Groups(NamedTuple):
    """Groups of rows with one prediction: its logit, how many rows and how many events, ``[B]`` each."""

    logit: Floats
    rows: Floats
    events: Floats


@dataclass(frozen=True)
class Coefficient:
    """An estimate with its standard error and 95 % interval; NaN where there is no finite one."""

    estimate: float
    se: float

    @property
    def low(self) -> float:
        """The lower limit."""
        return self.estimate - Z * self.se

    @property
    def high(self) -> float:
        """The upper limit."""
        return self.estimate + Z * self.se


@dataclass(frozen=True)
class Calibration:
    """How predictions fit ``rows`` with ``events``.

    - ``in_the_large``: the intercept ``a`` of ``logit P(y) = a + logit p``; above 0: risks are predicted too low.
    - ``intercept`` and ``slope`` of ``logit P(y) = a + b logit p``; a slope below 1: predictions are too extreme.
    - ``expected`` events, the sum of predictions; ``ratio``: observed over expected, ``ratio_low`` to ``ratio_high``.
    """

    rows: int
    events: int
    in_the_large: Coefficient
    intercept: Coefficient
    slope: Coefficient
    expected: float
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class Brier:
    """The Brier score and its parts over bins: ``score = reliability - resolution + uncertainty + remainder``.

    The remainder is what predictions vary within bins; it is 0 where each bin holds one prediction.
    """

    score: float
    reliability: float
    resolution: float
    uncertainty: float
    remainder: float


@dataclass(frozen=True)
class CalibrationError:
    """The expected calibration error with its 95 % interval, beside what chance alone shows at these counts.

    - ``value``, ``low`` to ``high``: the error, and an interval of that of further patients of the same kind.
    - ``floor``, ``floor_high``: mean and 95th percentile of the error of perfectly calibrated predictions.

    All NaN for fewer than 100 rows.
    """

    value: float
    low: float
    high: float
    floor: float
    floor_high: float


def raw(probabilities: ArrayLike, y: ArrayLike) -> Groups:
    """Rows as groups of one, from ``probabilities [n]`` and ``y [n]`` (0 or 1)."""
    p, labels = np.asarray(probabilities, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if p.ndim != 1 or p.shape != labels.shape:
        raise ValueError(f"probabilities, y: shapes {p.shape} and {labels.shape} are not one [n]")
    with np.errstate(divide="ignore"):
        return Groups(np.log(p) - np.log1p(-p), np.ones(len(p)), labels)


def from_histogram(histogram: ScoreHistogram) -> Groups:
    """The bins of a histogram of margins, each at its middle: a probability is off by less than .002."""
    low, high = edges(histogram.bins)
    # The bin of an infinite margin holds nothing else; its other end is no number.
    middle = np.where(np.isinf(low), low, np.where(np.isinf(high), high, (low + high) / 2))
    rows = (histogram.positives + histogram.negatives).astype(np.float64)
    return Groups(middle, rows, histogram.positives.astype(np.float64))


def edges(bins: NDArray[np.uint16]) -> tuple[Floats, Floats]:
    """The lowest and the highest margin of each of a histogram's ``bins [B]``; NaN where there is none."""
    first = bins.astype(np.uint32) << np.uint32(16)
    return _margin(first), _margin(first | np.uint32(0xFFFF))


def calibration(groups: Groups) -> Calibration:
    """Intercept, slope and observed over expected events of one hospital, or of all together.

    Intercept and slope are NaN with one class only, for classes that the predictions separate, and where a prediction
    is 0, 1 or NaN; a hospital's own are for printing from :data:`ENOUGH` events and non-events on.
    """
    rows, events = float(groups.rows.sum()), float(groups.events.sum())
    expected = float(groups.rows @ expit(groups.logit))
    nothing = Coefficient(NAN, NAN)
    large = intercept = slope = nothing
    if 0 < events < rows and np.isfinite(groups.logit).all():
        (large,) = _fit(groups, np.ones((1, len(groups.logit))), groups.logit)
        if np.ptp(groups.logit) > 0:
            intercept, slope = _fit(groups, np.stack([np.ones(len(groups.logit)), groups.logit]), 0.0)
    ratio = events / expected if expected > 0 else NAN
    limits = observed_over_expected(events, expected, rows)
    return Calibration(
        int(rows), int(events), large, intercept, slope, expected, ratio, float(limits.low), float(limits.high)
    )


class Bins(NamedTuple):
    """What a hospital sends for calibration in bins: rows, the sum of predictions and events in each, ``[BINS]``."""

    rows: Floats
    predicted: Floats
    events: Floats


def binned(groups: Groups, bins: int = BINS) -> Bins:
    """Sums over bins of equal width; those of several hospitals add up."""
    p = expit(groups.logit)
    of = bin_of(p, bins)
    rows, predicted, events = (
        np.bincount(of, weights, bins).astype(np.float64) for weights in (groups.rows, groups.rows * p, groups.events)
    )
    return Bins(rows, predicted, events)


def bin_of(probabilities: Floats, bins: int = BINS) -> NDArray[np.int64]:
    """The bin of equal width that each of ``probabilities [n]`` is in."""
    # A probability at a bin's edge may have lost its last bit on the way through its logit.
    return np.minimum((probabilities * bins + 1e-12).astype(np.int64), bins - 1)


def calibration_error(bins: Bins, rng: np.random.Generator, draws: int = 1000) -> CalibrationError:
    """The mean distance of predictions from events over ``bins``, weighted by rows, its interval and its floor.

    The floor draws each bin's events with the chance that is predicted there. The interval reaches as far as the events
    of all bins together miss their expectation in 95 % of federations (:func:`_missed`), and at least as far as the
    floor does: by the triangle inequality chance moves the error by no more, up or down.
    """
    filled = bins.rows > 0
    n, predicted, events = (values[filled] for values in bins)
    total = n.sum()
    if total < BINNED_ROWS:
        return CalibrationError(NAN, NAN, NAN, NAN, NAN)
    drawn = np.abs(rng.binomial(n.astype(np.int64), predicted / n, (draws, len(n))) - predicted).sum(axis=1) / total
    value, by_chance = float(np.abs(events - predicted).sum() / total), float(np.quantile(drawn, LEVEL))
    reach = max(_missed(n, events) / total, by_chance)
    return CalibrationError(value, max(0.0, value - reach), min(1.0, value + reach), float(drawn.mean()), by_chance)


def _missed(rows: Floats, events: Floats) -> float:
    """By how many events, added up over bins of ``rows [B]``, draws miss the expected ones: the 95th percentile.

    They are taken to be normal, with the variance of the observed share; half an event and half another row are added
    to it, so that a bin without events is not taken to be certain.
    """
    share = (events + 0.5) / (rows + 1)
    return float(np.quantile(_distances(len(rows)) @ np.sqrt(rows * share * (1 - share)), LEVEL))


@cache
def _distances(bins: int) -> Floats:
    """Distances of standard normal draws from 0, ``[10000, bins]``: the same for all, so that counts decide alone."""
    distances: Floats = np.abs(stream(0, "calibration error").standard_normal((10_000, bins)))
    return distances


def brier(groups: Groups, bins: int = BINS) -> Brier:
    """The Brier score of the rows with its parts over bins of equal width; NaN without rows."""
    total = float(groups.rows.sum())
    if not total:
        return Brier(NAN, NAN, NAN, NAN, NAN)
    p = expit(groups.logit)
    score = float(groups.events @ np.square(1 - p) + (groups.rows - groups.events) @ np.square(p)) / total
    sums = binned(groups, bins)
    filled = sums.rows > 0
    n, predicted, events = (values[filled] for values in sums)
    prevalence = float(groups.events.sum()) / total
    reliability = float(n @ np.square((predicted - events) / n)) / total
    resolution = float(n @ np.square(events / n - prevalence)) / total
    uncertainty = prevalence * (1 - prevalence)
    return Brier(score, reliability, resolution, uncertainty, score - (reliability - resolution + uncertainty))


def _fit(groups: Groups, columns: Floats, offset: Floats | float) -> list[Coefficient]:
    """Logistic regression on ``columns [d, B]`` by Newton's method, standard errors from the information."""
    beta = np.zeros(len(columns))
    for _ in range(STEPS):
        p = expit(offset + beta @ columns)
        information = (columns * (groups.rows * p * (1 - p))) @ columns.T
        gradient = columns @ (groups.events - groups.rows * p)
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            break
        beta += step
        if not np.abs(beta).max() <= STEEPEST:
            break
        if np.abs(step).max() < 1e-10:
            errors = np.sqrt(np.diag(np.linalg.inv(information)))
            return [Coefficient(float(b), float(e)) for b, e in zip(beta, errors, strict=True)]
    return [Coefficient(NAN, NAN)] * len(columns)


def _margin(ordered: NDArray[np.uint32]) -> Floats:
    """The float32 margins of integers in their order (see :func:`raysim.metrics.segments.sortable`)."""
    positive = ordered >> np.uint32(31) == 1
    bits = np.where(positive, ordered ^ np.uint32(1 << 31), ~ordered).astype(np.uint32)
    with np.errstate(invalid="ignore"):  # the upper end of the bin of an infinite margin is no number
        return bits.view(np.float32).astype(np.float64)
