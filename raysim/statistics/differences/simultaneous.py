"""Simultaneous intervals of many differences, and the strategies that no other strategy demonstrably dominates.

Intervals are adjusted by Holm's procedure: the probability of any false claim of a difference is at most 5 %, for any
dependence between strategies. With few seeds, a bootstrap of the largest t statistic makes false claims far more often
(``docs/statistics.md``). Source: S. Holm, *A Simple Sequentially Rejective Multiple Test Procedure*, 1979.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.arrays import Flags
from raysim.core.levels import ALPHA
from raysim.statistics.differences.paired import Limits, Paired


def adjusted(differences: Sequence[Paired]) -> list[Limits]:
    """Return the intervals of several ``differences``, in the same order, adjusted for their number by Holm's
    procedure. The intervals are for a population of similar hospitals.

    The interval of equal models is 0 to 0 with two or more hospitals. The limits of any other difference are NaN if its
    variance is 0 or undefined. Neither equal models nor such differences count as tests.
    """
    intervals = [pair.population() for pair in differences]
    tested = tests(differences)
    rejecting, level = True, 0.0
    for rank, k in enumerate(sorted(tested, key=lambda k: differences[k].p)):
        if rejecting:
            level = ALPHA / (len(tested) - rank)
            rejecting = differences[k].p <= level
        intervals[k] = differences[k].population(level)
    return intervals


def tests(differences: Sequence[Paired]) -> list[int]:
    """Return the indices of the ``differences`` that count as tests: those with a variance above 0."""
    return [k for k, pair in enumerate(differences) if pair.variance > 0]


def not_dominated(better: ArrayLike) -> Flags:
    """Return for each of ``K`` strategies whether no other strategy dominates it, ``[K]``.

    ``better`` has the shape ``[K, K, D]``, for ``D`` objectives: ``better[a, b, d]`` is true if an interval
    demonstrates that strategy ``a`` is better than ``b`` on objective ``d``. A strategy dominates another strategy if
    it is demonstrably better on at least one objective, and demonstrably worse on none.
    """
    some = np.asarray(better, dtype=bool).any(axis=2)
    return np.asarray(~(some & ~some.T).any(axis=0))
