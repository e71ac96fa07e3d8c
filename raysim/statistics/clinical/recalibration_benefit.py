"""Estimate in advance the effect of recalibration, and whether hospitals have enough labelled rows for it.

Validation rows are split in two at random within each hospital. The recalibration is fitted on each half and evaluated
on the other half. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.core.arrays import Floats, Ints
from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.calibration import from_histogram
from raysim.statistics.clinical.recalibration import Method, Rows, estimated_prior, fit, grouped, log_likelihood

ENOUGH_ROWS, ENOUGH_IN_ALL = 3, 60
"""Recalibration is recommended only if the median hospital has at least ``ENOUGH_ROWS`` validation rows of its rarer
class, or all hospitals together have at least ``ENOUGH_IN_ALL``."""


@dataclass(frozen=True)
class Benefit:
    """The effect of recalibration on rows that were not used to fit it.

    - ``log_loss``: the change of the mean log loss over all rows; below 0, risks get better.
    - ``off`` and ``off_after``: the mean of ``|ln O/E|`` over hospitals with events, before and after recalibration; O
      is the observed and E the expected number of events.
    - ``hospitals``: the number of hospitals with events.
    - ``labelled``: the number of labelled rows per fit at the median hospital.

    If no hospital could be evaluated, ``log_loss``, ``off`` and ``off_after`` are NaN, and ``hospitals`` and
    ``labelled`` are 0.
    """

    log_loss: float
    off: float
    off_after: float
    hospitals: int
    labelled: float


def from_counts(counts: ScoreCounts) -> Rows:
    """Convert histograms of scores to groups of rows: each bin is a group, with the logit of :func:`from_histogram`."""
    groups = from_histogram(counts.histogram)
    hospital = np.repeat(np.arange(len(counts.filled)), counts.filled)
    return grouped(groups.logit, groups.rows, groups.events, hospital, len(counts.filled))


def benefit(counts: ScoreCounts, method: Method, rng: np.random.Generator) -> Benefit:
    """Estimate the effect of recalibration by ``method``, from ``counts`` of the validation rows' scores under the
    model.
    """
    halves = _halves(from_counts(counts), rng)
    before, after, rows, off, labelled = 0.0, 0.0, 0.0, [], []
    for fitted, judged in (halves, halves[::-1]):
        shifts = fit(fitted, method, estimated_prior(fitted) if method == "eb" else None)
        nothing = np.zeros(judged.hospitals), np.ones(judged.hospitals)
        before -= float(log_likelihood(judged, *nothing).sum())
        after -= float(log_likelihood(judged, shifts.intercept, shifts.slope).sum())
        of_each = fitted.counts[0]
        rows += float(judged.rows.sum())
        labelled.append(of_each[of_each > 0])
        off.append([_off(judged, *nothing), _off(judged, shifts.intercept, shifts.slope)])
    distances = np.concatenate(off, axis=1)
    judged_at = ~np.isnan(distances[0])
    if not rows or not judged_at.any():
        return Benefit(np.nan, np.nan, np.nan, 0, 0.0)
    means = distances[:, judged_at].mean(axis=1)
    hospitals = int((~np.isnan(np.stack([each[0] for each in off]))).any(axis=0).sum())
    return Benefit(
        (after - before) / rows, float(means[0]), float(means[1]), hospitals, float(np.median(np.concatenate(labelled)))
    )


def enough(rarer: NDArray[Any]) -> bool:
    """Return whether hospitals have enough validation rows to recalibrate; ``rarer [H]`` counts those of the rarer
    class.
    """
    return bool(len(rarer) and (np.median(rarer) >= ENOUGH_ROWS or rarer.sum() >= ENOUGH_IN_ALL))


def rarer_class(counts: ScoreCounts) -> Ints:
    """Return the number of rows of the rarer class of each hospital, ``[H]``."""
    return np.asarray(np.minimum(counts.events, counts.rows - counts.events))


def _halves(of: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Split the rows of every hospital at random into two halves."""
    events, others = of.events.astype(np.int64), (of.rows - of.events).astype(np.int64)
    group = np.concatenate([np.repeat(np.arange(len(of.rows)), counts) for counts in (events, others)])
    event = np.arange(len(group)) < events.sum()
    order = np.lexsort((rng.random(len(group)), of.hospital[group]))
    first = np.zeros(len(group), dtype=bool)
    first[order] = np.arange(len(group)) % 2 == 0

    def counted(half: NDArray[np.bool_]) -> Rows:
        rows, of_events = (np.bincount(group[some], minlength=len(of.rows)) for some in (half, half & event))
        return of._replace(rows=rows.astype(np.float64), events=of_events.astype(np.float64))

    return counted(first), counted(~first)


def _off(of: Rows, intercept: Floats, slope: Floats) -> Floats:
    """Return ``|ln O/E|`` of observed (O) and expected (E) events at each hospital after recalibration, ``[H]``; NaN
    without events.
    """
    observed = of.counts[1]
    expected = of.sums(of.rows * expit(intercept[of.hospital] + slope[of.hospital] * of.margin))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.abs(np.log(observed / expected))
    return np.where(observed > 0, ratio, np.nan)
