"""A run that is no trial is played in a worker, as this process would play it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import TrainingDiverged
from raysim.engine.job import Outcome
from raysim.experiment.session import InProcess
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.tune.running import places
from raysim.tune.running.places import InWorker
from tests.conftest import MakeFederation, job_of, shared_ray

pytestmark = shared_ray("sweeps")

SIZES = [9, 6, 4]


def outcome_of(session: InProcess, job) -> Outcome:
    *_, outcome = session.run(job)
    assert isinstance(outcome, Outcome)
    return outcome


def test_a_worker_plays_a_job_with_the_same_bits(federate: MakeFederation, monkeypatch):
    federation = federate(SIZES)
    job, resources = job_of(federation, FedAvg()), ResourcesSection()
    here = outcome_of(InProcess(federation.totals, resources), job)
    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "run", None)  # not in this process
        there = outcome_of(InWorker(federation.totals, resources), job)
    np.testing.assert_array_equal(there.bank, here.bank)
    assert json.dumps(there.metrics) == json.dumps(here.metrics)  # some are NaN
    assert json.dumps([row.metrics for row in there.rounds]) == json.dumps([row.metrics for row in here.rounds])


def test_an_error_in_a_worker_is_raised_as_it_is(federate: MakeFederation, monkeypatch):
    federation = federate(SIZES)

    def diverges(*_):
        raise TrainingDiverged("round 2")

    monkeypatch.setattr(places, "_played", diverges)
    with pytest.raises(TrainingDiverged, match=r"^round 2$"):
        outcome_of(InWorker(federation.totals, ResourcesSection()), job_of(federation, FedAvg()))


def test_a_job_whose_worker_is_lost_is_played_here(federate: MakeFederation, monkeypatch):
    federation = federate(SIZES)
    job = job_of(federation, FedAvg())
    monkeypatch.setattr(places, "_played", lambda *_: os._exit(1))
    outcome = outcome_of(InWorker(federation.totals, ResourcesSection()), job)
    np.testing.assert_array_equal(outcome.bank, outcome_of(InProcess(federation.totals, ResourcesSection()), job).bank)
