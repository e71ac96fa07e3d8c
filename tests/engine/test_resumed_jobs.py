"""Every strategy goes on from a checkpoint as if it had never stopped: with every selection, under every guarantee.

Each strategy is run in each way, each selection with many strategies, and not every triple: what is kept of a
selection, of a strategy and of a guarantee are parts of their own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import Strategy
from raysim.strategies.hospital_clusters.fedsoft import FedSoft
from tests.conftest import fitting, job_of, with_patients
from tests.privacy.test_strategies_by_mode import MODES, RUNS, guaranteed

WAYS: dict[str, Any] = {**MODES, "compression": (None, None)}
SELECTIONS = sorted(registry.entries("selections"))
SEVERAL = 2
"""Selections that a strategy is run with where there is no guarantee or no other."""


def job_with(federation: Federation, name: str, selection: str, way: str) -> Job:
    """A job of three rounds. Raises ``ConfigError`` for what does not go together."""
    cls = registry.load("strategies", name, "strategy.name")
    settings: dict[str, Any] = {"weights": "uniform"} if "weights" in cls.__dataclass_fields__ else {}
    settings |= {"clusters": 2} if "clusters" in cls.__dataclass_fields__ else {}
    chosen = registry.load("selections", selection, "selection.name")()
    job = fitting(job_of(federation, cls(**settings), selection=chosen, rounds=3), federation)
    privacy, secure = WAYS[way]
    guarantee = guaranteed(job, privacy)
    compression = CompressionSection(name="top_k", ratio=0.5) if way == "compression" else None
    job = replace(job, privacy=guarantee, secure=secure, compression=compression)
    check_job(job, federation)
    return job


def run_once(federation: Federation, job: Job, since: RunState | None = None) -> tuple[Outcome, dict[int, RunState]]:
    """The outcome, and the state after each round."""
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, outcome = JobRun(pool, job, since).events(1)
    assert isinstance(outcome, Outcome)
    return outcome, {e.round: e for e in events if isinstance(e, RunState)}


def restored(state: RunState, job: Job) -> RunState:
    """The state as a checkpoint gives it back."""
    return decode(encode(state, "run", job.strategy), job.strategy)[0]


def check_resumed(federation: Federation, job: Job) -> None:
    """From its second checkpoint, or its last, the job ends as it did."""
    whole, states = run_once(federation, job)
    assert 2 in states or type(job.strategy).done is not Strategy.done
    again, _ = run_once(federation, job, restored(states[min(2, max(states))], job))
    np.testing.assert_array_equal(again.models, whole.models)
    assert again.privacy == whole.privacy
    assert [entry[:2] for entry in again.ledger.entries] == [entry[:2] for entry in whole.ledger.entries]


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name in RUNS for way in WAYS if way in RUNS[name] | {"compression"}]
)
def test_a_checkpoint_is_gone_on_from(federate, name: str, way: str):
    """With others for each strategy and way."""
    federation, tried = with_patients(federate([12, 9, 10, 11, 13, 8])), 0
    first, several = [*RUNS].index(name) + [*WAYS].index(way), way == "compression" or RUNS[name] == {way}
    for turn in range(len(SELECTIONS)):
        selection = SELECTIONS[(first + turn) % len(SELECTIONS)]
        if tried == (SEVERAL if several else 1):
            break
        try:
            job = job_with(federation, name, selection, way)
            if selection == "all" or job.strategy.uses_selection():
                check_resumed(federation, job)
                tried += 1
        except ConfigError:
            pass  # some are refused by their first problem
    assert tried or way not in RUNS[name]


@pytest.mark.parametrize("selection", ["importance", "configured"])
def test_a_private_fedsoft_is_gone_on_from(federate, selection: str):
    """Whom its centres draw follows from what hospitals sent in earlier rounds, which a checkpoint has no more."""
    federation = with_patients(federate([12, 9, 10, 11, 13, 8]))
    job = job_of(federation, FedSoft(clusters=2, every=1, fraction=0.4, selection=selection), rounds=4)
    guarantee = PrivacySection(unit="patient", mode="local", noise_multiplier=1.0, delta=1e-3)
    check_resumed(federation, replace(job, privacy=guarantee))


def test_updates_of_others_than_a_checkpoint_names_are_refused(federate):
    federation = with_patients(federate([12, 9, 10, 11]))
    job = job_with(federation, "fedsoft", "all", "local")
    _, states = run_once(federation, job)
    since = restored(states[2], job)
    assert since.history is not None
    since.history.cohorts[0] = since.history.cohorts[0][:-1]
    with pytest.raises(ValueError, match=re.escape("updates of round 1 from hospitals that did not take part")):
        run_once(federation, job, since)
