"""A run that goes on from any checkpoint recalibrates as one that was never stopped; so does a comparison."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.engine.run_state import RunState
from raysim.storage.encoding import decode, encode
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.shared.personalization import RECALIBRATED, LastSteps, Personalization, Recalibration
from tests.conftest import MakeFederation, job_of
from tests.storage.test_checkpoint import run_once, same


@pytest.mark.parametrize("tuned", [None, Personalization(1, 0.05)])
def test_from_any_checkpoint_the_same_bits(tuned, federate: MakeFederation) -> None:
    federation = federate([9, 4, 13, 6], [8, 8, 8, 8], validation=[6, 9, 0, 8])
    job = job_of(federation, FedAvg(), last=LastSteps(tuned, Recalibration()), rounds=3)
    *events, alone = run_once(federation, job)
    states = [event for event in events if isinstance(event, RunState)]
    assert [state.round for state in states] == [1, 2, 3]
    for state in states:
        read, _ = decode(encode(state, "abc", job.strategy), job.strategy)
        *_, outcome = run_once(federation, job, read, every=0)
        same(outcome, alone)
        assert np.array_equal(outcome.recalibrated.shifts.intercept, alone.recalibrated.shifts.intercept)
        assert np.array_equal(outcome.figures[RECALIBRATED], alone.figures[RECALIBRATED], equal_nan=True)
