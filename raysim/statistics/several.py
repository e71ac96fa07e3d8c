"""Several hospitals tested at once: how many have the effect at least, and which of them can be named.

The count is a lower bound by closed testing with Simes' test, as Hommel's shortcut gives it; the names are Holm's. Both
err in at most 5 % of federations, whatever is true at the other hospitals: the count where hospitals are independent,
the names always. A count of hospitals whose own interval excludes the null has no such property: of 208 equal ones
about ten do. Sources: Holm 1979; Hommel 1988; Goeman and Solari 2011.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.statistics.levels import ALPHA

Floats = NDArray[np.float64]


class Bound(NamedTuple):
    """``at_least`` hospitals of ``of`` judged ones have the effect; ``named`` are the indices of those that can be
    named, the one with the smallest p first.

    ``at_least`` is never less than ``len(named)``, and may be more: there are such hospitals, but it is open which.
    """

    at_least: int
    of: int
    named: tuple[int, ...]


def bound(p: ArrayLike, alpha: float = ALPHA) -> Bound:
    """How many of the hospitals with p-values ``p [H]`` have the effect; one with a NaN is not judged, nor counted.

    With ``H`` judged hospitals, ``h`` is the size of the largest set of them that Simes' test does not reject. It is
    the largest ``i`` for which the ``i`` largest p-values, in ascending order, are above ``alpha j / i``, ``j = 1..i``.
    Then at least ``H - h`` have the effect. Where the test has no power at a hospital its p is 1.
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
    """Holm's adjusted p-values of ``p [H]``: the level from which on each is named. NaN stays, and is not counted."""
    values = np.asarray(p, dtype=np.float64)
    judged = np.flatnonzero(~np.isnan(values))
    order = judged[np.argsort(values[judged], kind="stable")]
    adjusted = np.full(values.shape, np.nan)
    raised = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return adjusted
