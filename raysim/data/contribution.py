"""Which rows of a hospital stand for its patients: at most so many of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Contribution:
    """The rows of a hospital that take part, patient by patient."""

    rows: NDArray[np.int64]
    """Their places among the hospital's rows of that part, ``[n]``."""
    patient: NDArray[np.int64]
    """The patient of each, ascending ``[n]``: numbered in the order in which the hospital's rows name them."""
    patients: int
    """How many there are."""
    total: int
    """How many rows the hospital has."""

    @property
    def single(self) -> bool:
        """Whether each patient has one row."""
        return len(self.rows) == self.patients

    @cached_property
    def everything(self) -> bool:
        """Whether all rows of the hospital take part, in their own order."""
        return len(self.rows) == self.total and bool((np.diff(self.rows) == 1).all())


def drawn(people: NDArray[np.int64], order: NDArray[np.int64], most: int) -> Contribution:
    """The first ``most`` rows of each of ``people [n]`` in a random ``order [n]``; the rows then keep their own."""
    _, first, code = np.unique(people, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    patient = rank[code]
    by_patient = order[np.argsort(patient[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(patient, minlength=len(first)))[:-1]]) if len(first) else first
    place = np.arange(len(by_patient)) - starts[patient[by_patient]]
    rows = np.sort(by_patient[place < most])
    rows = rows[np.argsort(patient[rows], kind="stable")]
    return Contribution(rows, patient[rows], len(first), len(people))
