"""Decisions at a threshold: net benefit, and thresholds that reach a given specificity or sensitivity.

A row is classified as positive if its score is at least the threshold.

Source of net benefit: A. J. Vickers, E. B. Elkin, *Decision Curve Analysis*, 2006. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.core.levels import Z
from raysim.statistics.clinical.calibration import Groups

NAN = float("nan")

ONE_ROW = 1 - 1e-9
"""The smallest number of tolerated errors (false positives, or false negatives) at which a threshold is defined: one
row, less a margin for rounding."""


def net_benefits(
    true_positive: ArrayLike, false_positive: ArrayLike, events: ArrayLike, rows: ArrayLike, probability: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute the net benefit per row, ``(true positives - false positives * odds) / rows``. The odds are those of the
    threshold ``probability``.

    Returns the net benefit of acting on the model, the lower and upper limit of its 95 % interval, and the net benefit
    of acting on everyone. All arguments except ``probability`` are numbers of rows. The results are NaN without rows.
    """
    t = np.asarray(probability, dtype=np.float64)
    if not ((t > 0) & (t < 1)).all():
        raise ValueError(f"probability: {t} must be above 0 and below 1")
    n = np.where(np.asarray(rows) > 0, rows, np.nan)
    odds, hit, alarm, prevalence = t / (1 - t), true_positive / n, false_positive / n, events / n
    value = hit - odds * alarm
    reach = Z * np.sqrt(np.maximum(hit + odds**2 * alarm - value**2, 0.0) / n)
    return value, value - reach, value + reach, prevalence - odds * (1 - prevalence)


def gained(
    true_positive: NDArray[Any],
    false_positive: NDArray[Any],
    events: NDArray[Any],
    rows: NDArray[Any],
    probability: float,
) -> tuple[Floats, Floats]:
    """Compute the gain in net benefit over the better default (acting on everyone or on no one), and the variance of
    this gain, ``[H]`` each for ``H`` hospitals.

    The better default is chosen over all rows together. If it were chosen for each hospital, it would by chance look
    better than it is at hospitals with few rows. Arguments are as for :func:`net_benefits`. Both results are NaN for
    fewer than two rows.
    """
    odds = probability / (1 - probability)
    n = np.where(rows > 1, rows, np.nan)
    everyone = bool(np.nansum(events - odds * (rows - events)) > 0)
    # Decisions differ from calling no row at called rows, and from calling all rows at the other rows.
    good = np.where(everyone, rows - events - false_positive, true_positive)
    bad = np.where(everyone, events - true_positive, false_positive)
    up, down = np.where(everyone, odds, 1.0), np.where(everyone, 1.0, odds)
    mean = (up * good - down * bad) / n
    squares = up**2 * good + down**2 * bad
    return mean, np.maximum(squares - n * mean**2, 0.0) / (n - 1) / n


def threshold_at_specificity(groups: Groups, specificity: float) -> float:
    """Return the smallest logit at which at least a share ``specificity`` of the non-events in ``groups`` is classified
    as negative.

    Choose the threshold on validation rows: on the rows from which it is chosen, results are optimistic. The threshold
    is infinite if the specificity is reached only by classifying no row as positive, and NaN if the specificity would
    allow less than one false positive.
    """
    order = np.argsort(groups.logit)
    logits, misses = groups.logit[order], (groups.rows - groups.events)[order]
    n = float(misses.sum())
    if not n or n * (1 - specificity) < ONE_ROW:
        return NAN
    # At a threshold, the non-events below it are predicted negative; non-events equal to it are predicted positive.
    values, first = np.unique(logits, return_index=True)
    below = np.concatenate([[0.0], np.cumsum(misses)])[first] / n
    enough = below >= specificity
    return float(values[np.argmax(enough)]) if enough.any() else float("inf")


def threshold_at_sensitivity(groups: Groups, sensitivity: float) -> float:
    """Return the largest logit at which at least a share ``sensitivity`` of the events in ``groups`` is classified as
    positive.

    Choose the threshold on validation rows. It is NaN if the sensitivity would allow less than one false negative.
    """
    m = float(groups.events.sum())
    if not m or m * (1 - sensitivity) < ONE_ROW:
        return NAN
    order = np.argsort(groups.logit)
    values, first = np.unique(groups.logit[order], return_index=True)
    below = np.concatenate([[0.0], np.cumsum(groups.events[order])])[first]
    enough = (m - below) / m >= sensitivity
    return float(values[len(values) - 1 - np.argmax(enough[::-1])])
