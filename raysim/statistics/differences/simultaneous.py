"""Many differences at once: intervals that hold jointly, and which strategies they leave in question.

Levels are Bonferroni's, in Holm's order: the family of claims of a difference errs in at most 5 %, however the
strategies depend on each other. Drawing the largest t statistic with random signs for hospitals and seeds would be a
little narrower, and errs far more often where there are few seeds (``docs/statistics.md``). Source: Holm 1979.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.statistics.differences.paired import Limits, Paired
from raysim.statistics.levels import ALPHA

Flags = NDArray[np.bool_]


def adjusted(differences: Sequence[Paired]) -> list[Limits]:
    """Intervals for hospitals like these of ``differences``, adjusted for being many, in their order.

    An interval excludes 0 exactly where Holm's procedure rejects. Those of equal models are 0 to 0 and take no part;
    one without a variance has NaN limits and takes none either.
    """
    intervals = [pair.population() for pair in differences]
    tested = [k for k, pair in enumerate(differences) if pair.variance > 0]
    rejecting, level = True, 0.0
    for rank, k in enumerate(sorted(tested, key=lambda k: differences[k].p)):
        if rejecting:
            level = ALPHA / (len(tested) - rank)
            rejecting = differences[k].p <= level
        intervals[k] = differences[k].population(level)
    return intervals


def not_dominated(better: ArrayLike) -> Flags:
    """Which of ``K`` strategies no other dominates, ``[K]``, from ``better [K, K, D]`` over ``D`` objectives.

    ``better[a, b, d]`` says that an interval shows ``a`` better than ``b`` on objective ``d``. A strategy dominates
    another that is shown better on none, when it is shown better on one at least.
    """
    some = np.asarray(better, dtype=bool).any(axis=2)
    return np.asarray(~(some & ~some.T).any(axis=0))
