"""What the server may ask hospitals about their training rows, and how those are divided into groups.

Shapes: ``N`` hospitals in the federation, ``n`` rows of one hospital, ``M`` models, ``G`` groups of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.problem import Floats, Ids


@dataclass(frozen=True, eq=False)
class HospitalRows:
    """The training rows of one hospital, as a :class:`Question` sees them.

    ``X [n, F]`` preprocessed features, of which the first ``D`` columns are values and the rest flags,
    ``y [n]`` class indices out of ``classes``, ``observed [n, D]`` whether a value was recorded. ``losses [M, n]`` is
    each row's loss under each of the ``M`` models that came with the question, and ``outputs`` what each of them says
    of the rows: ``[n]`` margins of class 1 for two classes, else ``[n, C]`` logits. ``patients()`` gives the attributes
    that the data knows (``sex`` and ``ethnicity`` as text, ``age`` in years), each ``[n]``. ``rng`` is the hospital's
    own stream, ``hospital`` its id.
    """

    X: NDArray[Any]
    y: NDArray[np.int64]
    observed: NDArray[np.bool_]
    classes: int
    losses: Floats
    rng: np.random.Generator
    outputs: Sequence[NDArray[Any]] = ()
    patients: Callable[[], Mapping[str, NDArray[Any]]] = dict
    hospital: int = 0


class Division(Protocol):
    """Cuts the rows of every hospital into ``count`` groups by what they are: the clusters of patients.

    It travels to the hospitals, so it is small and its fields are plain values and arrays; what it says of a row
    depends on that row and its hospital alone. It may have ``scalars``, as a :class:`Question` has.
    """

    @property
    def count(self) -> int:
        """G, the number of groups."""
        ...

    def assign(self, X: NDArray[Any], observed: NDArray[np.bool_], hospital: int) -> Ids:
        """The group of each row ``[n]`` of ``hospital``, out of ``0..count-1``; all as in :class:`HospitalRows`."""
        ...


class Question(Protocol):
    """Something the server asks hospitals, before training or in a round. What it returns has left the hospital.

    One that carries what the server has found out has an attribute ``scalars``: how many each hospital receives with
    it, one number for all or ``[N]``. Models that go with it are counted anyway, and what is configured is known
    everywhere. One whose answer is counts has an attribute ``row_change``: by how much one row changes them at most, in
    sum; they can then be told with noise.
    """

    kind: ClassVar[str]
    """Its name in the egress ledger."""

    def answer(self, rows: HospitalRows) -> Floats:
        """The hospital's answer, a flat vector of scalars."""
        ...


class Ask(Protocol):
    """How the server asks hospitals."""

    def __call__(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The answers of hospitals ``ids`` (all where None), in that order; ``models [M, P]`` travel to each."""
        ...


@dataclass(frozen=True)
class MeanLoss:
    """A hospital's mean training loss under each model that comes with the question, ``[M]``; NaN without rows."""

    kind: ClassVar[str] = "loss"

    def answer(self, rows: HospitalRows) -> Floats:
        return rows.losses.mean(axis=1) if len(rows.y) else np.full(len(rows.losses), np.nan)


@dataclass(frozen=True, eq=False)
class GroupSizes:
    """How many training rows a hospital has in each group of a division, ``[G]``. With it the division gets there."""

    division: Division
    kind: ClassVar[str] = "group_sizes"
    row_change: ClassVar[float] = 1.0

    @property
    def scalars(self) -> int | Ids:
        """Those of the division."""
        scalars: int | Ids = getattr(self.division, "scalars", 0)
        return scalars

    def answer(self, rows: HospitalRows) -> Floats:
        groups = self.division.assign(rows.X, rows.observed, rows.hospital)
        return np.bincount(groups, minlength=self.division.count).astype(np.float64)
