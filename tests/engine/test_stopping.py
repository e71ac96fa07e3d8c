"""When checks end a run, and which of them serves: sequences whose answer can be read off."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core.early_stopping import Checks


def checks(before: float, *losses: float) -> Checks:
    made = Checks(before)
    for t, loss in enumerate(losses, 1):
        made = made.after(t, loss)
    return made


@pytest.mark.parametrize(
    ("losses", "best", "waited"),
    [
        ((), None, 0),
        ((0.5,), 0, 0),
        ((0.5, 0.4, 0.3), 2, 0),
        ((0.5, 0.5, 0.5), 0, 2),  # ties: the earliest
        ((0.5, 0.4, 0.45, 0.41), 1, 2),
        ((1.2, 1.1), 1, 2),  # never below the loss before training, which is 1
        ((0.5, 0.495), 1, 1),  # lower, but not by more than .01
        ((0.5, 0.495, 0.489), 2, 0),  # two small falls are one
        ((0.5, 0.49), 1, 1),  # exactly the tolerance is not more than it
        ((math.nan, 0.5), 1, 0),
        ((0.5, math.nan, math.inf), 0, 2),
        ((math.nan,), None, 1),
    ],
)
def test_the_best_check_and_the_wait(losses: tuple[float, ...], best: int | None, waited: int) -> None:
    made = checks(1.0, *losses)
    assert made.best == best
    assert made.waited(0.01) == waited


@pytest.mark.parametrize("before", [math.nan, math.inf])
def test_a_loss_before_training_that_is_not_finite(before: float) -> None:
    assert checks(before, math.nan, math.inf).waited(0.01) == 2
    assert checks(before, math.nan, 2.0).waited(0.01) == 0
    assert checks(before, 2.0, 1.99).waited(0.01) == 1  # relative to 2
    assert checks(before, 2.0, 1.97).waited(0.01) == 0


@given(st.lists(st.floats(0.1, 2), min_size=1, max_size=30), st.floats(0, 0.1))
def test_identities(losses: list[float], tolerance: float) -> None:
    made = checks(1.0, *losses)
    assert made.best is not None
    assert losses[made.best] == min(losses)
    assert made.losses[: made.best].count(min(losses)) == 0
    assert 0 <= made.waited(tolerance) <= len(losses)
    doubled = Checks(2.0, made.rounds, tuple(2 * loss for loss in losses))
    assert doubled.waited(tolerance) == made.waited(tolerance)
    assert made.after(99, 3.0).waited(tolerance) == made.waited(tolerance) + 1
