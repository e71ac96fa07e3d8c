"""Sums before training: of which masks are made, and that they are the same without."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.secure import setup
from raysim.secure.protocol import SecureSum
from raysim.secure.setup import SetupSums


@pytest.mark.parametrize(("hospitals", "execute", "masked"), [(1, True, 0), (2, True, 1), (4, True, 1), (4, False, 0)])
def test_masks_are_made_where_they_are_executed_and_there_are_two(monkeypatch, hospitals, execute, masked):
    made = []

    class Noted(SecureSum):
        def __init__(self, **arguments):
            made.append(self)
            super().__init__(**arguments)

    monkeypatch.setattr(setup, "SecureSum", Noted)
    vectors = [np.array([3, -7, 2**62]) * (k + 1) for k in range(hospitals)]
    total = SetupSums("auto", "auto", 0, execute=execute).total(vectors, seed=5)
    assert total.tolist() == np.sum(vectors, axis=0).tolist()
    assert len(made) == masked


def test_no_round_of_training_has_a_mask_of_theirs(monkeypatch):
    masked = []

    class Noted(SecureSum):
        def masked(self, hospital, vector):
            masked.append(super().masked(hospital, vector))
            return masked[-1]

    monkeypatch.setattr(setup, "SecureSum", Noted)
    vectors = [np.array([3, -7, 2**62])] * 3
    SetupSums("auto", "auto", 0, execute=True).total(vectors, seed=5)
    of_setup = masked.copy()
    monkeypatch.setattr(setup, "BEFORE", 1)  # as if it were the first round
    SetupSums("auto", "auto", 0, execute=True).total(vectors, seed=5)
    for hospital in range(3):
        assert not np.array_equal(of_setup[hospital], masked[3 + hospital])
