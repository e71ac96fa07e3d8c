"""The difference of two strategies at the same hospitals, with two intervals.

The default interval (``population``) is for a population of similar hospitals; the other (``fixed``) is for exactly
these hospitals. The variance between hospitals already includes that between patients. Therefore the larger of the two
variances is used, not their sum. The variances due to hospitals and to seeds are each multiplied by the square of the t
quantile of their own degrees of freedom.

Sources: the cluster-robust variance HC2 with its degrees of freedom, R. M. Bell and D. F. McCaffrey, *Bias Reduction in
Standard Errors for Linear Regression with Multi-Stage Samples*, 2002; the interval from variances of unequal certainty,
S. K. Banerjee, *On Confidence Interval for Two-Means Problem*, 1961. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.levels import ALPHA, POWER, Z
from raysim.statistics.intervals import stdtrit

NAN = float("nan")

EQUIVALENT = 0.01
"""Margin of equivalence: a difference in AUROC that is smaller than this is irrelevant."""

FEW_HOSPITALS = 10
"""Smallest number of hospitals for which reports show a worst decile and a slope on hospital size."""

ENOUGH_SEEDS = 5
"""With fewer training seeds, a warning says that the variation between seeds is uncertain."""

SMALLEST_P = 1e-12
"""The smallest p-value that is returned."""

BISECTIONS = 50


class Limits(NamedTuple):
    """The limits of an interval; both are NaN if there is no interval."""

    low: float
    high: float

    @property
    def shows(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Paired:
    """The difference in AUROC of two models, ``first - second``, over the ``hospitals`` hospitals and ``seeds`` seeds
    at which both AUROCs are defined.

    - ``difference``: the mean over hospitals and seeds, weighted by test rows.
    - ``hospital_variance`` (V_h): the variance of this mean due to the choice of hospitals. It includes the variance
      due to their patients. It is NaN for one hospital.
    - ``patient_variance`` (V_p): the variance due to patients alone; NaN if it was not given.
    - ``seed_variance`` (V_s): the variance due to training seeds. With one seed, V_s is 0.
    - ``df``: the degrees of freedom of V_h, at least 1; NaN for one hospital.
    """

    difference: float
    hospitals: int
    seeds: int
    hospital_variance: float
    patient_variance: float
    seed_variance: float
    df: float

    @property
    def equal(self) -> bool:
        """Whether the two models are equal, with the same AUROC at every hospital and seed."""
        return self.hospitals > 0 and self.difference == 0 and self._largest() + self.seed_variance == 0

    @property
    def of_training(self) -> bool:
        """Whether the difference allows claims about strategies, not only about trained models; this needs several
        seeds.
        """
        return self.seeds > 1

    @property
    def variance(self) -> float:
        """The variance of the difference over similar hospitals, patients and seeds; NaN for one hospital."""
        return self._largest() + self.seed_variance if self.hospitals > 1 else NAN

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference in a population of similar hospitals. It is NaN for one hospital. With
        more hospitals, it is 1 if the difference is 0, and NaN if only the variance is 0.
        """
        if self.hospitals > 1 and self.difference == 0:
            return 1.0
        if not self.variance > 0:
            return NAN
        low, high = math.log(SMALLEST_P), 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._reach(math.exp(middle)) < abs(self.difference) else (middle, high)
        return math.exp(high)

    def population(self, alpha: float = ALPHA) -> Limits:
        """Return the interval of the difference for a population of similar hospitals, at level ``1 - alpha``.

        It is NaN for one hospital. Otherwise it is 0 to 0 for equal models, and NaN for other models if the variance is
        0.
        """
        if self.equal and self.hospitals > 1:
            return Limits(0.0, 0.0)
        reach = self._reach(alpha) if self.variance > 0 else NAN
        return Limits(self.difference - reach, self.difference + reach)

    def fixed(self) -> Limits:
        """Return the 95 % interval of the difference at exactly these hospitals. It is 0 to 0 for equal models,
        otherwise NaN if the variance due to patients was not given.
        """
        if self.equal:
            return Limits(0.0, 0.0)
        reach = math.sqrt(Z**2 * self.patient_variance + self._seed_reach(ALPHA / 2))
        return Limits(self.difference - reach, self.difference + reach)

    def visible(self, alpha: float = ALPHA) -> float:
        """Return the smallest true difference that an interval at level ``1 - alpha`` would demonstrate in 80 % of
        comparisons with the same variance. It is NaN for one hospital. Otherwise it is 0 for equal models, and NaN for
        other models if the variance is 0.
        """
        if self.equal and self.hospitals > 1:
            return 0.0
        return self._reach(alpha) + self._reach(2 * (1 - POWER)) if self.variance > 0 else NAN

    def notes(self) -> list[str]:
        """Return warnings about the interval of :meth:`population`."""
        notes = []
        if self.hospitals == 1:
            notes.append("one hospital: nothing is known about other hospitals")
        elif self.hospitals < FEW_HOSPITALS:
            degrees = math.floor(10 * self.df) / 10  # rounding up could contradict the sentence: 1.99 is less than 2
            notes.append(f"{self.hospitals} hospitals, {degrees:.1f} degrees of freedom")
        if self.df < 2:
            notes.append("fewer than 2 degrees of freedom: almost nothing can be demonstrated")
        if self.seeds == 1:
            notes.append("one training seed: intervals apply to the trained models, not to the methods")
        elif self.seeds < ENOUGH_SEEDS:
            notes.append(
                f"{self.seeds} training seeds: variation between seeds is uncertain; more seeds narrow the intervals"
            )
        return notes

    def _reach(self, alpha: float) -> float:
        hospitals = float(stdtrit(self.df, alpha / 2)) ** 2 * self._largest()
        return math.sqrt(hospitals + self._seed_reach(alpha / 2))

    def _seed_reach(self, tail: float) -> float:
        return float(stdtrit(self.seeds - 1, tail)) ** 2 * self.seed_variance if self.seeds > 1 else 0.0

    def _largest(self) -> float:
        variances = (self.hospital_variance, self.patient_variance)
        return max((variance for variance in variances if not math.isnan(variance)), default=0.0)


