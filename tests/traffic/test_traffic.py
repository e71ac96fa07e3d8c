"""What goes down to hospitals that selections ask: each model once in a round, and not again to who is under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.system import SystemSection
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_server import JobServer
from raysim.storage.encoding import decode, encode
from raysim.strategies.asynchronous.fedasync import FedAsync
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.hospital_clusters.hierarchical import Hierarchical
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.kfed import KFed
from raysim.strategies.selections.power_of_choice import PowerOfChoice
from tests.conftest import job_of, run_strategy
from tests.strategies.test_identities import SIZES

RUN: dict[str, Any] = {"rounds": 3, "epochs": 2}


@pytest.mark.parametrize(
    ("strategy", "models"), [(Clustered(clusters=2), 4), (Chip(clusters=2), 4 + 2), (Hierarchical(clusters=2), 4)]
)
def test_candidates_tell_losses_under_the_model_that_they_would_start_from(strategy, models, federate, monkeypatch):
    """Of four that are asked, each about its cluster's model, two train from it; CHiP-FL's also get the global one."""
    federation = federate([40, 30, 25, 20, 30, 22])
    asked = []
    measure = JobServer.measure

    def listen(self, call):
        if call.program.name == "loss":
            asked.append((self.view.round, call.received["models"], call.ids))
        return measure(self, call)

    monkeypatch.setattr(JobServer, "measure", listen)
    selection = PowerOfChoice(candidates=4, fraction=0.34, minimum=1)
    outcome = run_strategy(federation, strategy, selection=selection, **RUN)
    assert [row.bytes_down for row in outcome.rounds] == [4 * models * outcome.layout.size] * 3
    before = run_strategy(federation, strategy, selection=selection, rounds=2, epochs=2)
    last = [(theta, ids) for t, theta, ids in asked if t == 3]
    assert sum(len(ids) for _, ids in last) == 4
    for theta, ids in last:
        assert len(theta) == 1
        for row in before.cluster[ids]:
            assert theta[0].tolist() == before.models[row].tolist()


def test_a_hospital_under_way_is_not_sent_the_model_that_it_was_asked_about(federate):
    """Three train at a time. From round 3 on two are asked in each; one of them starts, and another arrives.

    Two started in each of the first two rounds without being asked, and receive what they train from besides.
    """
    slow = SystemSection(rows_per_second={"uniform": [1.0, 10.0]})
    selection = PowerOfChoice(candidates=2, fraction=0.1, minimum=1)
    outcome = run_strategy(federate([20] * 8), FedAsync(concurrency=3), rounds=8, selection=selection, system=slow)
    asked = np.bincount(
        [t for t, kind, ids, _, _ in outcome.ledger.entries for _ in ids if kind == "loss"], minlength=9
    )[1:]
    down = np.array([row.bytes_down for row in outcome.rounds]) // (4 * outcome.layout.size)
    assert asked.tolist() == [0, 0, 2, 2, 2, 2, 2, 2]
    assert (down - asked).sum() == 4
    assert (down - asked)[-3:].tolist() == [0, 0, 0]


def test_a_run_that_goes_on_knows_what_those_under_way_were_sent(federate):
    slow = SystemSection(rows_per_second={"uniform": [1.0, 10.0]})
    selection = PowerOfChoice(candidates=2, fraction=0.1, minimum=1)
    federation = federate([20] * 8)
    job = job_of(federation, FedAsync(concurrency=3), rounds=7, selection=selection, system=slow)
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    *events, whole = JobRun(pool, job).events(1)
    for standing in (event for event in events if isinstance(event, RunState)):
        *_, again = JobRun(pool, job, decode(encode(standing, "print", job.strategy), job.strategy)[0]).events()
        assert again.traffic == whole.traffic


def test_a_late_hospital_is_not_sent_the_model_that_it_was_asked_about(federate):
    """Six are asked in round 1, of which the first arrives in round 2; there the others take part without questions."""
    federation = federate(SIZES)
    rates = {f"h{i}": {"rows_per_second": SIZES[i] / (5.5 if i == 0 else 1.0)} for i in range(6)}
    late = SystemSection.model_validate({"hospitals": rates, "rounds": {"deadline": 5, "late": "discount"}})
    selection = PowerOfChoice(candidates=6, fraction=0.9, minimum=5)
    outcome = run_strategy(federation, FedAvg(), rounds=2, selection=selection, system=late)
    assert [row.cohort_size for row in outcome.rounds] == [4, 6]
    assert [row.bytes_down // (4 * outcome.layout.size) for row in outcome.rounds] == [6, 5]


def test_models_of_patient_clusters_come_beside_the_one_that_is_asked_about(federate):
    """All are asked about the mean of the models; in round 1 that is what each of them starts from, and has once."""
    federation = federate(SIZES)
    some = PowerOfChoice(candidates=6, fraction=0.5, minimum=1)
    outcome = run_strategy(federation, KFed(clusters=2), selection=some, **RUN)
    size = 4 * outcome.layout.size
    trained = [(len(ids), int(b.sum()) // size) for _, kind, ids, b, _ in outcome.ledger.entries if kind == "update"]
    assert [row.bytes_down // size for row in outcome.rounds] == [
        6 + models - (hospitals if t == 0 else 0) for t, (hospitals, models) in enumerate(trained)
    ]
