"""The hospital's side of the steps between training and the sums.

Steps are, for example, clipping, compression and masking. Hospitals receive them in order with the other instructions
of a round. Their order, and the server's side of each step, are in :mod:`raysim.engine.server.update_pipeline`.
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
"""The names of the vectors that a hospital sends: its update, and further numbers. The update has ``G P`` entries if
the hospital contributes to all ``G`` sums of ``P`` parameters."""


@dataclass(eq=False)
class Leaving:
    """The message of one local update: named vectors, which each step (such as clipping or compression) changes in
    turn.
    """

    hospital: int
    entry: int
    """The position of the local update among all updates of the local problem."""
    upload: Upload
    """What hospitals send according to the local problem, and how it is summed."""
    vectors: dict[str, Floats]
    """The vectors that the hospital sends, by name: :data:`UPDATE` and :data:`EXTRAS`."""
    private: Mask | None
    """A mask of the parameters that never leave a hospital, ``[P]``; None without such parameters."""
    limit: float
    """The number that the magnitude of every entry must stay below."""
    loss: Callable[[], float]
    """A function that returns the hospital's mean loss before training."""
    check: Callable[[Floats, float], None]
    """A function of a vector and a limit. It raises :class:`TrainingDiverged` if an entry's magnitude reaches the
    limit."""
    states: HospitalStates
    """What all hospitals of the process store between rounds. Steps may change it."""
    hidden: bool
    """Whether a privacy guarantee hides the hospital. If so, an update that is not finite is sent as zeros, without an
    error.
    """
    group: int = 0
    """The index of the group of patients on which the update was trained; 0 without groups."""
    bit: float | None = None
    """The hospital's bit for the last sum: 1/2 if the norm of its vectors was within the clipping bound, else -1/2,
    plus any noise. None means that no bit is sent."""
    grid: tuple[float, float] | None = None
    """The step of the grid on which the update's entries lie, and this step times the update's weight in the sum; None
    without a grid."""
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
        """Set the parameters of the update that never leave a hospital to 0."""
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
    """What one hospital sends after it has run a client program. Each step (such as clipping or masking) changes it in
    turn.
    """

    hospital: int
    program: Program
    """The program that the hospital has run."""
    layout: SumLayout
    """The positions of the program's sums in the vector that is added up."""
    reply: Reply
    """What the program has returned at the hospital, as named arrays."""
    people: Callable[[], NDArray[Any]]
    """A function that returns the patient of each row, ``[n]``."""

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Return the hospital's sums as integers in fixed point, ``[layout.size]``. Once they are computed, changes of
        ``reply`` have no effect.
        """
        return self.layout.units(self.reply)


class HospitalStep:
    """The hospital's side of a step between training and sending, such as clipping. By default it changes nothing;
    subclasses override some methods.
    """

    remembers: bool = False
    """Whether hospitals store anything for this step after the round."""
    bit: bool = False
    """Whether each hospital also sends one bit that says whether its update was within the clipping bound. The bits are
    added in a separate last sum."""
    trains: bool = True
    """Whether hospitals train. If not, they send their stored update again after this step and all later steps have
    processed it."""

    @property
    def changes(self) -> bool:
        """Whether the step changes what hospitals send."""
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
    """The last step before sending, which adds the vectors to the sums. Its subclass :class:`Masking` also hides the
    vectors.
    """

    @property
    def changes(self) -> bool:
        """Whether messages are masked before they are added."""
        return False

    def add(self, sums: ExactSum, group: int, weight: float, vector: NDArray[Any], hospital: int) -> None:
        """Add ``weight`` times the ``vector`` of ``hospital`` to the sum with index ``group``."""
        sums.add(group, weight, vector)

    def add_number(self, sums: ExactSum, number: float, hospital: int) -> None:
        """Add a number of ``hospital`` to the first entry of the last sum, such as the bit that says whether its update
        was within the clipping bound.
        """
        sums.add(len(sums.units) - 1, 1.0, np.eye(1, sums.units.shape[1])[0] * number)

    def admits(self, group: int, hospital: int) -> bool:
        """Return whether the message of ``hospital`` is added to the sum with index ``group``."""
        return True
