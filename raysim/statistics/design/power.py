"""Power of a planned comparison to detect a difference between methods, a spread between hospitals, or a slope on
hospital size.

Federations are simulated under a normal model and tested like real ones. The model and its limits: ``docs/design.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA
from raysim.core.streams import stream
from raysim.metrics.measures import hanley_mcneil
from raysim.statistics.differences.paired import paired
from raysim.statistics.meta_analysis.gain_slope import gain_slope

COMMON_CURVE = 0.75
"""The variance of an AUROC of normally distributed scores, divided by Hanley and McNeil's variance."""
SHARE_OF_SEED = 0.5
"""A training seed has one effect on all hospitals together and a further effect on each hospital. This is the standard
deviation of the further effects, divided by that of the common effect."""
DRAWS = 4000
SLOPES = 400
"""Number of federations simulated for the power to detect the slope on hospital size."""


@dataclass(frozen=True, eq=False)
class Sites:
    """The ``H`` planned hospitals and the assumptions about them.

    - ``events [H]`` and ``non_events [H]``: the numbers of test rows of each class, at least 1.
    - ``auroc``: the true AUROC of both methods. ``correlation``: the correlation of the sampling errors of two methods'
      AUROCs on the same rows.
    - ``hospital_sd`` and ``seed_sd``: the standard deviations over hospitals, and over training seeds, of the true
      difference between two methods.
    """

    events: Floats
    non_events: Floats
    auroc: float
    correlation: float
    hospital_sd: float
    seed_sd: float

    @property
    def rows(self) -> Floats:
        """The number of test rows of each hospital, ``[H]``."""
        return self.events + self.non_events

    @property
    def variance(self) -> Floats:
        """The variance of the difference of two methods' AUROCs at each hospital, ``[H]``, due to the sample of
        patients alone.
        """
        one: Floats = hanley_mcneil(self.auroc, self.events, self.non_events)
        return 2.0 * (1.0 - self.correlation) * one


@dataclass(frozen=True, eq=False)
class Draws:
    """Measured differences of two methods in ``R`` simulated federations, in which their true difference is 0.

    - ``differences [R]``: the mean difference over hospitals, weighted by rows.
    - ``reaches [R]``: half the width of the interval of each difference.
    """

    differences: Floats
    reaches: Floats

    def power(self, difference: float) -> float:
        """Return the share of federations in which the interval excludes 0 if the true difference is ``difference``."""
        return float((np.abs(self.differences + difference) > self.reaches).mean())

    def visible(self, share: float) -> float:
        """Return the smallest true difference that is demonstrated in a ``share`` of federations."""
        # The interval of a sample is above 0 if the true difference exceeds this bound.
        return float(np.quantile(self.reaches - self.differences, share))

    @property
    def half_width(self) -> float:
        """The median half-width of the intervals of the difference."""
        return float(np.median(self.reaches))


def differences(sites: Sites, seeds: int, draws: int = DRAWS) -> Draws:
    """Simulate the comparison of two methods that are equally good on average, with ``seeds`` training seeds, in
    ``draws`` federations.
    """
    rng, hospitals = stream(0, "design of differences"), len(sites.rows)
    rows = np.broadcast_to(sites.rows, (seeds, hospitals))
    patients = sites.rows**2 * seeds**2 * sites.variance  # summed over seeds, which test the same patients
    mean, reach = np.empty(draws), np.empty(draws)
    for k in range(draws):
        of_hospitals = rng.standard_normal(hospitals) * np.sqrt(sites.variance + sites.hospital_sd**2)
        of_seeds = rng.standard_normal((seeds, 1)) * sites.seed_sd
        single = rng.standard_normal((seeds, hospitals)) * (SHARE_OF_SEED * sites.seed_sd)
        found = paired(of_hospitals + of_seeds + single, np.zeros_like(single), rows, patients=patients)
        interval = found.population()
        mean[k], reach[k] = found.difference, (interval.high - interval.low) / 2
    return Draws(mean, reach)


def spread_power(sites: Sites, spread: float, draws: int = DRAWS) -> float:
    """Return the share of ``draws`` simulated federations in which a difference between hospitals is demonstrated.
    Hospitals' true AUROCs have the standard deviation ``spread``.
    """
    variance = COMMON_CURVE * np.asarray(hanley_mcneil(sites.auroc, sites.events, sites.non_events))
    rng = stream(0, "design of spread")
    y = rng.standard_normal((draws, len(variance))) * np.sqrt(variance + spread**2)
    w = 1.0 / variance
    q = ((y - (y @ w / w.sum())[:, None]) ** 2) @ w
    # A comparison claims a difference if its interval of the spread, which has two sides, excludes 0.
    return float((q > chdtri(len(variance) - 1, ALPHA / 2)).mean())


def slope_power(sites: Sites, halving: float, draws: int = SLOPES) -> float:
    """Return the share of ``draws`` simulated federations in which a slope of hospitals' gains in AUROC on the
    logarithm of their size is demonstrated.

    ``halving`` is the increase of the true gain if a hospital is half as large. The share is NaN for fewer than ten
    hospitals, or if all have nearly the same size.
    """
    rng, x = stream(0, "design of slope"), np.log(sites.rows)
    true = -halving / np.log(2.0) * (x - x.mean())
    noise = rng.standard_normal((draws, len(x))) * np.sqrt(sites.variance + sites.hospital_sd**2)
    found = [gain_slope(true + each, sites.variance, sites.rows) for each in noise]
    return float("nan") if np.isnan(found[0].slope) else float(np.mean([one.demonstrated for one in found]))
