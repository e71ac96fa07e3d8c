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
    """The training rows of one hospital, as a :class:`Question` receives them.

    - ``X [n, F]``: preprocessed features; the first ``D`` columns are values and the rest flags.
    - ``y [n]``: class indices below ``classes``.
    - ``observed [n, D]``: whether a value was recorded.
    - ``losses [M, n]``: each row's loss under each of the ``M`` models that came with the question.
    - ``outputs``: each model's outputs for the rows, ``[n]`` margins of class 1 for two classes, else ``[n, C]``
      logits.
    - ``patients()``: the attributes in the data (``sex`` and ``ethnicity`` as text, ``age`` in years), each ``[n]``.
    - ``rng``: the hospital's own random stream.
    - ``hospital``: the hospital's id.
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
    """A rule that divides the rows of every hospital into ``count`` groups by their features: clusters of patients.

    It is sent to the hospitals, so it is small and its fields are plain values and arrays. The group of a row depends
    only on that row and its hospital. It may have an attribute ``scalars`` like a :class:`Question`.
    """

    @property
    def count(self) -> int:
        """The number of groups, G."""
        ...

    def assign(self, X: NDArray[Any], observed: NDArray[np.bool_], hospital: int) -> Ids:
        """Return the group of each row ``[n]`` of ``hospital``, in ``0..count-1``; arguments as in
        :class:`HospitalRows`."""
        ...


class Question(Protocol):
    """A question of the server to hospitals, before training or in a round. Its answer leaves the hospital.

    A question that contains results of the server has an attribute ``scalars``: how many scalars each hospital receives
    with it, one number for all or ``[N]``. Models that are sent with it are counted separately, and configured values
    are known everywhere. A question whose answer follows from sums over rows can be :class:`Summed`; hospitals can then
    add noise to their answers.
    """

    kind: ClassVar[str]
    """The question's name in the egress ledger."""

    def answer(self, rows: HospitalRows) -> Floats:
        """Return the hospital's answer, a flat vector of scalars."""
        ...


@runtime_checkable
class Summed(Protocol):
    """A :class:`Question` whose answer follows from a sum over rows with bounded contributions.

    The argument ``nobody`` is a hospital without rows. It has the shapes and classes of all hospitals and reveals
    nothing.
    """

    kind: ClassVar[str]
    """The question's name in the egress ledger."""

    def added(self, rows: HospitalRows) -> Floats:
        """Return each row's contribution to the sum, ``[n, K]``."""
        ...

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        """Return the largest 1-norm and 2-norm of one row's contribution.

        May raise ``ValueError`` if they are not bounded.
        """
        ...

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        """Return the answer that follows from a sum ``[K]``. A noisy sum need not be the sum of any rows."""
        ...


class Ask(Protocol):
    """The function with which the server asks hospitals."""

    def __call__(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """Return the answers of hospitals ``ids`` (None: all) in this order; each receives ``models [M, P]``."""
        ...


LARGEST_LOSS = 8.0
"""The upper limit of one row's loss in noisy answers."""


@dataclass(frozen=True)
class MeanLoss:
    """A hospital's mean training loss under each model that comes with the question, ``[M]``; NaN without rows.

    As a sum over rows it adds each row's loss, limited to ``LARGEST_LOSS``, and the number of rows.
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
        """Compute the means, limited to between 0 and the largest loss, with a count of at least one row."""
        return LARGEST_LOSS * np.clip(sums[:-1] / max(float(sums[-1]), 1.0), 0.0, 1.0)


def one_of_each(index: Ids, count: int) -> Floats:
    """Return one-hot rows ``[n, count]``: each row has a one in the column ``index [n]``."""
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
    """How many training rows a hospital has in each group of a division, ``[G]``. The hospital also receives the
    division."""

    division: Division
    kind: ClassVar[str] = "group_sizes"

    @property
    def scalars(self) -> int | Ids:
        """The scalars of the division that each hospital receives."""
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
