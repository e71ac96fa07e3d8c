"""Secure aggregation: the hospital's side masks messages, and the server's side opens a round's sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import ExactSum
from raysim.engine.messages.steps import Adding, LeavingSums
from raysim.secure.protocol import SecureSum
from raysim.strategies.base import Floats, Update


@dataclass(frozen=True, eq=False)
class Masking(Adding):
    """The hospital's side of secure aggregation: mask messages and add them to the sums of a round."""

    sums: tuple[SecureSum | None, ...]
    """The secure aggregation of each sum over hospitals; None for a sum with too few hospitals."""
    execute: bool
    """Whether masks are really computed; if not, only their bytes are counted."""
    number_sum: SecureSum | None = None
    """The secure aggregation of the number that each hospital sends, such as its bit for adaptive clipping. The sum of
    these numbers is the first entry of the last sum. None if no numbers are sent, or if too few hospitals take part."""

    def add(self, sums: ExactSum, group: int, weight: float, vector: NDArray[np.float64], hospital: int) -> None:
        """Add ``weight`` times ``vector``, the message of ``hospital``, to the sum with index ``group``, unless
        :meth:`admits` excludes the message.
        """
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
    def changes(self) -> bool:
        """Whether masks are really computed."""
        return self.execute

    def admits(self, group: int, hospital: int) -> bool:
        """Return whether the message of ``hospital`` is added to the sum with index ``group``: the hospital must not
        have dropped out, and enough hospitals must remain to open the sum.
        """
        secure = self.sums[group]
        return secure is not None and secure.opens and hospital in secure.in_sum

    def add_number(self, sums: ExactSum, number: float, hospital: int) -> None:
        """Add the ``number`` of ``hospital`` to the sum of hospitals' numbers, unless the hospital has dropped out or
        too few hospitals remain to open the sum.
        """
        if self.number_sum is None or not self.number_sum.opens or hospital not in self.number_sum.in_sum:
            return
        unit = ExactSum(1, 1)
        unit.add(0, 1.0, np.array([number]))
        if self.execute:
            unit.units[0] = self.number_sum.masked(hospital, unit.units[0]).view(np.int64)
        sums.units[-1, :1] += unit.units[0]


@dataclass(frozen=True, eq=False)
class Opening:
    """How the server removes the masks from the sums of a round."""

    masking: Masking
    scale: Floats
    """For each sum, the factor that makes up for the weights of hospitals that dropped out, ``[G]``; 0 for a discarded
    sum."""

    def opened(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums ``[G, P]`` without masks. A sum is 0 if too few hospitals remained to open it."""
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
        """Return the update with its sums scaled up to the weights of all hospitals, including those that dropped
        out.
        """
        if (self.scale == 1.0).all():
            return update
        count, numbers = len(update.sums), update.numbers
        if numbers is not None:
            numbers = numbers * self.scale[count]
        return replace(update, sums=update.sums * self.scale[:count, None], numbers=numbers)
