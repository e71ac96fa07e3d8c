"""Messages through sockets, whose large arrays are written from where they stand and read to where they will stand.

A pickle would copy them once on either side, and a connection of :mod:`multiprocessing` twice more.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

LARGE = 2**16
"""Bytes of an array from which on it travels beside the pickle."""


class Parcel(NamedTuple):
    """An object as bytes."""

    text: bytes
    """Its pickle."""
    arrays: Sequence[memoryview]
    """The large arrays that are not in it. They are the object's own: it must not change before they are sent."""

    @staticmethod
    def of(value: Any) -> Parcel:
        """Raises what ``pickle`` raises for what it cannot take."""
        arrays: list[memoryview] = []

        def within(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes >= LARGE:
                arrays.append(view)
            return view.nbytes < LARGE

        return Parcel(pickle.dumps(value, 5, buffer_callback=within), arrays)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return len(self.text) + sum(array.nbytes for array in self.arrays)

    def send(self, line: Connection) -> None:
        """Write it. Raises ``OSError`` where nobody reads."""
        line.send_bytes(pickle.dumps((self.text, [array.nbytes for array in self.arrays])))
        for array in self.arrays:
            sent = 0
            while sent < len(array):
                sent += os.write(line.fileno(), array[sent:])


def receive(line: Connection) -> Any:
    """The object of the next parcel. Raises ``EOFError`` or ``OSError`` where it does not come whole."""
    text, sizes = pickle.loads(line.recv_bytes())
    return pickle.loads(text, buffers=[_read(line, size) for size in sizes])


def _read(line: Connection, size: int) -> memoryview:
    array, filled = np.empty(size, np.uint8).data, 0
    while filled < size:
        more = os.readv(line.fileno(), [array[filled:]])
        if not more:
            raise EOFError
        filled += more
    return array
