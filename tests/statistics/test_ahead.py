"""Iterators whose next item is made while the present one is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from raysim.statistics.chance.ahead import ahead


def test_items_come_in_their_order_and_an_error_after_those_before_it():
    def broken() -> Iterator[int]:
        yield from range(3)
        raise ValueError("no more")

    assert list(ahead(range(5))) == [0, 1, 2, 3, 4]
    assert list(ahead([])) == []
    taken: list[int] = []
    with pytest.raises(ValueError, match="no more"):
        taken.extend(ahead(broken()))
    assert taken == [0, 1, 2]


def test_the_next_item_is_made_while_one_is_used_and_none_after_it():
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in ahead(items()):
        if number == 0:
            assert made[1].wait(60)
            assert not made[2].is_set()
            break
