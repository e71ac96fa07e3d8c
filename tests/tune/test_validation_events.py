"""A sweep says when its validation rows cannot tell trials apart."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.data.federation import Federation
from raysim.tune.plan import make_plan
from raysim.tune.results import few_events, validation_events
from tests.tune.conftest import small_tree


@pytest.fixture
def federations() -> list[Federation]:
    plan, _ = make_plan(small_tree(seeds=[1, 2]))
    return [Federation.open(folder) for folder in plan.folders.values()]


def test_the_rarer_class_of_the_seed_that_has_the_fewest_is_counted(federations):
    by_hand = []
    for federation in federations:
        start, stop = federation.bounds[:, 1], federation.bounds[:, 2]
        y = np.concatenate([federation.y[a:b] for a, b in zip(start, stop, strict=True)])
        by_hand.append(min(int((y == 1).sum()), int((y == 0).sum())))
    assert validation_events(federations) == min(by_hand)


@pytest.mark.parametrize(("events", "said"), [(29, True), (30, False), (None, False), (0, True)])
def test_the_rule(events, said):
    sentence = few_events(events)
    assert bool(sentence) == said
    assert not said or sentence.startswith(f"validation rows hold {events} events, fewer than 30: ")
