"""Iterators that run on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from raysim.cluster.coordinator import BackgroundIterator
from tests.waiting import until


def held(*gates: threading.Event) -> Iterator[int]:
    """The numbers of ``gates``, each once it is open."""
    for number, gate in enumerate(gates):
        assert gate.wait(600)
        yield number


def test_items_come_in_their_order_and_then_none():
    iterator = BackgroundIterator(iter(range(1000)))
    taken: list[int] = []
    while items := iterator.take():
        taken += items
    assert taken == list(range(1000))
    assert iterator.over
    assert iterator.take() == []


def test_one_that_waits_for_a_while_gets_what_is_there():
    first, second = threading.Event(), threading.Event()
    iterator = BackgroundIterator(held(first, second))
    assert iterator.take(0.01) == []
    assert not iterator.over
    first.set()
    assert iterator.take(60) == [0]
    assert iterator.take(0.01) == []
    second.set()
    assert iterator.take() == [1]


def test_an_error_is_raised_after_the_items_before_it():
    def broken() -> Iterator[int]:
        yield 7
        raise ValueError("no more")

    iterator = BackgroundIterator(broken())
    until(lambda: iterator._queue.qsize() == 2)  # the error is there when the item is taken
    assert iterator.take() == [7]
    assert not iterator.over
    with pytest.raises(ValueError, match="no more"):
        iterator.take()
