"""Thresholds that reach a given sensitivity or specificity, one for all hospitals.

If a threshold was chosen on the evaluated rows, the interval of its figure over the rows of all hospitals allows for
this choice. Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from raysim.core.levels import LEVEL
from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.calibration import Groups, edges
from raysim.statistics.clinical.thresholds import threshold_at_sensitivity, threshold_at_specificity

NAN = float("nan")

ROUNDING = 1e-12
"""In bootstrap samples, the sensitivity or specificity at a threshold may be below the required one by this much,
because of rounding."""

BOOTSTRAP = 300
"""Number of bootstrap samples for the interval of a sensitivity or specificity whose threshold was chosen on the
evaluated rows."""


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold that reaches a given sensitivity or specificity, the same for all hospitals.

    - ``figure``: the figure that is evaluated at the threshold, ``sensitivity_at_specificity`` or
      ``specificity_at_sensitivity``. ``at``: the specificity, or sensitivity, that the threshold reaches.
    - ``of_events``: whether the evaluated figure is a sensitivity.
    - ``bin``: the lowest bin of scores that is classified as positive; ``threshold``: its lowest probability. Both are
      NaN if there are too few rows to choose a threshold, or if a score is NaN. If the specificity is reached only by
      classifying no row as positive, the bin is infinite and the threshold 1.
    - ``same_rows``: whether the threshold was chosen on the evaluated rows.
    """

    figure: str
    at: float
    of_events: bool
    bin: float
    threshold: float
    same_rows: bool


def operating_points(
    counts: ScoreCounts, validation: ScoreCounts | None, specificity: float, sensitivity: float
) -> tuple[OperatingPoint, OperatingPoint]:
    """Return the threshold that reaches ``specificity`` over the rows of all hospitals, and the one that reaches
    ``sensitivity``.

    Both are chosen on the ``validation`` rows. If ``validation`` is None, they are chosen on the rows of ``counts``; on
    these rows, figures are then optimistic.
    """
    chosen = (counts if validation is None else validation).together()
    groups = _by_bin(chosen)
    points = []
    for figure, at, of_events, choose in (
        ("sensitivity_at_specificity", specificity, True, threshold_at_specificity),
        ("specificity_at_sensitivity", sensitivity, False, threshold_at_sensitivity),
    ):
        first = NAN if chosen.broken.any() else choose(groups, at)
        threshold = NAN if np.isnan(first) else 1.0
        if np.isfinite(first):
            ends = edges(np.array([first], dtype=np.uint16))
            threshold = float(expit(np.nanmin(np.concatenate(ends))))
        points.append(OperatingPoint(figure, at, of_events, first, threshold, validation is None))
    return points[0], points[1]


def with_the_threshold_chosen_again(
    counts: ScoreCounts, point: OperatingPoint, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a sensitivity or specificity, with the threshold chosen again in every
    sample.

    Events and other rows are resampled separately. The threshold for a specificity is determined by the score of one
    non-event, and the threshold for a sensitivity by the score of one event. In each sample, the rank of this row in
    its class, divided by the number of rows of the class, is drawn from a beta distribution. The number of correctly
    classified rows of the other class is drawn from a binomial distribution.
    """
    judged, chosen = counts.positives, counts.negatives
    if not point.of_events:
        # For enough events at or above a bin, the order of bins is reversed.
        judged, chosen = counts.negatives[::-1], counts.positives[::-1]
    n, m = int(chosen.sum()), int(judged.sum())
    enough = int(np.ceil(n * (point.at - ROUNDING)))
    row = np.minimum(n * rng.beta(enough, n + 1 - enough, BOOTSTRAP), n - 1).astype(np.int64)
    last = np.searchsorted(np.cumsum(chosen), row, side="right")  # the bin of the row that determines the threshold
    past = np.append(np.cumsum(judged[::-1])[::-1], 0)  # evaluated rows in each bin and all later bins
    values = rng.binomial(m, past[last + 1] / m) / m
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _by_bin(counts: ScoreCounts) -> Groups:
    """Return the rows of each bin as a group. The index of the bin replaces the logit."""
    rows = (counts.positives + counts.negatives).astype(np.float64)
    return Groups(counts.bins.astype(np.float64), rows, counts.positives.astype(np.float64))
