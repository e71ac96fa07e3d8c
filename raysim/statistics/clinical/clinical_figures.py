"""Clinical figures of predictions by hospital: calibration, decisions at a threshold, and net benefit.

Undefined figures are NaN, with the reason in words. Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.core.arrays import Floats
from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.calibration import (
    BINNED_ROWS,
    ENOUGH,
    Bins,
    Groups,
    calibration,
    calibration_error,
    from_histogram,
)
from raysim.statistics.clinical.curves import binned, expected_events, unless_broken
from raysim.statistics.clinical.operating_points import OperatingPoint, with_the_threshold_chosen_again
from raysim.statistics.clinical.thresholds import net_benefits
from raysim.statistics.intervals import observed_over_expected, share_interval

Words = NDArray[np.object_]

NAN = float("nan")

BROKEN = "a prediction is not a number"
NO_ROWS = "no rows"
ONE_CLASS = "one class only"
FEW_OF_A_CLASS = f"fewer than {ENOUGH} events or other rows"
SEPARATED = "no finite solution"
NONE_EXPECTED = "no event is expected"
FEW_ROWS = f"fewer than {BINNED_ROWS} rows"
NO_EVENT, NO_OTHER = "no event", "no row without the event"
NONE_POSITIVE, ALL_POSITIVE = "no row is predicted positive", "every row is predicted positive"
NO_THRESHOLD = "too few rows to choose the threshold"

COEFFICIENTS = ("calibration_in_the_large", "calibration_intercept", "calibration_slope")

FLOOR_DRAWS = 1000
"""Number of simulations of well-calibrated predictions for the calibration error by chance."""


class ClinicalFigure(NamedTuple):
    """One clinical figure, such as sensitivity or calibration slope, at each of ``H`` hospitals.

    - ``name``: the name of the figure. ``at``: the configured threshold, sensitivity or specificity to which it refers;
      NaN if there is none.
    - ``threshold``: the lowest probability that is classified as positive; NaN if the figure has no threshold, or if
      none could be chosen.
    - ``value [H]``: the figure; NaN if undefined. ``low [H]`` to ``high [H]``: its 95 % interval; NaN if there is none.
      For ``calibration_error_floor``, ``low`` is NaN, and ``high`` is the 95th percentile of the error by chance.
    - ``of [H]``: the number of rows used (for a share, its denominator). ``undefined [H]``: the reason if the value is
      NaN, otherwise empty.
    """

    name: str
    at: float
    threshold: float
    value: Floats
    low: Floats
    high: Floats
    of: Floats
    undefined: Words


def figures(
    counts: ScoreCounts,
    thresholds: Sequence[float],
    points: Sequence[OperatingPoint],
    bins: int,
    rng: np.random.Generator,
    scored: Sequence[Groups] | None = None,
) -> list[ClinicalFigure]:
    """Compute all clinical figures of each of the ``H`` hospitals in ``counts``.

    ``counts`` must contain the number of rows at or above each of ``thresholds``; ``bins`` is the number of bins of the
    calibration error. ``scored [H]`` are the exact scores of each hospital's rows. Without them, calibration
    coefficients and expected events are approximate.
    """
    return [
        *_coefficients(counts, scored),
        _observed_over_expected(counts, scored),
        *_calibration_errors(counts, bins, rng),
        *(figure for t, threshold in enumerate(thresholds) for figure in _decisions(counts, t, threshold)),
        *(_at_point(counts, point, rng) for point in points),
    ]


def calibration_metrics(counts: ScoreCounts, bins: int) -> dict[str, float]:
    """Compute the calibration of the rows of all hospitals together.

    The calibration error is NaN for fewer than :data:`BINNED_ROWS` rows.
    """
    together = counts.together()
    large, _, slope = _coefficients(together)
    sums = binned(together, bins)
    rows = sums.rows.sum()
    error = np.abs(sums.events - sums.predicted).sum() / rows if rows >= BINNED_ROWS else math.nan
    return {
        "calibration_slope": float(slope.value[0]),
        "calibration_in_the_large": float(large.value[0]),
        "calibration_error": float(error),
    }


def _coefficients(counts: ScoreCounts, scored: Sequence[Groups] | None = None) -> list[ClinicalFigure]:
    events, rows = counts.events, counts.rows
    reason = _reasons(
        counts, {FEW_OF_A_CLASS: np.minimum(events, rows - events) < ENOUGH, ONE_CLASS: _one_class(counts)}
    )
    values = np.full((3, 3, len(rows)), np.nan)
    for h in np.flatnonzero(reason == "").tolist():
        fit = calibration(from_histogram(counts.hospital(h)) if scored is None else scored[h])
        for i, coefficient in enumerate((fit.in_the_large, fit.intercept, fit.slope)):
            values[i, :, h] = coefficient.estimate, coefficient.low, coefficient.high
    coefficients = []
    for name, (value, low, high) in zip(COEFFICIENTS, values, strict=True):
        why = np.where((reason == "") & np.isnan(value), SEPARATED, reason)
        coefficients.append(ClinicalFigure(name, NAN, NAN, value, low, high, rows.astype(float), why))
    return coefficients


def _observed_over_expected(counts: ScoreCounts, scored: Sequence[Groups] | None) -> ClinicalFigure:
    events, rows = counts.events, unless_broken(counts, counts.rows)
    expected = expected_events(counts)
    if scored is not None:
        sums = np.array([each.rows @ expit(each.logit) for each in scored])
        expected = np.where(np.isnan(expected), np.nan, sums)
    expected = np.where(expected > 0, expected, np.nan)
    reason = _reasons(counts, {NONE_EXPECTED: np.isnan(expected)})
    limits = observed_over_expected(events, expected, rows)
    return ClinicalFigure(
        "observed_over_expected", NAN, NAN, events / expected, *limits, counts.rows.astype(float), reason
    )


def _calibration_errors(counts: ScoreCounts, bins: int, rng: np.random.Generator) -> list[ClinicalFigure]:
    reason = _reasons(counts, {FEW_ROWS: counts.rows < BINNED_ROWS})
    sums = binned(counts, bins)
    errors = np.full((5, len(reason)), np.nan)
    for h in np.flatnonzero(reason == ""):
        errors[:, h] = astuple(calibration_error(Bins(*(part[h] for part in sums)), rng, FLOOR_DRAWS))
    value, low, high, floor, floor_high = errors
    none, of = np.full(len(reason), np.nan), counts.rows.astype(float)
    return [
        ClinicalFigure("calibration_error", NAN, NAN, value, low, high, of, reason),
        ClinicalFigure("calibration_error_floor", NAN, NAN, floor, none, floor_high, of, reason),
    ]


def _decisions(counts: ScoreCounts, t: int, threshold: float) -> list[ClinicalFigure]:
    events, rows = counts.events, counts.rows
    hits, alarms = counts.at_least[:, t, 0], counts.at_least[:, t, 1]
    predicted, others = hits + alarms, rows - events
    shares = (
        ("sensitivity", hits, events, NO_EVENT),
        ("specificity", others - alarms, others, NO_OTHER),
        ("ppv", hits, predicted, NONE_POSITIVE),
        ("npv", others - alarms, rows - predicted, ALL_POSITIVE),
    )
    decided = [_share(name, threshold, threshold, x, of, reason, counts) for name, x, of, reason in shares]
    gain = net_benefits(hits, alarms, events, unless_broken(counts, rows), threshold)
    of, reason = rows.astype(float), _reasons(counts, {})
    none = np.full(len(rows), np.nan)
    decided.append(ClinicalFigure("net_benefit", threshold, threshold, *gain[:3], of, reason))
    decided.append(ClinicalFigure("net_benefit_of_all", threshold, threshold, gain[3], none, none, of, reason))
    return decided


def _at_point(counts: ScoreCounts, point: OperatingPoint, rng: np.random.Generator) -> ClinicalFigure:
    """Compute each hospital's sensitivity, or specificity, at the threshold of an operating ``point``."""
    predicted = counts.bins >= point.bin
    if point.of_events:
        right, of = counts.sums(counts.positives * predicted), counts.events
    else:
        right, of = counts.sums(counts.negatives * ~predicted), counts.rows - counts.events
    if np.isnan(point.bin):
        nothing = np.full(len(of), np.nan)
        reason = _reasons(counts, {NO_THRESHOLD: np.ones(len(of), dtype=bool)})
        return ClinicalFigure(point.figure, point.at, NAN, nothing, nothing, nothing, of.astype(float), reason)
    missing = NO_EVENT if point.of_events else NO_OTHER
    share = _share(point.figure, point.at, point.threshold, right, of, missing, counts)
    if point.same_rows and len(of) == 1 and not np.isnan(share.value[0]):
        low, high = with_the_threshold_chosen_again(counts, point, rng)
        return share._replace(low=np.array([low]), high=np.array([high]))
    return share


def _share(
    name: str, at: float, threshold: float, right: NDArray[Any], of: NDArray[Any], missing: str, counts: ScoreCounts
) -> ClinicalFigure:
    reason = _reasons(counts, {missing: np.asarray(of) == 0})
    defined = np.where(reason == "", of, 0)
    limits = share_interval(right, defined)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(defined > 0, right / np.maximum(defined, 1), np.nan)
    return ClinicalFigure(name, at, threshold, value, *limits, np.asarray(of, dtype=float), reason)


def _reasons(counts: ScoreCounts, why: dict[str, NDArray[np.bool_]]) -> Words:
    """Return the reason why a figure is undefined at each hospital, ``[H]``, or an empty text.

    ``why`` says for each reason at which hospitals it holds; the last reason that holds is returned. Missing rows and
    predictions that are NaN have precedence.
    """
    reason = np.full(len(counts.filled), "", dtype=object)
    for words, holds in [*why.items(), (NO_ROWS, counts.rows == 0), (BROKEN, counts.broken)]:
        reason[holds] = words
    return reason


def _one_class(counts: ScoreCounts) -> NDArray[np.bool_]:
    return np.asarray((counts.events == 0) | (counts.events == counts.rows))
