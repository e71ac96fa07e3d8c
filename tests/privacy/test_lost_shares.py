"""Hospitals that are lost during secure aggregation take their share of the noise along: what is left still hides."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.engine.job import Job
from raysim.engine.pipeline.secure_sums import SecureSums
from raysim.engine.pipeline.shares import sure_to_be_left
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.storage.encoding import decode, encode
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of, run

SIZES = [5, 3, 8, 4, 6, 7, 3, 5, 4]
DISTRIBUTED = {"unit": "hospital", "mode": "distributed"}
POOLED = {"unit": "patient", "mode": "pooled"}
OWN = {"unit": "patient", "mode": "local"}


def guaranteed(federation, way, drop, mode="model", rounds=1, privacy=None, secure=None, **settings) -> Job:
    keys = way | {"delta": 1e-3, "noise_multiplier": 0.0, "declared_public": ("sizes", "metrics")} | (privacy or {})
    job = job_of(federation, FedAvg(weights="uniform"), rounds=rounds, **settings)
    job = replace(
        job, privacy=PrivacySection(**keys), secure=SecureSection(mode=mode, drop={"mask": drop}, **(secure or {}))
    )
    check_job(job, federation)
    return job


def lost(job: Job, drop: float, round: int = 1) -> set[int]:
    return set(SecureSums(job.secure, job.work.seed, "", 1)._lost(round, "mask", drop, np.arange(len(SIZES))))


def test_how_many_are_sure_to_be_left():
    assert sure_to_be_left(SecureSection(), 9) == 9
    assert sure_to_be_left(SecureSection(drop={"mask": 0.1}), 9) == 7  # floor(2 * 9 / 3) + 1
    assert sure_to_be_left(SecureSection(drop={"mask": 0.1}, threshold=4), 9) == 4
    assert sure_to_be_left(SecureSection(drop={"mask": 0.1}, threshold=2, minimum=5), 9) == 5
    assert sure_to_be_left(SecureSection(drop={"mask": 0.1}, minimum=30), 9) == 9


def test_a_pooled_step_is_made_of_the_gradients_that_came_and_divided_by_all_patients(federate):
    """By hand: a logistic regression from zeros, whose gradient of a row is (1/2 - y) (x, 1)."""
    federation = federate(SIZES)
    job = guaranteed(federation, POOLED, 0.2, seed=5, privacy={"rate": 1, "clip": 1e9}, learning_rate=0.5)
    gone = lost(job, 0.2)
    assert 0 < len(gone) <= 2
    total = np.zeros(4)
    for hospital in set(range(9)) - gone:
        rows = federation.rows(hospital, "train")
        X = np.column_stack([federation.X[rows].astype(float), np.ones(rows.stop - rows.start)])
        total += (0.5 - federation.y[rows]) @ X
    assert run(federation, job, 2).models[0] == pytest.approx(-0.5 * total / sum(SIZES), abs=1e-10)


@pytest.mark.parametrize("way", [DISTRIBUTED, POOLED])
def test_what_is_left_has_at_least_the_noise_of_the_guarantee(federate, way):
    """Each share is a seventh of the variance, so that s hospitals left of nine add up to s/7 of it."""
    wide = federate([3] * 9, features=4000)
    privacy = {"noise_multiplier": 2.0, "clip": 1e-7} | ({"rate": 1e-3} if way is POOLED else {})
    job = guaranteed(wide, way, 0.15, seed=3, learning_rate=1.0, privacy=privacy)
    left = 9 - len(lost(job, 0.15))
    assert left in (7, 8)
    unit = 2e-7 / (1e-3 * 27) if way is POOLED else 2e-7 / 9
    deviation = run(wide, job, 1).models[0].std()
    assert deviation == pytest.approx(unit * math.sqrt(left / 7), rel=0.04)


class Uneven(Clustered):
    """Clusters of three and of six hospitals."""

    def setup(self, view):
        state = super().setup(view)
        return replace(
            state, models=np.repeat(state.models[:1], 3, axis=0), cluster=np.array([1, 2, 2, 1, 2, 2, 1, 2, 2])
        )


@pytest.mark.parametrize("drop", [0.0, 0.12])
def test_each_clusters_shares_hold_the_whole_noise_of_hospitals(federate, drop):
    """Of three and six hospitals. Where some are lost, each share is what those that are sure to be left need."""
    wide = federate([3] * 9, features=4000)
    job = guaranteed(
        wide, DISTRIBUTED, drop, seed=8, privacy={"noise_multiplier": 2.0, "clip": 1e-7}, learning_rate=1.0
    )
    job = replace(job, strategy=Uneven(clusters=1), secure=job.secure.model_copy(update={"minimum": 3}))
    check_job(job, wide)
    gone, models = lost(job, drop) if drop else set(), run(wide, job, 2).models
    assert bool(gone) == bool(drop)
    for row, members in ((1, {0, 3, 6}), (2, {1, 2, 4, 5, 7, 8})):
        left, sure = len(members - gone), sure_to_be_left(job.secure, len(members))
        whole = 2e-7 / len(members) * math.sqrt(left / sure) if left >= sure else 0.0  # a sum of fewer is given up
        assert models[row].std() == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("way", [DISTRIBUTED, POOLED])
def test_too_few_shares_change_nothing_and_cost_bytes(federate, way):
    """Three of nine masked vectors would do for secure.minimum, and would hold too little noise."""
    federation = federate(SIZES)
    job = guaranteed(federation, way, 0.5, "execute", seed=4, privacy={"noise_multiplier": 1.0, "clip": 0.1})
    assert 3 <= 9 - len(lost(job, 0.5)) < 7
    outcome = run(federation, job, 2)
    assert not outcome.models.any()
    assert outcome.rounds[0].bytes_up > 0
    assert outcome.facts["secure_sums_given_up"] == 1


@pytest.mark.parametrize("way", [DISTRIBUTED, POOLED, OWN, {"unit": "hospital"}])
def test_masks_change_no_bit_and_a_run_goes_on(federate, way):
    federation = federate(SIZES)
    privacy = {"noise_multiplier": 1.0, "clip": 0.1} | ({} if way is not POOLED else {"rate": 0.5})
    model, execute = (
        guaranteed(federation, way, 0.1, mode, rounds=4, seed=4, privacy=privacy) for mode in ("model", "execute")
    )
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(JobRun(pool, execute).events(2))
    (stood,) = [event for event in events if isinstance(event, RunState) and event.round == 2]
    assert (run(federation, model, 1).models == events[-1].models).all()
    again, _ = decode(encode(stood, "print", execute.strategy), execute.strategy)
    *_, outcome = JobRun(pool, execute, again).events()
    assert (outcome.models == events[-1].models).all()
    assert outcome.privacy == events[-1].privacy


def test_epsilon_counts_the_shares_that_are_sure_to_be_there(federate):
    """An outsider faces the whole noise at least; of seven shares a peer knows its own."""
    from raysim.privacy.accountant import epsilon
    from raysim.privacy.events import Gaussian

    federation = federate(SIZES)
    job = guaranteed(federation, DISTRIBUTED, 0.1, rounds=4, privacy={"noise_multiplier": 5.0})
    epsilons = run(federation, job, 1).privacy.epsilons
    assert epsilons["outsider"] == epsilons["server"] == pytest.approx(epsilon([Gaussian(5.0, 1.0, 4)], 1e-3))
    assert epsilons["peer"] == pytest.approx(epsilon([Gaussian(5.0 * math.sqrt(6 / 7), 1.0, 4)], 1e-3))


def test_hospitals_own_noise_is_scaled_with_what_came(federate):
    """Each noisy model of its own stands for itself: what is left is averaged as without a guarantee."""
    federation = federate(SIZES)
    one = {"epochs": 1, "batch_size": 0, "seed": 7}
    local_noise = guaranteed(federation, OWN, 0.2, privacy={"clip": 1e9}, **one)
    plain = replace(local_noise, privacy=None)
    assert lost(local_noise, 0.2)
    assert run(federation, local_noise, 1).models == pytest.approx(run(federation, plain, 1).models, abs=1e-10)
