"""An iterator that runs on a background thread."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundIterator(Generic[T]):
    """Runs the iterator ``items`` to its end on a background thread; :meth:`take` hands over what it has given."""

    def __init__(self, items: Iterator[T]) -> None:
        self._queue: SimpleQueue[T | _End] = SimpleQueue()
        self._end: _End | None = None
        Thread(target=self._run, args=(items,), daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether all items have been taken. Never True of an iterator that raised; :meth:`take` raises its error."""
        return self._end is not None and self._end.error is None

    def take(self, seconds: float | None = None) -> list[T]:
        """Wait for an item, then return all that are there; an empty list at the end, or after ``seconds`` without one.

        Raises the iterator's error once all items before it have been taken.
        """
        taken: list[T] = []
        while self._end is None and (not taken or not self._queue.empty()):
            try:
                item = self._queue.get(timeout=seconds)
            except Empty:
                return taken
            if isinstance(item, _End):
                self._end = item
            else:
                taken.append(item)
        if not taken and self._end is not None and self._end.error is not None:
            raise self._end.error
        return taken

    def _run(self, items: Iterator[T]) -> None:
        error = None
        try:
            for item in items:
                self._queue.put(item)
        except BaseException as raised:  # raised again by take
            error = raised
        self._queue.put(_End(error))


class _End:
    """The iterator has come to its end, or has failed."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
