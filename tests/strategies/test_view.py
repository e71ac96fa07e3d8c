"""What the server knows of the federation, and what a selection is given of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.strategies.base import Draw, FederationView, Ids, Selection, State, choose


class Recording(Selection):
    """Picks everybody, and keeps the draw."""

    def pick(self, draw: Draw) -> Ids:
        self.draw = draw
        return draw.candidates


def view(sizes: list[int]) -> FederationView:
    """A view of hospitals with ``sizes`` training rows."""
    return FederationView(
        names=tuple(str(h) for h in range(len(sizes))),
        sizes=np.array(sizes),
        classes=2,
        initial=np.zeros(1),
        local_epochs=1,
        learning_rate=1.0,
        selection=Recording(),
        memory=None,
        rng=lambda purpose, *key: np.random.default_rng(0),
        ask=lambda question, **how: [],
    )


def test_trainable_hospitals_are_found_once_for_the_views_of_all_rounds():
    first = view([3, 0, 5])
    assert first.trainable.tolist() == [0, 2]
    assert replace(first, round=7).trainable is first.trainable
    assert replace(first, sizes=np.array([0, 4, 5])).trainable.tolist() == [1, 2]
    assert first.trainable.tolist() == [0, 2]
    with pytest.raises(ValueError, match="read-only"):
        first.trainable[0] = 1


@pytest.mark.parametrize("sizes", [[3, 0, 5], [3, 1, 5]])
def test_a_draw_has_the_rows_of_its_candidates(sizes: list[int]):
    server = view(sizes)
    picked = choose(server, State(np.zeros((1, 1))), server.trainable, "cohort")
    assert picked.tolist() == [h for h in range(3) if sizes[h]]
    assert isinstance(server.selection, Recording)
    assert server.selection.draw.sizes.tolist() == [n for n in sizes if n]
