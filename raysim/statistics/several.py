"""Tests of several hospitals at once: a lower bound on the number of hospitals with an effect, and the names of some
such hospitals.

The bound is computed by closed testing with Simes' test (Hommel's shortcut), and the names by Holm's procedure. The
bound and the list of names are each wrong in at most 5 % of federations. Only the bound requires independent hospitals.
Counting the hospitals whose own interval excludes 0 has no such guarantee. Sources: Holm 1979; Hommel 1988; Goeman and
Solari 2011.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA


class Bound(NamedTuple):
    """A lower bound on the number of hospitals that have the tested effect: at least ``at_least`` hospitals have it.
    ``of`` is the number of tested hospitals.

    ``named`` are the indices of hospitals that demonstrably have the effect, in ascending order of their p-values. If
    ``at_least`` is larger than ``len(named)``, further hospitals have the effect, but it is unknown which.
    """

    at_least: int
    of: int
    named: tuple[int, ...]


def bound(p: ArrayLike, alpha: float = ALPHA) -> Bound:
    """Return a lower bound on the number of hospitals that have the tested effect, from the p-values ``p [H]`` of ``H``
    hospitals.

    Hospitals with NaN are not tested. ``p`` must be 1 for a hospital whose test has no power.
    """
    values = np.asarray(p, dtype=np.float64)
    judged = np.flatnonzero(~np.isnan(values))
    ascending = np.sort(values[judged])
    hospitals = len(judged)
    unrejected = 0
    for size in range(hospitals, 0, -1):
        if (ascending[hospitals - size :] > alpha * np.arange(1, size + 1) / size).all():
            unrejected = size
            break
    corrected = holm(values)
    named = [int(h) for h in judged[np.argsort(values[judged], kind="stable")] if corrected[h] <= alpha]
    return Bound(hospitals - unrejected, hospitals, tuple(named))


def holm(p: ArrayLike) -> Floats:
    """Return the p-values ``p [H]`` adjusted by Holm's procedure. A NaN is not counted as a test."""
    values = np.asarray(p, dtype=np.float64)
    judged = np.flatnonzero(~np.isnan(values))
    order = judged[np.argsort(values[judged], kind="stable")]
    adjusted = np.full(values.shape, np.nan)
    raised = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return adjusted
