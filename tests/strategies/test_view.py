"""What the server knows of the federation, and what a selection is given of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.strategies.base import Answers, Draw, FederationView, Ids, Invalid, Selection, State, choose


class Recording(Selection):
    """Picks everybody, and keeps the draw."""

    def pick(self, draw: Draw) -> Ids:
        self.draw = draw
        return draw.candidates


class Fixed(Selection):
    """Picks the same hospitals always."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = np.array(ids)

    def pick(self, draw: Draw) -> Ids:
        return self.ids


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
        call=lambda call: Answers({}, {}, call.ids, np.array([0])),
    )


@pytest.mark.parametrize("sizes", [[3, 0, 5], [3, 1, 5]])
def test_a_draw_has_the_rows_of_its_candidates(sizes: list[int]):
    server = view(sizes)
    picked = choose(server, State(np.zeros((1, 1))), server.trainable, "cohort")
    assert picked.tolist() == [h for h in range(3) if sizes[h]]
    assert isinstance(server.selection, Recording)
    assert server.selection.draw.sizes.tolist() == [n for n in sizes if n]


@pytest.mark.parametrize("sizes", [[0, 3, 1, 4, 0], [0, 3, 0, 4, 1]])
def test_a_pick_is_checked_against_the_candidates_with_gaps_and_without(sizes: list[int]):
    server = view(sizes)
    for ids in ([0], [1], [2], [3], [4], [5], [-1, 1], [0, 3], [1, 3], [3, 4], [1, 3, 7]):
        chosen = replace(server, selection=Fixed(ids))
        if all(h in server.trainable for h in ids):
            assert choose(chosen, State(np.zeros((1, 1))), server.trainable, "cohort").tolist() == ids
        else:
            with pytest.raises(Invalid, match="out of the candidates"):
                choose(chosen, State(np.zeros((1, 1))), server.trainable, "cohort")
