"""Which rows of a hospital stand for its patients: at most so many of each, drawn once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from raysim.config.privacy import RowUnit
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.data.federation import Federation


@dataclass(frozen=True, eq=False)
class Contribution:
    """The training rows of a hospital that take part, patient by patient."""

    rows: NDArray[np.int64]
    """Their places among the hospital's training rows, ``[n]``."""
    patient: NDArray[np.int64]
    """The patient of each, ascending ``[n]``: numbered in the order in which the hospital's rows name them."""
    patients: int
    """How many there are."""
    total: int
    """How many training rows the hospital has."""

    @property
    def single(self) -> bool:
        """Whether each patient has one row."""
        return len(self.rows) == self.patients

    @cached_property
    def everything(self) -> bool:
        """Whether all rows of the hospital take part, in their own order."""
        return len(self.rows) == self.total and bool((np.diff(self.rows) == 1).all())


class Contributions:
    """Of the hospitals of a process. It holds nothing that it could not find out again."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, int, str, int, int, str], Contribution] = {}

    def of(
        self, federation: Federation, hospital: int, unit: RowUnit, most: int, seed: int, part: str = "train"
    ) -> Contribution:
        """At most ``most`` rows of each ``unit`` out of a part of a hospital's rows, drawn by ``seed`` where it has
        more.
        """
        key = (str(federation.folder), hospital, unit, most, seed, part)
        if key not in self._drawn:
            people = people_of(federation, hospital, unit, part)
            order = stream(seed, "contribution", hospital).permutation(len(people))
            self._drawn[key] = drawn(people, order, most)
        return self._drawn[key]


def people_of(federation: Federation, hospital: int, unit: RowUnit, part: str = "train") -> NDArray[np.int64]:
    """The unit of each row of a hospital's part. Raises ``ConfigError`` where patients are not known."""
    rows = federation.rows(hospital, part)
    if unit == "example":
        return np.arange(rows.stop - rows.start)
    try:
        return federation.people[rows]
    except FileNotFoundError:
        raise ConfigError(
            "privacy.unit: patient, but data.split.by divides rows by a column that is not the patient; leave "
            "data.split.by out, or set privacy.unit: example"
        ) from None


def patient_counts(federation: Federation, unit: RowUnit) -> tuple[int, ...]:
    """How many units each hospital trains on, ``[N]``."""
    return tuple(len(np.unique(people_of(federation, h, unit))) for h in range(len(federation.hospitals)))


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
