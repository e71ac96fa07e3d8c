"""A hospital's half of the steps between its training and the sums. Halves travel with the plan of a round, in order.

The order, and the server's half of each step, stand in :mod:`raysim.engine.server.update_pipeline`.
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
from raysim.strategies.base import Floats, Ids, Mask, Program, Reply, Upload

UPDATE, BESIDE = "update", "beside"
"""The names of vectors that leave a hospital: its update, which is ``[G P]`` where it has a part in every sum, and the
numbers that it sends beside."""


@dataclass(eq=False)
class Leaving:
    """What one entry of a round is about to send: named vectors, which each step changes in its turn."""

    hospital: int
    """The hospital's id."""
    entry: int
    """Which entry of the problem it is."""
    upload: Upload
    """What the problem asks for."""
    vectors: dict[str, Floats]
    """By name."""
    private: Mask | None
    """The parameters ``[P]`` that never leave a hospital."""
    limit: float
    """The magnitude that every entry must stay below."""
    loss: Callable[[], float]
    """Its mean loss before training."""
    check: Callable[[Floats, float], None]
    """Raises :class:`TrainingDiverged` where a vector reaches a limit."""
    kept: HospitalStates
    """What hospitals remember; steps write to it."""
    hidden: bool
    """Whether a guarantee hides the hospital: then an update that is not finite is sent as zeros, without an error."""
    group: int = 0
    """The group of patients that it trained on."""
    bit: float | None = None
    """Whether its vectors were short enough, for the sum behind all others."""
    grid: tuple[float, float] | None = None
    """The step of the common grid that its update is a multiple of, and the weight of a step in the sum."""
    bits: int | None = None
    """The bits of its compressed update."""

    @property
    def sum_index(self) -> int:
        """The sum that its update is for."""
        into = self.upload.sum_index
        return 0 if into is None else int(into[self.entry])

    @property
    def update(self) -> Floats:
        """The vector that training has made."""
        return self.vectors[UPDATE]

    @update.setter
    def update(self, vector: Floats) -> None:
        self.vectors[UPDATE] = vector

    def checked(self) -> Floats:
        """The update. Raises :class:`TrainingDiverged` for one beyond the limit, unless the hospital is hidden."""
        if not self.hidden:
            self.check(self.update, self.limit)
        return self.update

    def keep_private(self) -> None:
        """Set the parameters of the update that never leave a hospital to 0."""
        if self.private is not None:
            self.update[self.private] = 0.0

    def recall(self, what: str) -> NDArray[Any] | None:
        """What the hospital remembers under a name."""
        return self.kept.get(self.hospital, {}).get(what)

    def forget(self, *names: str) -> None:
        """Have the hospital forget what it remembers under these names."""
        for name in names:
            del self.kept[self.hospital][name]

    def remember(self, what: str, vector: Any) -> None:
        """Have the hospital remember a copy of ``vector`` under the name ``what``."""
        self.kept.setdefault(self.hospital, {})[what] = vector.copy()


@dataclass(eq=False)
class LeavingSums:
    """What one hospital is about to send to the call of a client program, which each step changes in its turn."""

    hospital: int
    """The hospital's id."""
    program: Program
    """What it has computed."""
    layout: SumLayout
    """Where the sums of the program are."""
    reply: Reply
    """What it sends, as named arrays."""
    people: Callable[[], NDArray[Any]]
    """``people()``: the patient of each row, ``[n]``."""

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Its sums in steps of their grids, ``[layout.size]``: once they are asked for, they are what leaves."""
        return self.layout.units(self.reply)


class HospitalStep:
    """A hospital's half of a step. A subclass overrides what it does."""

    changes: bool = True
    """Whether anything is other than without it."""
    changes_rows: bool = False
    """Whether some hospitals train on other rows than their own."""
    remembers: bool = False
    """Whether hospitals remember anything of it after the round."""
    bit: bool = False
    """Whether each hospital also sends a bit, which goes into a separate last sum."""
    trains: bool = True
    """Whether hospitals train; else they send from the update that they hold, and walk from this step on."""

    def rows(self, hospital: int, X: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """What a hospital trains on in place of ``X [n, F]`` and ``y [n]``."""
        return X, y

    def forward(self, leaving: Leaving) -> None:
        """Change the update that is about to leave a hospital."""

    def forward_sums(self, leaving: LeavingSums) -> None:
        """Change what is about to leave a hospital for the call of a client program."""


class Adding(HospitalStep):
    """The last step: what has become of the vectors is added to the sums. :class:`Masking` also hides them."""

    changes = False
    everybody = True
    """Whether the messages of all hospitals enter their sums."""

    def add(self, sums: ExactSum, group: int, weight: float, vector: NDArray[Any], hospital: int) -> None:
        """Add what ``hospital`` sends to sum ``group``."""
        sums.add(group, weight, vector)

    def add_number(self, sums: ExactSum, number: float, hospital: int) -> None:
        """Add a number of ``hospital`` to the first entry of the sum behind all others."""
        sums.add(len(sums.units) - 1, 1.0, np.eye(1, sums.units.shape[1])[0] * number)

    def admits(self, group: int, hospital: int) -> bool:
        """Whether a message of ``hospital`` enters sum ``group``."""
        return True

    def admitted(self, groups: Ids, hospitals: Ids) -> NDArray[np.bool_]:
        """Which messages of ``hospitals [h]`` to the sums ``groups [h]`` enter these."""
        return np.ones(len(groups), dtype=np.bool_)
