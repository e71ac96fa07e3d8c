"""How well each hospital's risks are calibrated in the large, and at how many hospitals they are shown to be off.

A hospital's events are tested exactly against the risks that were predicted for its rows: their number is
Poisson-binomial, the sum of independent events of unequal chances (Hong 2013). Names and counts are corrected for being
many (:mod:`raysim.statistics.several`): among many hospitals with perfect risks, some have an interval of observed over
expected events that excludes 1. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.curves import expected_events, probabilities, unless_broken
from raysim.statistics.intervals import observed_over_expected
from raysim.statistics.levels import ALPHA
from raysim.statistics.over_seeds import mean_of, over_seeds
from raysim.statistics.several import Bound, bound, holm

Floats = NDArray[np.float64]
State = Literal["off", "within", "open", ""]

LARGE = 5000
"""Rows above which a sum of events is taken to be normal."""

TOLERATED = (0.8, 1.25)
"""Observed over expected events that lie within these are right enough."""

AT_A_TIME = 256
"""Bins whose characteristic functions are held at a time."""


class HospitalCalibration(NamedTuple):
    """Calibration in the large of ``H`` hospitals under one model, the mean over seeds where there are several.

    - ``observed`` and ``expected`` events among ``rows``, ``[H]``; NaN where a prediction is not a number.
    - ``ratio``: observed over expected, ``low`` to ``high`` its 95 % interval, ``[H]``; NaN where none is expected.
    - ``p``: exact, two-sided, of the events under the predicted risks, ``[H]``; NaN without rows. Of several seeds the
      largest.
    - ``state [H]``: ``off``: shown, by Holm's procedure over hospitals. ``within``: the interval lies in
      :data:`TOLERATED`. ``open``: neither. Empty where nothing is defined.
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
        """At how many hospitals risks are shown to be off, and at which."""
        return bound(self.p)

    def share(self, state: State) -> float:
        """The share of hospitals with a state that are in this one; NaN where none has a state."""
        having = sum(each != "" for each in self.state)
        return self.state.count(state) / having if having else float("nan")


def calibration_by_hospital(counts: ScoreCounts) -> HospitalCalibration:
    """The calibration of each hospital of ``counts``, which are of one model and seed."""
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
    """The calibration of the same hospitals over training ``seeds``, of which there is at least one.

    Means over the seeds that define a figure. A hospital's p is the largest of its seeds', so that it is off only where
    every seed's model is.
    """
    if len(seeds) == 1:
        return seeds[0]
    each = {name: np.array([getattr(seed, name) for seed in seeds]) for name in HospitalCalibration._fields[:-1]}
    observed, expected, rows = (mean_of(each[name], ~np.isnan(each[name])) for name in ("observed", "expected", "rows"))
    ratio = over_seeds(each["ratio"], each["low"], each["high"], within=(0.0, np.inf))
    p = np.fmax.reduce(each["p"])  # a seed without one has no say
    return _judged(observed, expected, rows, ratio.value, ratio.low, ratio.high, p)


def events_p(observed: float, risks: ArrayLike, rows: ArrayLike) -> float:
    """The two-sided p-value of ``observed`` events among ``rows [B]`` with ``risks [B]`` each.

    Twice the smaller of both tails, at most 1. NaN without rows, and where ``observed`` or a risk is NaN.
    """
    below, above = events_tails(observed, risks, rows)
    return float(min(1.0, 2.0 * min(below, above))) if below == below else below


def events_tails(observed: float, risks: ArrayLike, rows: ArrayLike) -> tuple[float, float]:
    """The chance of at most ``observed`` events, and of at least so many, as in :func:`events_p`.

    Exact up to :data:`LARGE` rows, by the characteristic function; normal with a continuity correction above.
    """
    p, n = np.asarray(risks, dtype=np.float64), np.asarray(rows, dtype=np.int64)
    total = int(n.sum())
    if total == 0 or np.isnan(observed) or np.isnan(p).any():
        return float("nan"), float("nan")
    if total > LARGE:
        mean, deviation = float(n @ p), max(float(np.sqrt(n @ (p * (1 - p)))), float(np.finfo(float).tiny))
        below, above = ndtr((observed + 0.5 - mean) / deviation), ndtr((mean - observed + 0.5) / deviation)
        return float(below), float(above)
    chances = _events(p, n, total)
    at = round(observed)
    return float(min(chances[: at + 1].sum(), 1.0)), float(min(chances[at:].sum(), 1.0))


def _events(risks: Floats, rows: NDArray[np.int64], total: int) -> Floats:
    """The chance of each number of events, ``[total + 1]``."""
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
