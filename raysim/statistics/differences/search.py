"""Correct for a search: the interval and the estimate of the best of many tried models.

The best of ``N`` candidates looks better than it is, because it was chosen. The interval of its difference from a
reference is therefore adjusted by Holm's procedure for all candidates tried, not only for those reported. The estimate
of the difference is reduced by the gain from being chosen, averaged over random draws of the models' mean differences.
Simulations: ``docs/judge.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.core.levels import ALPHA
from raysim.core.streams import stream
from raysim.statistics.differences.paired import Limits, Paired

DRAWS = 199


@dataclass(frozen=True)
class Searched:
    """The best of several models after a search, compared with a reference.

    - ``best``: the index of the best model in the list of models.
    - ``estimate``: the difference of the best model from the reference. ``corrected``: this difference minus
      :func:`selection_gain`, if the gain is above 0.
    - ``limits``: the interval of each model's difference from the reference, adjusted for all ``tried`` candidates.
    """

    best: int
    estimate: float
    corrected: float
    limits: tuple[Limits, ...]
    tried: int


def adjusted_for(differences: Sequence[Paired], tried: int) -> tuple[Limits, ...]:
    """Return the intervals of the ``differences`` of ``K`` models from one reference, adjusted by Holm's procedure for
    all ``tried >= K`` candidates of a search.

    The ``K`` models are treated as the candidates with the smallest p-values.
    """
    tested = [k for k, pair in enumerate(differences) if pair.variance > 0]
    limits, rejecting, level = [pair.population() for pair in differences], True, ALPHA / tried
    for rank, k in enumerate(sorted(tested, key=lambda k: differences[k].p)):
        if rejecting:
            level = ALPHA / (tried - rank)
            rejecting = differences[k].p <= level
        limits[k] = differences[k].population(level)
    return tuple(limits)


def selection_gain(figures: NDArray[np.float64], rows: NDArray[np.float64]) -> float:
    """Return how much better the best of ``K`` models looks because it was chosen. This gain is averaged over random
    draws of the models' mean differences. The draws are normal, with the observed mean differences and their covariance
    over hospitals (HC2, as in :mod:`raysim.statistics.differences.paired`).

    ``figures [K, H]`` are each model's difference from the reference at each of ``H`` hospitals, averaged over seeds;
    ``rows [H]`` are the hospitals' weights. Hospitals with a NaN for any model are left out. The gain is 0 for fewer
    than two hospitals or models.
    """
    defined = np.isfinite(figures).all(axis=0) & (rows > 0)
    if defined.sum() < 2 or len(figures) < 2:
        return 0.0
    d, share = figures[:, defined], rows[defined] / rows[defined].sum()
    mean = d @ share
    parts = (d - mean[:, None]) * share / np.sqrt(1.0 - share)
    draws = stream(0, "gain of being chosen").standard_normal((DRAWS, int(defined.sum())))
    resampled = mean + draws @ parts.T
    chosen = resampled.argmax(axis=1)
    return float((resampled.max(axis=1) - mean[chosen]).mean())


def searched(
    differences: Sequence[Paired], figures: NDArray[np.float64], rows: NDArray[np.float64], tried: int
) -> Searched:
    """Return the best of several models after a search over ``tried`` candidates, with corrected estimate and
    intervals.

    ``differences`` are the models' differences from one reference; ``figures`` and ``rows`` are those of
    :func:`selection_gain`.
    """
    best = int(np.argmax([-np.inf if np.isnan(pair.difference) else pair.difference for pair in differences]))
    estimate = differences[best].difference
    gain = max(0.0, selection_gain(figures, rows))
    return Searched(best, estimate, estimate - gain, adjusted_for(differences, tried), tried)