def paired(first: ArrayLike, second: ArrayLike, rows: ArrayLike, *, patients: ArrayLike | None = None) -> Paired:
    """Compute the mean difference in AUROC of two models, with its variances, over ``H`` hospitals and ``S`` training
    seeds.

    ``first`` and ``second`` are the models' AUROCs, and ``rows`` the numbers of test rows, ``[S, H]`` each. A hospital
    is left out in a seed in which it has no rows or one of its AUROCs is NaN. ``patients [H]`` are variances due to
    patients from :func:`raysim.statistics.discrimination.sketches.patient_part`. If no hospital has both AUROCs,
    ``hospitals`` and ``seeds`` are 0, and all other numbers NaN. Raises ``ValueError`` for shapes that do not match.
    """
    a, b, r = (np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (first, second, rows))
    if not a.shape == b.shape == r.shape:
        raise ValueError(f"first, second, rows: shapes {a.shape}, {b.shape}, {r.shape} must all be the same [S, H]")
    d = a - b
    defined = np.isfinite(d) & (r > 0)
    d, r = np.where(defined, d, 0.0), np.where(defined, r, 0.0)
    hospitals, seeds = int(defined.any(axis=0).sum()), int(defined.any(axis=1).sum())
    total = r.sum()
    if total == 0:
        return Paired(NAN, 0, 0, NAN, NAN, NAN, NAN)
    theta = float((r * d).sum() / total)
    parts = r * np.where(defined, d - theta, 0.0) / total
    if not d.any():
        parts[:] = 0.0
    share = r.sum(axis=0) / total
    by_hospital = parts.sum(axis=0) / np.sqrt(np.where(share < 1, 1 - share, np.nan))
    by_seed = parts.sum(axis=1) * (np.sqrt(seeds / (seeds - 1)) if seeds > 1 else 0.0)
    many = hospitals > 1
    return Paired(
        theta,
        hospitals,
        seeds,
        float(by_hospital @ by_hospital) if many else NAN,
        NAN if patients is None else float(np.asarray(patients)[defined.any(axis=0)].sum() / total**2),
        float(by_seed @ by_seed),
        max(1.0, float(1.0 / (share @ share) - 1.0)) if many else NAN,
    )


def equivalent(interval: Limits) -> bool:
    """Return whether the ``interval`` of a difference excludes all differences of at least :data:`EQUIVALENT`, in both
    directions.
    """
    return interval.low > -EQUIVALENT and interval.high < EQUIVALENT
