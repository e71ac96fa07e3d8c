"""Calibration of predicted probabilities: calibration in the large, calibration slope, and the calibration error in
bins.

Functions take groups of rows that have the same prediction. Each bin of a histogram of scores is a group
(:func:`from_histogram`). Source of intercept and slope: D. R. Cox, *Two Further Applications of a Model for Binary
Regression*, 1958. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.core.arrays import Floats
from raysim.core.levels import LEVEL, Z
from raysim.core.streams import stream
from raysim.metrics.measures import ScoreHistogram

NAN = float("nan")

STEPS = 25
"""Largest number of Newton steps. If a fit needs more, it is treated as having no finite solution."""

STEEPEST = 20.0
"""Largest absolute slope or intercept. A fit beyond it is treated as having no finite solution."""

FLAT = 1e-6
"""A fit counts as optimal if its gradient is at most this share of the sum of the absolute values of the gradient's
terms."""

ENOUGH = 10
"""Smallest number of events, and of non-events, for which a calibration in the large, intercept or slope is
reported."""

BINS = 10
"""Number of bins of predicted probability. They have equal width between 0 and 1 and are closed at the left; the last
is closed at both ends."""

BINNED_ROWS = 100
"""With fewer rows than this, a calibration error is undefined."""


class Groups(NamedTuple):
    """``B`` groups of rows. The rows of a group have the same prediction, with the logit ``logit [B]``. ``rows [B]``
    and ``events [B]`` are the numbers of rows and of events.
    """

    logit: Floats
    rows: Floats
    events: Floats


@dataclass(frozen=True)
class Coefficient:
    """An estimated coefficient with its standard error and 95 % interval. All are NaN if the estimate is not finite."""

    estimate: float
    se: float

    @property
    def low(self) -> float:
        """The lower limit of the 95 % interval."""
        return self.estimate - Z * self.se

    @property
    def high(self) -> float:
        """The upper limit of the 95 % interval."""
        return self.estimate + Z * self.se


@dataclass(frozen=True)
class Calibration:
    """The calibration of predicted probabilities ``p`` for an outcome ``y``.

    - ``in_the_large``: the intercept ``a`` of ``logit P(y) = a + logit p``. Above 0, predicted risks are too low.
    - ``intercept`` and ``slope``: ``a`` and ``b`` of ``logit P(y) = a + b logit p``. With a slope below 1, predictions
      are too extreme.
    """

    in_the_large: Coefficient
    intercept: Coefficient
    slope: Coefficient


@dataclass(frozen=True)
class CalibrationError:
    """The expected calibration error with its 95 % interval, and the error that perfectly calibrated predictions have
    by chance.

    - ``value``, ``low`` to ``high``: the error in these rows, and an interval for the error in the population from
      which the rows were sampled.
    - ``floor``, ``floor_high``: the mean and the 95th percentile of the error if predictions are perfectly calibrated.

    All five are NaN for fewer than 100 rows.
    """

    value: float
    low: float
    high: float
    floor: float
    floor_high: float


def from_histogram(histogram: ScoreHistogram) -> Groups:
    """Return the bins of a histogram of scores as groups of rows.

    A group's logit is the middle between the lowest and the highest margin of its bin. For the bin of an infinite
    margin, the logit is this margin.
    """
    low, high = edges(histogram.bins)
    # The bin of an infinite margin has no other margins; its other end is not a number.
    middle = np.where(np.isinf(low), low, np.where(np.isinf(high), high, (low + high) / 2))
    rows = (histogram.positives + histogram.negatives).astype(np.float64)
    return Groups(middle, rows, histogram.positives.astype(np.float64))


def edges(bins: NDArray[np.uint16]) -> tuple[Floats, Floats]:
    """Return the lowest and highest margin (log odds) of each bin of a histogram.

    The bin of an infinite margin has this margin as one end, and NaN as the other. The bin of NaN margins has two NaN.
    """
    first = bins.astype(np.uint32) << np.uint32(16)
    return _margin(first), _margin(first | np.uint32(0xFFFF))


def calibration(groups: Groups) -> Calibration:
    """Compute the calibration in the large, intercept and slope for the rows of one hospital, or of all hospitals
    together.

    All three are NaN if only one class is present, or if a prediction is 0, 1 or NaN. Intercept and slope are NaN also
    if the predictions separate the classes or are all equal. Print the coefficients of a single hospital only if it has
    at least :data:`ENOUGH` rows of each class.
    """
    rows, events = float(groups.rows.sum()), float(groups.events.sum())
    nothing = Coefficient(NAN, NAN)
    large = intercept = slope = nothing
    if 0 < events < rows and np.isfinite(groups.logit).all():
        (large,) = _fit(groups, np.ones((1, len(groups.logit))), groups.logit)
        if np.ptp(groups.logit) > 0:
            intercept, slope = _fit(groups, np.stack([np.ones(len(groups.logit)), groups.logit]), 0.0)
    return Calibration(large, intercept, slope)


class Bins(NamedTuple):
    """Sums over the rows of each bin of predicted probability, from which a calibration error is computed."""

    rows: Floats
    predicted: Floats
    events: Floats


def binned(groups: Groups, bins: int = BINS) -> Bins:
    """Compute the number of rows, sum of predictions and number of events in each of ``bins`` bins of equal width.

    Only tests and benchmarks use this function, for exact predictions. Reports use
    :func:`raysim.statistics.clinical.curves.binned`, for histograms.
    """
    p = expit(groups.logit)
    of = bin_of(p, bins)
    rows, predicted, events = (
        np.bincount(of, weights, bins).astype(np.float64) for weights in (groups.rows, groups.rows * p, groups.events)
    )
    return Bins(rows, predicted, events)


def bin_of(probabilities: Floats, bins: int = BINS) -> NDArray[np.int64]:
    """Return the index of the bin of each of ``probabilities [n]``; the ``bins`` have equal width and cover 0 to 1."""
    # A probability at a bin's edge may have lost its last bit when it was converted to a logit and back.
    return np.minimum((probabilities * bins + 1e-12).astype(np.int64), bins - 1)


def calibration_error(bins: Bins, rng: np.random.Generator, draws: int = 1000) -> CalibrationError:
    """Compute the expected calibration error, its interval, and the error that perfectly calibrated predictions have by
    chance. The error is the mean over ``bins``, weighted by rows, of the distance between mean prediction and share of
    events.
    """
    filled = bins.rows > 0
    n, predicted, events = (values[filled] for values in bins)
    total = n.sum()
    if total < BINNED_ROWS:
        return CalibrationError(NAN, NAN, NAN, NAN, NAN)
    simulated = np.abs(rng.binomial(n.astype(np.int64), predicted / n, (draws, len(n))) - predicted).sum(axis=1) / total
    value, by_chance = float(np.abs(events - predicted).sum() / total), float(np.quantile(simulated, LEVEL))
    reach = max(_missed(n, events) / total, by_chance)
    return CalibrationError(value, max(0.0, value - reach), min(1.0, value + reach), float(simulated.mean()), by_chance)


def _missed(rows: Floats, events: Floats) -> float:
    """Return the 95th percentile of the distance between the number of events and its expectation, summed over bins.
    The share of events in a bin is computed as ``(events + .5) / (rows + 1)``, so that no bin has a variance of 0.
    """
    share = (events + 0.5) / (rows + 1)
    return float(np.quantile(_distances(len(rows)) @ np.sqrt(rows * share * (1 - share)), LEVEL))


@cache
def _distances(bins: int) -> Floats:
    """Return ``10000`` samples of the absolute values of ``bins`` standard normal numbers, ``[10000, bins]``."""
    return np.asarray(np.abs(stream(0, "calibration error").standard_normal((10_000, bins))))


def _fit(groups: Groups, columns: Floats, offset: Floats | float) -> list[Coefficient]:
    """Fit a logistic regression of the events of ``B`` groups on ``columns [d, B]`` by Newton's method.

    If the fit does not reach the optimum from coefficients of 0, it is started again with the last coefficient at 1.
    """
    for start in np.eye(len(columns))[[-1]] * np.arange(2)[:, None]:
        fitted = _fit_from(start, groups, columns, offset)
        if fitted is not None:
            return fitted
    return [Coefficient(NAN, NAN)] * len(columns)


def _fit_from(start: Floats, groups: Groups, columns: Floats, offset: Floats | float) -> list[Coefficient] | None:
    """Return the fit that starts at coefficients ``start [d]``, or None if it does not end at the optimum."""
    beta = start.copy()
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
            terms = groups.events * (1 - p) + (groups.rows - groups.events) * p
            if not (np.abs(gradient) <= FLAT * (np.abs(columns) @ terms)).all():
                break
            errors = np.sqrt(np.diag(np.linalg.inv(information)))
            return [Coefficient(float(b), float(e)) for b, e in zip(beta, errors, strict=True)]
    return None


def _margin(ordered: NDArray[np.uint32]) -> Floats:
    """Return the float32 margins from which :func:`raysim.metrics.segments.sortable` makes the integers ``ordered``."""
    positive = ordered >> np.uint32(31) == 1
    bits = np.where(positive, ordered ^ np.uint32(1 << 31), ~ordered).astype(np.uint32)
    with np.errstate(invalid="ignore"):  # the upper end of the bin of an infinite margin is not a number
        return bits.view(np.float32).astype(np.float64)
