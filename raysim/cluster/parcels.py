"""Messages through sockets, whose large arrays are written from where they stand and read to where they will stand.

A pickle would copy them once on either side, and a connection of :mod:`multiprocessing` twice more. Messages travel by
steps: at each, a socket that does not block would block, and what is waited for is told.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Generator, Sequence
from selectors import EVENT_READ, EVENT_WRITE
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

T = TypeVar("T")
Steps: TypeAlias = Generator[int, None, T]
"""What gives, before it goes on, the event of :mod:`selectors` that it waits for; and returns its result."""

LARGE = 2**16
"""Bytes of an array from which on it travels beside the pickle."""
_SIZE = Struct("Q")


class Parcel(NamedTuple):
    """An object as bytes."""

    text: bytes
    """Its pickle and the sizes of ``arrays``, and before these the number of their bytes."""
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

        pickled = pickle.dumps(value, 5, buffer_callback=within)
        text = pickle.dumps((pickled, [array.nbytes for array in arrays]))
        return Parcel(_SIZE.pack(len(text)) + text, arrays)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return len(self.text) + sum(array.nbytes for array in self.arrays)

    def sending(self, socket: int) -> Steps[None]:
        """Write it. Raises ``OSError`` where nobody reads."""
        for left in (memoryview(self.text), *self.arrays):
            while len(left):
                try:
                    left = left[os.write(socket, left) :]
                except BlockingIOError:
                    yield EVENT_WRITE


def receiving(socket: int) -> Steps[Any]:
    """The object of the next parcel. Raises ``EOFError`` or ``OSError`` where it does not come whole."""
    (size,) = _SIZE.unpack((yield from _reading(socket, _SIZE.size)))
    pickled, sizes = pickle.loads((yield from _reading(socket, size)))
    arrays = []
    for size in sizes:
        arrays.append((yield from _reading(socket, size)))
    return pickle.loads(pickled, buffers=arrays)


def _reading(socket: int, size: int) -> Steps[memoryview]:
    array = np.empty(size, np.uint8).data
    left = array
    while len(left):
        try:
            more = os.readv(socket, [left])
        except BlockingIOError:
            yield EVENT_READ
            continue
        if not more:
            raise EOFError
        left = left[more:]
    return array


def at_once(steps: Steps[T]) -> T:
    """The result of ``steps`` on a socket that blocks, where they have nothing to wait for."""
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise BlockingIOError
