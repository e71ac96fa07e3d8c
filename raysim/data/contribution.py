"""Choose a hospital's rows if each patient may contribute only a limited number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from raysim.core.streams import stream


@dataclass(frozen=True, eq=False)
class Contribution:
    """The rows of a hospital that remain if each patient may contribute a limited number, sorted by patient."""

    rows: NDArray[np.int64]
    """The positions of the remaining rows among the hospital's training, validation or test rows, ``[n]``."""
    patient: NDArray[np.int64]
    """The patient of each remaining row, ``[n]``, ascending: numbers from 0, in the order of patients' first rows."""
    patients: int
    total: int
    """The number of the hospital's rows before the limit was applied."""

    @property
    def single(self) -> bool:
        """Whether each patient has exactly one remaining row."""
        return len(self.rows) == self.patients

    @cached_property
    def everything(self) -> bool:
        """Whether all rows of the hospital remain, in their original order."""
        return len(self.rows) == self.total and bool((np.diff(self.rows) == 1).all())


def choose_rows(people: NDArray[np.int64], order: NDArray[np.int64], most: int) -> Contribution:
    """For each patient of a hospital, choose at most ``most`` rows, those that come first in ``order [n]``.

    ``people [n]`` is the patient of each of the hospital's rows, and ``order`` is a permutation of these rows.
    """
    _, first, code = np.unique(people, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    patient = rank[code]
    by_patient = order[np.argsort(patient[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(patient, minlength=len(first)))[:-1]])
    place = np.arange(len(by_patient)) - starts[patient[by_patient]]
    rows = np.sort(by_patient[place < most])
    rows = rows[np.argsort(patient[rows], kind="stable")]
    return Contribution(rows, patient[rows], len(first), len(people))


def shuffled(people: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return a permutation ``[n]`` of a hospital's rows in which the rows of each patient are in random order.

    The order of a patient's rows depends only on ``seed`` and on how many rows the patient has.
    ``people [n]`` is the patient of each row.
    """
    _, code, counts = np.unique(people, return_inverse=True, return_counts=True)
    by_patient = np.argsort(code, kind="stable")
    place = np.empty(len(people), np.int64)
    place[by_patient] = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.zeros(len(people), np.int64)
    for count in np.unique(counts[counts > 1]).tolist():
        theirs = counts[code] == count
        rank[theirs] = stream(seed, "contribution", count).permutation(count)[place[theirs]]
    return np.argsort(rank, kind="stable")
