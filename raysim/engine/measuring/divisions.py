"""The rows of each group of patients at a hospital. A division is a strategy's rule that assigns each row to a
group.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.strategies.base import Division

HELD = 4
"""The number of divisions of rows into groups that are cached at a time."""


class Groups:
    """A cache of the groups to which hospitals' rows belong."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], dict[int, NDArray[np.int64]]] = OrderedDict()
        self._last: tuple[Division | None, str] = None, ""

    def of(self, federation: Federation, division: Division | None, hospital: int) -> NDArray[np.int64]:
        """Return the group of each row of a hospital. Training rows come first, then validation rows, then test rows.

        Raises ``ValueError`` if no division into groups is given, or if the division returns a group that does not
        exist.
        """
        if division is None:
            raise ValueError("the strategy names groups of rows, but its division is None")
        by_hospital = self._of(federation, division)
        if hospital not in by_hospital:
            first, last = int(federation.bounds[hospital, 0]), int(federation.bounds[hospital, 3])
            groups: NDArray[np.int64] = np.asarray(
                division.assign(federation.X[first:last], federation.observed[first:last], hospital), np.int64
            )
            if groups.shape != (last - first,) or (
                len(groups) and not 0 <= groups.min() <= groups.max() < division.count
            ):
                raise ValueError(
                    f"{type(division).__name__} must give a group number from 0 to {division.count - 1} for each of "
                    f"{last - first} rows, but gives other numbers or shape {list(groups.shape)}"
                )
            by_hospital[hospital] = groups
        return by_hospital[hospital]

    def rows(
        self, federation: Federation, division: Division | None, hospital: int, part: str, group: int
    ) -> NDArray[np.int64]:
        """Return the rows of a hospital's ``part`` (such as its test rows) that are in ``group``, as ascending indices
        of the federation's rows.
        """
        theirs = federation.rows(hospital, part)
        first = int(federation.bounds[hospital, 0])
        groups = self.of(federation, division, hospital)[theirs.start - first : theirs.stop - first]
        return np.asarray(theirs.start + np.flatnonzero(groups == group))

    def _of(self, federation: Federation, division: Division) -> dict[int, NDArray[np.int64]]:
        if division is not self._last[0]:  # this runs for every hospital, and a division may be large
            self._last = division, hashlib.blake2b(pickle.dumps(division), digest_size=16).hexdigest()
        key = str(federation.folder), self._last[1]
        by_hospital = self._held.setdefault(key, {})
        self._held.move_to_end(key)
        while len(self._held) > HELD:
            self._held.popitem(last=False)
        return by_hospital
