"""Recalibration of risks by hospital: ``logit p' = a + b logit p``, fitted on rows that are not used for training.

All methods compute the mode of the likelihood of a hospital's rows times normal priors on ``a`` and ``b``. Without
priors, this is the maximum likelihood estimate; with a prior estimated from all hospitals, the empirical Bayes
estimate. Marginal likelihoods use Laplace's approximation. Source of the closed test: Y. Vergouwe et al., *A Closed
Testing Procedure to Select an Appropriate Method for Updating Prediction Models*, 2017. Definitions:
``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from raysim.core.arrays import Floats, Ints
from raysim.statistics.clinical.calibration import STEEPEST, STEPS

Words = NDArray[np.object_]
Method = Literal["eb", "intercept", "logistic", "closed"]

TAUS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3)
"""Candidates for the standard deviation of recalibration intercepts over hospitals."""

PASSES = 4
"""How often the mean of recalibration intercepts over hospitals is updated at each candidate in ``TAUS`` above 0."""

TWO_DF, ONE_DF = 5.991464547107979, 3.841458820694124
"""The 95th percentiles of chi-square with two degrees of freedom, and with one."""

LARGEST = 50.0
"""Largest absolute margin (logit of a predicted risk) in a fit."""

LONGEST = 2.0
"""Largest change of the intercept ``a``, and of the slope ``b``, in one step of Newton's method."""

STEP_TOLERANCE = 1e-11
"""The posterior mode counts as reached when a Newton step changes the intercept and the slope by less than this."""

ROUNDING = 1e-12
"""Relative decrease of the log posterior density that rounding alone can cause."""

HALVINGS = 20
"""A step that lowers the log posterior density is halved at most this often."""

NO_ROWS = "no validation rows"
ONE_CLASS = "one class only"
SEPARATED = "no finite solution"
WITHIN_CHANCE = "within chance"
REVERSED = "slope at most 0, left at 1"
UNTRAINED = "never trained"


class Rows(NamedTuple):
    """Predictions and outcomes of ``H`` hospitals, by row or by group of rows of one hospital with the same prediction.

    - ``margin [n]``: the logit of the prediction.
    - ``rows [n]`` and ``events [n]``: the numbers of rows and events in the group.
    - ``hospital [n]``: the index of the hospital, 0 to ``hospitals - 1``.
    """

    margin: Floats
    rows: Floats
    events: Floats
    hospital: Ints
    hospitals: int

    def sums(self, values: Floats) -> Floats:
        """Return the sum of ``values`` at each hospital, ``[H]``."""
        return np.bincount(self.hospital, values, self.hospitals).astype(np.float64, copy=False)

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """The number of rows and the number of events of each hospital, ``[H]`` each."""
        return self.sums(self.rows), self.sums(self.events)


@dataclass(frozen=True)
class Prior:
    """The normal prior of hospitals' recalibration intercepts, with its ``mean`` and ``variance``."""

    mean: float
    variance: float


@dataclass(frozen=True, eq=False)
class Shifts:
    """The recalibration ``logit p' = a + b logit p`` at each of ``H`` hospitals: ``intercept [H]`` (a) and ``slope
    [H]`` (b, above 0).

    ``reason [H]`` says why a hospital was not recalibrated, or that its fitted slope was at most 0 and is replaced by
    1. Otherwise it is empty.
    """

    intercept: Floats
    slope: Floats
    reason: Words

    @property
    def unchanged(self) -> NDArray[np.bool_]:
        """Whether recalibration leaves each hospital's risks unchanged, ``[H]``."""
        return np.asarray((self.intercept == 0) & (self.slope == 1))


