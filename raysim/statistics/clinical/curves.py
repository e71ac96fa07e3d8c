"""Curves of a clinical report by hospital: observed against predicted risk, and net benefit by threshold.

Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.core.arrays import Floats
from raysim.metrics.score_counts import ScoreCounts
from raysim.metrics.segments import sortable
from raysim.statistics.clinical.calibration import Bins, Groups, bin_of, edges, from_histogram
from raysim.statistics.clinical.thresholds import net_benefits
from raysim.statistics.intervals import share_interval

CURVE = np.arange(1, 100) / 100
"""The probability thresholds of the net benefit curve of all hospitals together: .01 to .99."""

HOSPITAL_CURVE = CURVE[4::5]
"""The probability thresholds of a single hospital's net benefit curve: every fifth of :data:`CURVE`, .05 to .95."""


class CalibrationBins(NamedTuple):
    """The calibration plot of each of ``H`` hospitals. Rows are divided by predicted risk into ``K`` bins of equal
    width between 0 and 1.

    All fields are ``[H, K]``: the numbers of ``rows`` and ``events``, the mean ``predicted`` risk, and the ``observed``
    share of events with its 95 % interval ``low`` to ``high``. In empty bins all except the numbers of rows and events
    are NaN.
    """

    rows: Floats
    events: Floats
    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats


def calibration_bins(counts: ScoreCounts, bins: int) -> CalibrationBins:
    """Compute the calibration plot of each hospital with ``bins`` bins. All figures of a hospital are NaN if one
    of its predictions is NaN.
    """
    sums = binned(counts, bins)
    rows = np.where(sums.rows > 0, sums.rows, np.nan)
    limits = share_interval(sums.events, sums.rows)
    return CalibrationBins(sums.rows, sums.events, sums.predicted / rows, sums.events / rows, *limits)


class NetBenefits(NamedTuple):
    """Net benefit at each of ``H`` hospitals and ``T`` thresholds, ``[H, T]`` each. It is NaN at a hospital without
    rows or with a prediction that is NaN.

    ``value`` is the net benefit of acting on the model, ``low`` to ``high`` its 95 % interval, and ``everyone`` the net
    benefit of acting on every patient.
    """

    value: Floats
    low: Floats
    high: Floats
    everyone: Floats


def net_benefit_curve(counts: ScoreCounts, thresholds: Floats) -> NetBenefits:
    """Compute each hospital's net benefit at each of ``thresholds [T]``. Thresholds are moved to the nearest edges of
    the bins in which scores were counted.
    """
    events, rows = unless_broken(counts, counts.events), unless_broken(counts, counts.rows)
    hits, alarms = (np.stack(each, axis=1) for each in zip(*predicted_at(counts, thresholds), strict=True))
    return NetBenefits(*net_benefits(hits, alarms, events[:, None], rows[:, None], thresholds))


def predicted_at(counts: ScoreCounts, thresholds: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield for each threshold the numbers of events and of other rows that are classified as positive at each
    hospital, ``[H]`` each.

    Thresholds are moved to the nearest edges of the bins in which scores were counted.
    """
    for first in _first_bins(thresholds):
        predicted = counts.bins >= first
        yield counts.sums(counts.positives * predicted), counts.sums(counts.negatives * predicted)


def probabilities(counts: ScoreCounts) -> Floats:
    """Return the predicted risk at the middle of each of the ``B`` bins of ``counts``, ``[B]``; 0 for the bin of
    predictions that are NaN.
    """
    return np.asarray(np.nan_to_num(expit(_middles(counts).logit)))


def expected_events(counts: ScoreCounts) -> Floats:
    """Return the expected number of events at each hospital, ``[H]``: the sum of its predicted risks, NaN if one of its
    predictions is NaN.
    """
    return unless_broken(counts, counts.sums((counts.positives + counts.negatives) * probabilities(counts)))


def _middles(counts: ScoreCounts) -> Groups:
    return from_histogram(counts.histogram)


def binned(counts: ScoreCounts, bins: int) -> Bins:
    """Return for each hospital and bin the number of rows, the sum of predictions and the number of events, ``[H,
    bins]`` each.
    """
    p, hospitals = probabilities(counts), len(counts.filled)
    cell = np.repeat(np.arange(hospitals), counts.filled) * bins + bin_of(p, bins)
    rows = (counts.positives + counts.negatives).astype(np.float64)
    parts = (
        np.bincount(cell, part, hospitals * bins).reshape(hospitals, bins)
        for part in (rows, rows * p, counts.positives)
    )
    return Bins(*(np.where(counts.broken[:, None], np.nan, part) for part in parts))


def unless_broken(counts: ScoreCounts, values: NDArray[Any]) -> Floats:
    """Return ``values [H]``, one per hospital, with NaN for hospitals at which a prediction is NaN."""
    return np.where(counts.broken, np.nan, values).astype(np.float64)


def _first_bins(thresholds: Floats) -> Floats:
    """Return for each threshold the lowest bin whose rows are classified as positive."""
    logits = np.log(thresholds) - np.log1p(-thresholds)
    inside = (sortable(logits.astype(np.float32)) >> 16).astype(np.uint16)
    low, high = edges(inside)
    return np.where(logits - low > high - logits, inside + 1.0, inside)
