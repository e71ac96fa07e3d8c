"""Calibration in the large at each hospital, and the number of hospitals at which risks are demonstrably wrong.

Each hospital's number of events is tested against the predicted risks of its rows. If the risks are right, this number
is Poisson-binomial (Y. Hong: *On Computing the Distribution Function for the Poisson Binomial Distribution*, 2013). The
number and the list of hospitals with wrong risks are corrected for multiplicity (:mod:`raysim.statistics.several`).
Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaincc, ndtr

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA
from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.curves import expected_events, probabilities, unless_broken
from raysim.statistics.intervals import observed_over_expected
from raysim.statistics.over_seeds import mean_of, over_seeds
from raysim.statistics.several import Bound, bound, holm

State = Literal["off", "within", "open", ""]

LARGE = 5000
"""Largest number of rows for which the distribution of the number of events is computed exactly."""

NORMAL = 1e-4
"""With an absolute skewness below this, the number of events is treated as normally distributed."""

TOLERATED = (0.8, 1.25)
"""A hospital that is not ``off`` is ``within`` if the interval of its ratio of observed to expected events lies in this
range."""

AT_A_TIME = 256
"""The number of groups of rows whose characteristic functions are in memory at a time."""


class HospitalCalibration(NamedTuple):
    """Calibration in the large of ``H`` hospitals under one model; for several training seeds, see
    :func:`calibration_over_seeds`.

    - ``observed [H]`` and ``expected [H]``: the observed and expected numbers of events among ``rows [H]``; all three
      are NaN if a prediction is NaN.
    - ``ratio [H]``: observed over expected events, with 95 % interval ``low [H]`` to ``high [H]``; NaN if no event is
      expected or a prediction is NaN.
    - ``p [H]``: the two-sided p-value of the hypothesis that predicted risks are right; NaN without rows or if a
      prediction is NaN.
    - ``state [H]``: ``off`` if risks are demonstrably wrong, by Holm's procedure over hospitals; otherwise ``within``
      if the interval lies in :data:`TOLERATED`; otherwise ``open``. It is empty where ``p`` is NaN.
    """

    observed: Floats
    expected: Floats
    rows: Floats
    ratio: Floats
    low: Floats
    high: Floats
    p: Floats
    state: tuple[State, ...]

    @property
    def bound(self) -> Bound:
        """A lower bound on the number of hospitals whose risks are demonstrably wrong."""
        return bound(self.p)

    def share(self, state: State) -> float:
        """Return the share of hospitals in ``state``, among those whose state is not empty; NaN if there are none."""
        having = sum(each != "" for each in self.state)
        return self.state.count(state) / having if having else float("nan")


def calibration_by_hospital(counts: ScoreCounts) -> HospitalCalibration:
    """Compute the calibration in the large of each hospital from ``counts`` of its scores under one trained model."""
    rows, observed = unless_broken(counts, counts.rows), unless_broken(counts, counts.events)
    expected = expected_events(counts)
    ratio = observed / np.where(expected > 0, expected, np.nan)
    low, high = observed_over_expected(observed, expected, rows)
    p, rows_of_bin, offsets = probabilities(counts), counts.positives + counts.negatives, counts.offsets
    tested = [
        events_p(observed[h], p[offsets[h] : offsets[h + 1]], rows_of_bin[offsets[h] : offsets[h + 1]])
        for h in range(len(rows))
    ]
    return _judged(observed, expected, rows, ratio, low, high, np.array(tested, dtype=np.float64))


def calibration_over_seeds(seeds: Sequence[HospitalCalibration]) -> HospitalCalibration:
    """Combine calibrations of the same hospitals: ``seeds`` has one for each training seed, and must not be empty.

    Numbers of rows and events, and ratios, are means over the seeds in which they are defined. The limits of ratios are
    those of :func:`~raysim.statistics.over_seeds.over_seeds`. A hospital's p-value is the largest over seeds. States
    follow from these limits and p-values.
    """
    if len(seeds) == 1:
        return seeds[0]
    each = {name: np.array([getattr(seed, name) for seed in seeds]) for name in HospitalCalibration._fields[:-1]}
    observed, expected, rows = (mean_of(each[name], ~np.isnan(each[name])) for name in ("observed", "expected", "rows"))
    ratio = over_seeds(each["ratio"], each["low"], each["high"], within=(0.0, np.inf), ratio=True)
    p = np.fmax.reduce(each["p"])  # seeds without a p-value are ignored
    return _judged(observed, expected, rows, ratio.value, ratio.low, ratio.high, p)


def events_p(observed: float, risks: ArrayLike, rows: ArrayLike) -> float:
    """Return the two-sided p-value of ``observed`` events if predicted risks are right.

    ``rows [B]`` are the sizes of ``B`` groups of rows, and ``risks [B]`` the groups' predicted risks. The p-value is
    twice the smaller of the two tail probabilities, at most 1. It is NaN without rows, or if ``observed`` or a risk is
    NaN.
    """
    below, above = events_tails(observed, risks, rows)
    return float(min(1.0, 2.0 * min(below, above))) if below == below else below


def events_tails(observed: float, risks: ArrayLike, rows: ArrayLike) -> tuple[float, float]:
    """Return the probabilities of at most, and of at least, ``observed`` events; arguments as for :func:`events_p`."""
    p, n = np.asarray(risks, dtype=np.float64), np.asarray(rows, dtype=np.int64)
    total = int(n.sum())
    if total == 0 or np.isnan(observed) or np.isnan(p).any():
        return float("nan"), float("nan")
    if total > LARGE:
        variances = p * (1 - p)
        mean, deviation = float(n @ p), max(float(np.sqrt(n @ variances)), 1e-99)
        skewness = float(n @ (variances * (1 - 2 * p))) / deviation**3
        return (
            _below((observed + 0.5 - mean) / deviation, skewness),
            _below((mean - observed + 0.5) / deviation, -skewness),
        )
    chances = _events(p, n, total)
    at = round(observed)
    return float(min(chances[: at + 1].sum(), 1.0)), float(min(chances[at:].sum(), 1.0))


def _below(z: float, skewness: float) -> float:
    """Return the probability below ``z`` of a gamma distribution with mean 0, variance 1 and this ``skewness``.

    With rare events, the number of events is skewed; a test by the normal distribution would reject right risks too
    often.
    """
    if abs(skewness) < NORMAL:
        return float(ndtr(z))
    shape = 4 / skewness**2
    place = max(shape + np.sign(skewness) * z * np.sqrt(shape), 0.0)
    return float(gammainc(shape, place) if skewness > 0 else gammaincc(shape, place))


def _events(risks: Floats, rows: NDArray[np.int64], total: int) -> Floats:
    """Return the probabilities ``[total + 1]`` of 0 to ``total`` events, where ``total`` is the number of all rows."""
    frequency = np.exp(2j * np.pi * np.arange((total + 1) // 2 + 1) / (total + 1))
    size, turn = np.ones(len(frequency)), np.zeros(len(frequency))
    for start in range(0, len(risks), AT_A_TIME):
        p, n = risks[start : start + AT_A_TIME], rows[start : start + AT_A_TIME]
        factor = 1 - p[:, None] + np.outer(p, frequency)
        size *= (np.abs(factor) ** n[:, None]).prod(axis=0)
        turn += n @ np.angle(factor)
    chances = np.fft.irfft(size * np.exp(-1j * turn), total + 1)
    return np.clip(chances, 0.0, 1.0)


def _judged(
    observed: Floats, expected: Floats, rows: Floats, ratio: Floats, low: Floats, high: Floats, p: Floats
) -> HospitalCalibration:
    with np.errstate(invalid="ignore"):
        off, within = holm(p) <= ALPHA, (low >= TOLERATED[0]) & (high <= TOLERATED[1])
    states: tuple[State, ...] = tuple(
        "" if np.isnan(tested) else "off" if far else "within" if near else "open"
        for tested, far, near in zip(p, off, within, strict=True)
    )
    return HospitalCalibration(observed, expected, rows, ratio, low, high, p, states)
