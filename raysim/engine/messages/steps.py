"""The hospital's side of the steps from a trained update to the sum over hospitals.

The order and the server's side of the steps are in :mod:`raysim.engine.server.update_pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import ExactSum
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.program_sums import SumLayout
from raysim.strategies.base import Floats, Mask, Program, Reply, Upload

UPDATE, EXTRAS = "update", "extras"
"""The names of the vectors that a hospital sends: its update, and further numbers. The update has ``G * P`` entries if
the hospital contributes to all ``G`` sums of ``P`` parameters."""


@dataclass(eq=False)
class Leaving:
    """The message of one local update: named vectors, which each step (such as clipping) changes in turn."""

    hospital: int
    entry: int
    upload: Upload
    """What hospitals send according to the local problem, and how it is summed."""
    vectors: dict[str, Floats]
    private: Mask | None
    """A mask of the parameters that never leave a hospital, ``[P]``; None without such parameters."""
    limit: float
    """The magnitude of every entry of the update must be below this number."""
    loss: Callable[[], float]
    """Returns the hospital's mean loss before training."""
    check: Callable[[Floats, float], None]
    """Raises :class:`TrainingDiverged` if an entry of the vector has a magnitude of at least the limit."""
    states: HospitalStates
    """What all hospitals of the process store between rounds. Steps may change it."""
    hidden: bool
    """Whether a privacy guarantee hides the hospital. If so, an update that is not finite is sent as zeros, without an
    error.
    """
    group: int = 0
    """The index of the group of patients on which the update was trained; 0 without groups."""
    bit: float | None = None
    """The bit that the hospital also sends, including any noise: 1/2 if the norm of its vectors was within the clipping
    bound, else -1/2. None means that no bit is sent."""
    grid: tuple[float, float] | None = None
    """Two numbers: the spacing of the grid on which the update's entries lie, and this spacing times the update's
    weight in the sum. None without a grid."""
    bits: int | None = None
    """The number of bits of the compressed update; None without compression."""

    @property
    def sum_index(self) -> int:
        """Return the index of the weighted sum to which the update is added."""
        into = self.upload.sum_index
        return 0 if into is None else int(into[self.entry])

    @property
    def update(self) -> Floats:
        """Return the vector named :data:`UPDATE`: the trained update with the changes of all steps so far."""
        return self.vectors[UPDATE]

    @update.setter
    def update(self, vector: Floats) -> None:
        self.vectors[UPDATE] = vector

    def checked(self) -> Floats:
        """Return the update. Raises :class:`TrainingDiverged` if its entries are not finite or too large, unless a
        privacy guarantee hides the hospital.
        """
        if not self.hidden:
            self.check(self.update, self.limit)
        return self.update

    def keep_private(self) -> None:
        """Set to 0 the update's private parameters, which never leave a hospital."""
        if self.private is not None:
            self.update[self.private] = 0.0

    def recall(self, what: str) -> NDArray[Any] | None:
        """Return the vector that the hospital stores under the name ``what``; None if there is none."""
        return self.states.get(self.hospital, {}).get(what)

    def forget(self, *names: str) -> None:
        """Delete the vectors that the hospital stores under these names."""
        for name in names:
            del self.states[self.hospital][name]

    def remember(self, what: str, vector: Any) -> None:
        """Store a copy of ``vector`` at the hospital for later rounds, under the name ``what``."""
        self.states.setdefault(self.hospital, {})[what] = vector.copy()


@dataclass(eq=False)
class LeavingSums:
    """What one hospital sends after it has run a client program; each step (such as clipping) changes it in turn."""

    hospital: int
    program: Program
    layout: SumLayout
    reply: Reply
    """The arrays that the program returned at the hospital, by name."""
    people: Callable[[], NDArray[Any]]
    """Returns the patient of each row, ``[n]``."""

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Return the hospital's sums as integers in fixed point, ``[layout.size]``. Later changes of ``reply`` have no
        effect.
        """
        return self.layout.units(self.reply)


class HospitalStep:
    """The hospital's side of a step between training and sending. By default, its methods change nothing."""

    remembers: bool = False
    """Whether hospitals store anything for this step after the round."""
    bit: bool = False
    """Whether each hospital also sends one bit that says whether its update was within the clipping bound."""
    trains: bool = True
    """Whether hospitals train. If not, they send their stored update again, changed by this step and all later ones."""

    @property
    def changes(self) -> bool:
        """Whether the step may change what single hospitals send. If so, a client program must return each hospital's
        sums separately.
        """
        return True

    @property
    def changes_rows(self) -> bool:
        """Whether the step changes the training rows of some hospitals."""
        return False

    def rows(self, hospital: int, X: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the features and labels on which a hospital trains in place of ``X [n, F]`` and ``y [n]``."""
        return X, y

    def forward(self, leaving: Leaving) -> None:
        """Change a hospital's message after a local update, before the message is sent."""

    def forward_sums(self, leaving: LeavingSums) -> None:
        """Change what a hospital sends for a client program, before it is sent."""


class Adding(HospitalStep):
    """The last step before sending: it adds the vectors to the sums. :class:`Masking` also masks the vectors."""

    @property
    def changes(self) -> bool:
        """Whether messages are masked before they are added."""
        return False

    def add(self, sums: ExactSum, group: int, weight: float, vector: NDArray[Any], hospital: int) -> None:
        """Add ``weight`` times the ``vector`` of ``hospital`` to the sum with index ``group``."""
        sums.add(group, weight, vector)

    def add_number(self, sums: ExactSum, number: float, hospital: int) -> None:
        """Add a number that ``hospital`` sends, such as its bit for adaptive clipping, to the first entry of the last
        sum.
        """
        sums.add(len(sums.units) - 1, 1.0, np.eye(1, sums.units.shape[1])[0] * number)

    def admits(self, group: int, hospital: int) -> bool:
        """Return whether the message of ``hospital`` is added to the sum with index ``group``."""
        return True