def rows_of(margins: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Rows:
    """Build rows from concatenated ``margins [n]`` (logits of predictions) and outcomes ``y [n]``; hospital ``h`` has
    the rows ``offsets[h]:offsets[h + 1]``.

    Rows whose margin is NaN are left out.
    """
    z, bounds = np.asarray(margins, dtype=np.float64), np.asarray(offsets, dtype=np.int64)
    hospital = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return grouped(z, np.ones(len(z)), np.asarray(y, dtype=np.float64), hospital, len(bounds) - 1)


def grouped(margin: Floats, rows: Floats, events: Floats, hospital: Ints, hospitals: int) -> Rows:
    """Build groups of rows from their margins (logits of predictions), numbers of rows and events, and hospitals.

    Groups whose margin is NaN are left out. Margins are clipped to an absolute value of at most :data:`LARGEST`.
    """
    defined = ~np.isnan(margin)
    limited = np.clip(margin[defined], -LARGEST, LARGEST)
    return Rows(limited, rows[defined], events[defined], hospital[defined], hospitals)


def log_likelihood(of: Rows, intercept: Floats, slope: Floats) -> Floats:
    """Return the log likelihood of each hospital's rows after recalibration, ``[H]``."""
    eta = intercept[of.hospital] + slope[of.hospital] * of.margin
    with np.errstate(invalid="ignore"):  # for hospitals without a finite solution
        return of.sums(-of.events * np.logaddexp(0, -eta) - (of.rows - of.events) * np.logaddexp(0, eta))


def mode(
    of: Rows, prior: Prior | None, slope_variance: float | None, start: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the posterior modes of the recalibration intercept ``a [H]`` and slope ``b [H]`` of each of ``H``
    hospitals; NaN if no finite mode is found.

    ``prior`` is the prior of ``a``; None means no prior. The prior of ``b`` has the mean 1 and the variance
    ``slope_variance``: 0 fixes ``b`` at 1, and None means no prior. ``start [H]`` are the initial values of ``a``.

    A hospital without rows has the priors' means if both ``a`` and ``b`` have a prior. Otherwise its modes are NaN,
    except that a fixed ``b`` is 1.
    """
    mean = 0.0 if prior is None else prior.mean
    a, b = np.full(of.hospitals, mean) if start is None else start, np.ones(of.hospitals)
    if slope_variance == 0:
        return (np.full(of.hospitals, mean) if prior is not None and prior.variance == 0 else _shift(of, prior, a)), b
    held_a = 0.0 if prior is None else 1 / prior.variance
    held_b = 0.0 if slope_variance is None else 1 / slope_variance

    def value(at: Floats, by: Floats) -> Floats:
        return log_likelihood(of, at, by) - (held_a * np.square(at - mean) + held_b * np.square(by - 1)) / 2

    converged = np.zeros(of.hospitals, dtype=bool)
    for _ in range(STEPS):
        step_a, step_b = _newton(of, a, b, mean, held_a, held_b)
        a, b = _ascended(value, a, b, step_a, step_b)
        converged |= np.maximum(np.abs(step_a), np.abs(step_b)) < STEP_TOLERANCE
        if converged.all():
            break
    lost = ~converged | (np.abs(a) > STEEPEST) | (np.abs(b) > STEEPEST)
    return np.where(lost, np.nan, a), np.where(lost, np.nan, b)


def _shift(of: Rows, prior: Prior | None, start: Floats) -> Floats:
    """Return the posterior mode ``[H]`` of each hospital's recalibration intercept ``a``, with the slope fixed at 1;
    NaN if it is not finite.
    """
    mean, held = (0.0, 0.0) if prior is None else (prior.mean, 1 / prior.variance)
    a, low, high = start.copy(), np.full(of.hospitals, -np.inf), np.full(of.hospitals, np.inf)
    converged = np.zeros(of.hospitals, dtype=bool)
    for _ in range(STEPS):
        p = expit(a[of.hospital] + of.margin)
        expected = of.rows * p
        slope = of.sums(of.events - expected) - held * (a - mean)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.clip(slope / (of.sums(expected * (1 - p)) + held), -LONGEST, LONGEST)
        low, high = np.where(slope > 0, a, low), np.where(slope < 0, a, high)
        converged |= np.abs(step) < STEP_TOLERANCE
        beyond = (a + step < low) | (a + step > high)
        with np.errstate(invalid="ignore"):
            a = np.where(beyond, (low + high) / 2, a + step)
        if converged.all():
            break
    return np.where(converged & (np.abs(a) <= STEEPEST), a, np.nan)


def _newton(of: Rows, a: Floats, b: Floats, mean: float, held_a: float, held_b: float) -> tuple[Floats, Floats]:
    """Return the next Newton step of each hospital's intercept ``a`` and slope ``b``, ``[H]`` each, shortened to at
    most ``LONGEST``.

    ``mean`` is the prior mean of ``a``, and ``held_a`` and ``held_b`` are the precisions of the two priors. The step is
    NaN if the hospital's rows do not determine the coefficients.
    """
    p = expit(a[of.hospital] + b[of.hospital] * of.margin)
    residual, weight = of.events - of.rows * p, of.rows * p * (1 - p)
    g_a, h_aa = of.sums(residual) - held_a * (a - mean), of.sums(weight) + held_a
    g_b, h_bb = of.sums(residual * of.margin) - held_b * (b - 1), of.sums(weight * np.square(of.margin)) + held_b
    h_ab = of.sums(weight * of.margin)
    determinant = h_aa * h_bb - np.square(h_ab)
    # If all rows have the same margin, the determinant is only rounding error.
    determinant = np.where(determinant > 1e-12 * h_aa * h_bb, determinant, np.nan)
    step_a, step_b = (h_bb * g_a - h_ab * g_b) / determinant, (h_aa * g_b - h_ab * g_a) / determinant
    with np.errstate(divide="ignore"):
        shrink = np.minimum(1.0, LONGEST / np.maximum(np.abs(step_a), np.abs(step_b)))
    return step_a * shrink, step_b * shrink


def _ascended(
    value: Callable[[Floats, Floats], Floats], a: Floats, b: Floats, step_a: Floats, step_b: Floats
) -> tuple[Floats, Floats]:
    """Return ``a`` and ``b`` after a step.

    Each hospital's step is halved until the hospital's ``value`` does not decrease. After :data:`HALVINGS` halvings,
    the step is left out.
    """
    before, size = value(a, b), np.ones_like(a)
    before -= ROUNDING * np.abs(before)
    for _ in range(HALVINGS):
        falls = ~(value(a + size * step_a, b + size * step_b) >= before)
        if not falls.any():
            break
        size[falls] /= 2
    else:
        size[falls] = 0
    known = size > 0
    return np.where(known, a + size * step_a, a), np.where(known, b + size * step_b, b)


def estimated_prior(of: Rows) -> Prior:
    """Return the prior of hospitals' intercepts under which the rows of all hospitals are most likely. Its standard
    deviation is one of :data:`TAUS`.

    Mean and variance are 0 if all rows have one class, or if no finite intercept fits all rows together.
    """
    rows, events = of.counts
    present = rows > 0
    if not 0 < events.sum() < rows.sum():
        return Prior(0.0, 0.0)
    together = of._replace(hospital=np.zeros_like(of.hospital), hospitals=1)
    common = float(mode(together, None, 0.0)[0][0])
    if np.isnan(common):
        return Prior(0.0, 0.0)
    best, chosen, a = -np.inf, Prior(common, 0.0), np.full(of.hospitals, common)
    for tau in TAUS:
        prior = Prior(common, tau**2)
        for _ in range(PASSES if tau else 0):
            a = mode(of, prior, 0.0, a)[0]
            prior = Prior(float(a[present].mean()), tau**2)
        a = mode(of, prior, 0.0, a)[0]
        marginal = _marginal(of, a, prior, present)
        if marginal > best:
            best, chosen = marginal, prior
    return chosen


def _marginal(of: Rows, a: Floats, prior: Prior, present: NDArray[np.bool_]) -> float:
    """Return the log marginal likelihood of all rows under a ``prior`` of hospitals' intercepts. Laplace's
    approximation is used at the posterior modes ``a [H]``.
    """
    likelihood = log_likelihood(of, a, np.ones(of.hospitals))
    if prior.variance:
        p = expit(a[of.hospital] + of.margin)
        information = of.sums(of.rows * p * (1 - p))
        likelihood -= np.square(a - prior.mean) / (2 * prior.variance)
        likelihood -= np.log1p(prior.variance * information) / 2
    return float(likelihood[present].sum())


def fit(of: Rows, method: Method, prior: Prior | None = None) -> Shifts:
    """Compute the recalibration ``logit p' = a + b logit p`` of each hospital by ``method``.

    - ``eb`` (empirical Bayes): ``b`` is 1, and ``a`` is the posterior mode under ``prior``.
    - ``intercept``: ``b`` is 1, and ``a`` is fitted by maximum likelihood.
    - ``logistic``: ``a`` and ``b`` are fitted by maximum likelihood.
    - ``closed``: the smallest of three models that is not rejected by a sequence of likelihood-ratio tests at 5 %: no
      change, ``a`` alone, or ``a`` and ``b``.

    At a hospital with one class, without rows, or without a finite solution, methods other than ``eb`` change nothing.
    If the fitted slope is at most 0, ``b`` is 1 and ``a`` is fitted again.
    """
    if method == "eb":
        if prior is None:
            raise ValueError("prior: None, but method 'eb' needs a prior; give estimated_prior(of)")
        return _checked(of, *mode(of, prior, 0.0), _no_reason(of))
    rows, events = of.counts
    reason = _no_reason(of)
    reason[(events == 0) | (events == rows)] = ONE_CLASS
    reason[rows == 0] = NO_ROWS
    some = reason == ""
    a, b = np.zeros(of.hospitals), np.ones(of.hospitals)
    of = _only(of, some)
    shifted = mode(of, None, 0.0)
    if method == "intercept":
        a[some], b[some] = (values[some] for values in shifted)
        return _checked(of, a, b, reason)
    steep = mode(of, None, None)
    reversed_ = some & (steep[1] <= 0)
    a[some], b[some] = (values[some] for values in steep)
    if method == "closed":
        none, ones = np.zeros(of.hospitals), np.ones(of.hospitals)
        full = log_likelihood(of, a, b)
        alike = some & (2 * (full - log_likelihood(of, none, ones)) < TWO_DF)
        straight = some & ~alike & (2 * (full - log_likelihood(of, shifted[0], ones)) < ONE_DF)
        a[alike], b[alike], reason[alike] = 0.0, 1.0, WITHIN_CHANCE
        a[straight], b[straight] = shifted[0][straight], 1.0
        reversed_ &= ~alike & ~straight
    a[reversed_], b[reversed_], reason[reversed_] = shifted[0][reversed_], 1.0, REVERSED
    return _checked(of, a, b, reason)


def _no_reason(of: Rows) -> Words:
    return np.full(of.hospitals, "", dtype=object)


def _only(of: Rows, some: NDArray[np.bool_]) -> Rows:
    """Keep only the rows of hospitals where ``some [H]`` is True; other hospitals remain without rows."""
    selected = some[of.hospital]
    return Rows(of.margin[selected], of.rows[selected], of.events[selected], of.hospital[selected], of.hospitals)


def _checked(of: Rows, a: Floats, b: Floats, reason: Words) -> Shifts:
    """Return the recalibration with intercepts ``a`` and slopes ``b``, or no change where one of them is not finite."""
    lost = ~(np.isfinite(a) & np.isfinite(b))
    reason[lost & (reason == "")] = SEPARATED
    return Shifts(np.where(lost, 0.0, a), np.where(lost, 1.0, b), reason)
