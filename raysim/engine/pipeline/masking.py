"""A hospital's half of secure sums, which masks what it adds, and how the server opens the sums of a round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import ExactSum
from raysim.engine.messages.steps import Adding, LeavingSums
from raysim.secure.protocol import SecureSum
from raysim.strategies.base import Floats, Ids, Update


@dataclass(frozen=True, eq=False)
class Masking(Adding):
    """A hospital's half: the secure sums of a round, to which it adds."""

    sums: tuple[SecureSum | None, ...]
    """By sum; None where there are too few hospitals to mask it."""
    execute: bool
    """Whether masks are really made, and not only counted."""
    number_sum: SecureSum | None = None
    """Sum of one scalar per hospital, stored in the first entry of the last sum. None if too few hospitals remain."""

    def add(self, sums: ExactSum, group: int, weight: float, vector: NDArray[np.float64], hospital: int) -> None:
        """Add what ``hospital`` sends to sum ``group``, unless it is lost or the sum will not be opened."""
        secure = self.sums[group]
        if secure is None or not self.admits(group, hospital):
            return
        if not self.execute:
            sums.add(group, weight, vector)
            return
        alone = ExactSum(1, vector.shape[0])
        alone.add(0, weight, vector)
        sums.units[group] += secure.masked(hospital, alone.units[0]).view(np.int64)

    def forward_sums(self, leaving: LeavingSums) -> None:
        (secure,) = self.sums
        if self.execute and secure is not None:
            leaving.units = secure.masked(leaving.hospital, leaving.units).view(np.int64)

    @property
    def changes(self) -> bool:  # type: ignore[override]
        """Whether masks are really made."""
        return self.execute

    def admits(self, group: int, hospital: int) -> bool:
        """Whether a message of ``hospital`` enters sum ``group``: it is not lost, and the sum is opened."""
        secure = self.sums[group]
        return secure is not None and secure.opens and hospital in secure.in_sum

    @cached_property
    def everybody(self) -> bool:  # type: ignore[override]
        """Whether the messages of all hospitals enter their sums."""
        return all(secure is not None and secure.opens and not secure.lost.anybody for secure in self.sums)

    def admitted(self, groups: Ids, hospitals: Ids) -> NDArray[np.bool_]:
        """Which messages of ``hospitals [h]`` to the sums ``groups [h]``, in which they have weights, enter these."""
        admitted = np.zeros(len(groups), dtype=np.bool_)
        for group in set(groups.tolist()):
            secure, in_group = self.sums[group], groups == group
            if secure is not None and secure.opens:
                admitted[in_group] = np.isin(hospitals[in_group], secure.masking)
        return admitted

    def add_number(self, sums: ExactSum, number: float, hospital: int) -> None:
        """Add the ``number`` of ``hospital`` to the sum of numbers, likewise."""
        if self.number_sum is None or not self.number_sum.opens or hospital not in self.number_sum.in_sum:
            return
        unit = ExactSum(1, 1)
        unit.add(0, 1.0, np.array([number]))
        if self.execute:
            unit.units[0] = self.number_sum.masked(hospital, unit.units[0]).view(np.int64)
        sums.units[-1, :1] += unit.units[0]


@dataclass(frozen=True, eq=False)
class Opening:
    """How the server opens the sums of a round."""

    masking: Masking
    """Who masked them."""
    scale: Floats
    """The factor that scales each sum to the weights of all, ``[G]``; 0 for one that is given up."""

    def opened(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums ``[G, P]`` without masks; those that are given up are 0."""
        opened = units.copy()
        for g, secure in enumerate(self.masking.sums):
            if secure is None or not secure.opens:
                opened[g] = 0
            elif self.masking.execute:
                opened[g] = secure.unmasked(units[g].view(np.uint64))
        number_sum = self.masking.number_sum
        if number_sum is not None and number_sum.opens and self.masking.execute:
            opened[-1, :1] = number_sum.unmasked(units[-1, :1].view(np.uint64))
        return opened

    def scaled(self, update: Update) -> Update:
        """The update with its sums scaled to the weights of all."""
        if (self.scale == 1.0).all():
            return update
        count, numbers = len(update.sums), update.numbers
        if numbers is not None:
            numbers = numbers * self.scale[count]
        return replace(update, sums=update.sums * self.scale[:count, None], numbers=numbers)
