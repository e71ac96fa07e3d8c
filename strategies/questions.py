"""What the server may ask hospitals about their training rows, and how rows are divided into groups.

Shapes: ``N`` hospitals in the federation, ``n`` rows of one hospital, ``M`` models, ``G`` groups of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.problem import Floats, Ids


@dataclass(frozen=True, eq=False)
class HospitalRows:
    """The training rows of one hospital, as a :class:`Question` sees them.

    ``X [n, F]`` preprocessed features, of which the first ``D`` columns are values and the rest flags,
    ``y [n]`` class indices out of ``classes``, ``observed [n, D]`` whether a value was recorded. ``losses [M, n]`` is
    each row's loss under each of the ``M`` models that came with the question, and ``outputs`` each model's outputs
    for the rows: ``[n]`` margins of class 1 for two classes, else ``[n, C]`` logits. ``patients()`` gives the
    attributes that the data knows (``sex`` and ``ethnicity`` as text, ``age`` in years), each ``[n]``. ``rng`` is the
    hospital's own random stream, ``hospital`` its id.
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
    """Divides the rows of every hospital into ``count`` groups by their features: clusters of patients.

    It travels to the hospitals, so it is small and its fields are plain values and arrays. The group of a row depends
    on that row and its hospital alone. It may have ``scalars``, as a :class:`Question` has.
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

    A question that carries results of the server has an attribute ``scalars``: how many each hospital receives with it,
    one number for all or ``[N]``. Models that travel with it are counted anyway, and configured values are known
    everywhere. A question whose answer follows from sums over rows can be :class:`Summed`; hospitals can then add noise
    to their answers.
    """

    kind: ClassVar[str]
    """Its name in the egress ledger."""

    def answer(self, rows: HospitalRows) -> Floats:
        """The hospital's answer, a flat vector of scalars."""
        ...


@runtime_checkable
class Summed(Protocol):
    """A :class:`Question` whose answer follows from a sum over rows, where the contribution of a row is bounded.

    The argument ``nobody`` is a hospital without rows, which has the shapes and classes of all and reveals nothing.
    """

    kind: ClassVar[str]
    """Its name in the egress ledger."""

    def added(self, rows: HospitalRows) -> Floats:
        """What each row adds to the sum, ``[n, K]``."""
        ...

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        """The greatest 1-norm and 2-norm of what one row adds.

        May raise ``ValueError`` where these are not bounded.
        """
        ...

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        """The answer from a sum ``[K]``, which with noise need not be the sum of any rows."""
        ...


class Ask(Protocol):
    """How the server asks hospitals."""

    def __call__(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The answers of hospitals ``ids`` (all where None), in that order; ``models [M, P]`` travel to each."""
        ...


LARGEST_LOSS = 8.0
"""The bound of one row's loss in noisy answers."""


@dataclass(frozen=True)
class MeanLoss:
    """A hospital's mean training loss under each model that comes with the question, ``[M]``; NaN without rows.

    As a sum over rows: the loss of each, at most ``LARGEST_LOSS``, and how many rows there are.
    """

    kind: ClassVar[str] = "loss"

    def answer(self, rows: HospitalRows) -> Floats:
        return rows.losses.mean(axis=1) if len(rows.y) else np.full(len(rows.losses), np.nan)

    def added(self, rows: HospitalRows) -> Floats:
        shares = np.clip(np.nan_to_num(rows.losses, nan=LARGEST_LOSS) / LARGEST_LOSS, 0.0, 1.0)
        return np.column_stack([shares.T, np.ones(len(rows.y))])

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        scalars = 1 + len(nobody.losses)
        return float(scalars), math.sqrt(scalars)

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        """The means lie between 0 and the largest loss, and there is one row at least."""
        return LARGEST_LOSS * np.clip(sums[:-1] / max(float(sums[-1]), 1.0), 0.0, 1.0)


def one_of_each(index: Ids, count: int) -> Floats:
    """A one for each row ``[n]`` in the column of its ``index [n]``, ``[n, count]``."""
    return np.eye(count)[index]


@dataclass(frozen=True)
class Size:
    """How many training rows a hospital has, ``[1]``."""

    kind: ClassVar[str] = "size"

    def answer(self, rows: HospitalRows) -> Floats:
        return np.array([float(len(rows.y))])

    def added(self, rows: HospitalRows) -> Floats:
        return np.ones((len(rows.y), 1))

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        return 1.0, 1.0

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        return sums


@dataclass(frozen=True, eq=False)
class GroupSizes:
    """How many training rows a hospital has in each group of a division, ``[G]``; this also sends it the division."""

    division: Division
    kind: ClassVar[str] = "group_sizes"

    @property
    def scalars(self) -> int | Ids:
        """Those of the division."""
        scalars: int | Ids = getattr(self.division, "scalars", 0)
        return scalars

    def answer(self, rows: HospitalRows) -> Floats:
        groups = self.division.assign(rows.X, rows.observed, rows.hospital)
        return np.bincount(groups, minlength=self.division.count).astype(np.float64)

    def added(self, rows: HospitalRows) -> Floats:
        return one_of_each(self.division.assign(rows.X, rows.observed, rows.hospital), self.division.count)

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        return 1.0, 1.0

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        return np.maximum(sums, 0.0)
