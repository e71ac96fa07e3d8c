"""An iterator whose next item is computed in the background while the current item is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield ``items`` in their order, while a thread computes the next one.

    Work on large arrays, during which numpy lets other threads run, thus uses two cores.
    """
    making = iter(items)

    def one() -> tuple[T, ...]:
        for item in making:
            return (item,)
        return ()

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(one)
        while item := coming.result():
            coming = thread.submit(one)
            yield from item
