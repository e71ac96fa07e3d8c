"""The difference of two strategies at the same hospitals, with an interval for other hospitals, patients and seeds.

The default interval is for hospitals like these (``population``): it answers which strategy a federation should use.
The interval for exactly these hospitals (``fixed``) treats hospitals as given. Differences between hospitals include
differences between patients, so the variance is the larger of the two and not their sum. Seeds are few, and their
variance is uncertain: each part of an interval has the t quantile of its own degrees of freedom, so that it covers
whichever part is larger.

Sources: the cluster-robust variance HC2 with its degrees of freedom, Bell and McCaffrey 2002; the interval from
variances of unequal certainty, Banerjee 1961. Definitions: ``docs/statistics.md``.
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
"""Default margin of equivalence: smaller differences of AUROC are irrelevant."""

FEW_HOSPITALS = 10
"""Number of hospitals below which there is no bootstrap, decile or slope, and degrees of freedom are reported."""

ENOUGH_SEEDS = 5
"""Number of seeds below which the uncertain variance of seeds causes most of an interval's width."""

SMALLEST_P = 1e-12
"""Smaller p-values are raised to this value."""

BISECTIONS = 50


class Limits(NamedTuple):
    """The limits of an interval; NaN if there is none."""

    low: float
    high: float

    @property
    def shows(self) -> bool:
        """Whether a difference is demonstrated: the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Paired:
    """A difference of AUROC, ``first - second``, over the ``hospitals`` and ``seeds`` with both AUROCs.

    - ``difference``: the mean weighted by test rows.
    - ``hospital_variance`` (V_h): the variance due to hospitals, including their patients and their part of training
      noise; NaN for one hospital.
    - ``patient_variance`` (V_p): the variance due to patients alone; NaN if it was not given.
    - ``seed_variance`` (V_s): the variance due to training seeds. With one seed, V_s is 0, and the interval does not
      cover differences between seeds.
    - ``df``: the degrees of freedom of V_h, at least 1; NaN for one hospital. V_s has ``seeds - 1`` degrees of freedom.
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
        """Whether the two models are equal: all differences are 0, and nothing is tested."""
        return self.hospitals > 0 and self.difference == 0 and self._largest() + self.seed_variance == 0

    @property
    def of_training(self) -> bool:
        """Whether the difference allows claims about strategies: with one seed, the effect of the seed is unknown."""
        return self.seeds > 1

    @property
    def variance(self) -> float:
        """The variance for hospitals like these: ``max(V_h, V_p) + V_s``; NaN for one hospital."""
        return self._largest() + self.seed_variance if self.hospitals > 1 else NAN

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference for hospitals like these; 1 for equal models, NaN for one hospital."""
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
        """The interval for hospitals like these; NaN for one hospital, or if nothing varies."""
        if self.equal and self.hospitals > 1:
            return Limits(0.0, 0.0)
        reach = self._reach(alpha) if self.variance > 0 else NAN
        return Limits(self.difference - reach, self.difference + reach)

    def fixed(self) -> Limits:
        """The interval for exactly these hospitals with other patients and seeds; NaN if V_p was not given."""
        if self.equal:
            return Limits(0.0, 0.0)
        reach = math.sqrt(Z**2 * self.patient_variance + self._seed_reach(ALPHA / 2))
        return Limits(self.difference - reach, self.difference + reach)

    @property
    def visible(self) -> float:
        """The smallest difference that 80 % of such comparisons would demonstrate; 0 for equal models, NaN for one
        hospital."""
        if self.equal and self.hospitals > 1:
            return 0.0
        return self._reach(ALPHA) + self._reach(2 * (1 - POWER)) if self.variance > 0 else NAN

    def notes(self) -> list[str]:
        """Caveats for readers of the interval for hospitals like these."""
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
        """Return half the width of the interval for hospitals like these at a level of ``1 - alpha``."""
        hospitals = float(stdtrit(self.df, alpha / 2)) ** 2 * self._largest()
        return math.sqrt(hospitals + self._seed_reach(alpha / 2))

    def _seed_reach(self, tail: float) -> float:
        return float(stdtrit(self.seeds - 1, tail)) ** 2 * self.seed_variance if self.seeds > 1 else 0.0

    def _largest(self) -> float:
        variances = (self.hospital_variance, self.patient_variance)
        return max((variance for variance in variances if not math.isnan(variance)), default=0.0)


def paired(first: ArrayLike, second: ArrayLike, rows: ArrayLike, *, patients: ArrayLike | None = None) -> Paired:
    """Compute the difference of two models' AUROC, each ``[S, H]``, on the same numbers of test rows, ``rows [S, H]``.

    A hospital and seed with a NaN, or without rows, is left out. ``patients [H]`` are the values of
    :func:`raysim.statistics.discrimination.sketches.patient_part`. Every number is NaN if no hospital has both AUROCs.
    Raises ``ValueError`` for shapes that do not match.
    """
    a, b, r = (np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (first, second, rows))
    if not a.shape == b.shape == r.shape:
        raise ValueError(f"first, second, rows: shapes {a.shape}, {b.shape}, {r.shape} are not one [S, H]")
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


def equivalent(interval: Limits, within: float = EQUIVALENT) -> bool:
    """Return whether the interval excludes differences of ``within`` or more; this is stricter than containing 0."""
    return -within < interval.low and interval.high < within
