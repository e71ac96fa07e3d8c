"""The sums of a client program, concatenated in one vector of integers.

The vectors of all hospitals are added, so that one secure sum is enough for all sums of a program.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Program, Reply, Send

SUM_BYTES = 8
"""The number of bytes of each number that a hospital sends in reply to a call of a client program."""

ROWS_BYTES = 2**24
"""The largest number of bytes of an array that are rounded at a time."""


class SumLayout:
    """The positions of a client ``program``'s sums in one vector of integers."""

    def __init__(self, program: Program) -> None:
        self.summed = {name: send for name, send in program.sends.items() if send.how == "summed"}
        self.each = {name: send for name, send in program.sends.items() if send.how == "each"}
        self.groups = max((send.groups for send in program.sends.values()), default=1)
        self.places: dict[str, slice] = {}
        end = 0
        for name, send in self.summed.items():
            begin, end = end, end + math.prod(send.shape) * send.groups
            self.places[name] = slice(begin, end)
        self.size = end + self.groups
        """The length of the vector: all sums, followed by the number of hospitals in each group (:attr:`Reply.group`).
        """

    def units(self, reply: Reply) -> NDArray[np.int64]:
        """Return the integers that one hospital adds to the sums, ``[size]``: the summed arrays in ``reply``, rounded
        to fixed point, and a 1 for the hospital's group.
        """
        vector = np.zeros(self.size, np.int64)
        for name, send in self.summed.items():
            into = vector[self.places[name]].reshape(send.groups, *send.shape)
            into[reply.group if send.groups > 1 else 0] = _rounded(np.asarray(reply.sent[name]), send)
        vector[self.size - self.groups + reply.group] = 1
        return vector

    def single(self, reply: Reply, name: str) -> NDArray[np.float64]:
        """Return the array called ``name`` from one hospital's ``reply``. This array is not summed over hospitals.

        An array with one entry per row is rounded to fixed point and summed over the rows.
        """
        send, array = self.each[name], np.asarray(reply.sent[name], np.float64)
        if array.ndim == len(send.shape):  # a step may have added the rows
            return array
        return np.multiply(_rounded(array, send), 2.0**-send.bits, dtype=np.float64)

    def values(self, vector: NDArray[np.int64]) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
        """Return, from the sum ``vector`` over all hospitals, the sums by name and the number of hospitals in each
        group (:attr:`Reply.group`).
        """
        sums = {}
        for name, send in self.summed.items():
            shape = send.shape if send.groups == 1 else (send.groups, *send.shape)
            sums[name] = np.multiply(vector[self.places[name]].reshape(shape), 2.0**-send.bits, dtype=np.float64)
        return sums, vector[self.size - self.groups :]

    def kinds(self) -> dict[str, int]:
        """Return the number of bytes that each hospital sends, by kind of message, without the additional bytes of
        secure sums.
        """
        sent: dict[str, int] = {}
        for send in [*self.summed.values(), *self.each.values()]:
            sent[send.kind] = sent.get(send.kind, 0) + SUM_BYTES * send.groups * math.prod(send.shape)
        return sent


def _rounded(array: NDArray[Any], send: Send) -> NDArray[np.int64]:
    if send.by == "hospital":
        return np.rint(array * 2.0**send.bits).astype(np.int64)
    total = np.zeros(send.shape, np.int64)
    step = max(1, ROWS_BYTES // max(1, SUM_BYTES * math.prod(send.shape)))
    for first in range(0, len(array), step):
        total += np.rint(array[first : first + step] * 2.0**send.bits).astype(np.int64).sum(axis=0)
    return total
