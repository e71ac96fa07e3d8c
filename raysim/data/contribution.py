"""Which rows of a hospital take part, where each patient may contribute at most so many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Contribution:
    """The rows of a hospital that take part, patient by patient."""

    rows: NDArray[np.int64]
    """Positions among the hospital's rows of its part (training, validation or test), ``[n]``."""
    patient: NDArray[np.int64]
    """The patient of each of these rows, ``[n]``, ascending: numbered by first appearance in the hospital's rows."""
    patients: int
    """Number of patients."""
    total: int
    """Number of rows that the hospital has, whether they take part or not."""

    @property
    def single(self) -> bool:
        """Whether each patient has one row."""
        return len(self.rows) == self.patients

    @cached_property
    def everything(self) -> bool:
        """Whether all rows of the hospital take part, in their own order."""
        return len(self.rows) == self.total and bool((np.diff(self.rows) == 1).all())


def drawn(people: NDArray[np.int64], order: NDArray[np.int64], most: int) -> Contribution:
    """Keep at most ``most`` rows of each patient: those that come first in ``order [n]``, a random permutation of rows.

    ``people [n]`` is the patient of each row of a hospital.
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
