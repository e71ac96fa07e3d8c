"""A checkpoint is written on a thread of its own while the next rounds train: nothing of it may change meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.core import registry
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.storage.encoding import encode
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, fitting, job_of, with_patients

STRATEGIES = sorted(registry.entries("strategies"))
SECTIONS = {
    "compression": {"compression": CompressionSection(name="top_k", ratio=0.5)},
    "secure": {"secure": SecureSection.model_validate({"mode": "execute", "threshold": 3, "drop": {"mask": 0.2}})},
    "adversary": {"adversary": AdversarySection(attack="gaussian", share=0.3)},
    "time": {"system": SystemSection(rows_per_second=50.0)},
}


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return with_patients(federate([12, 9, 0, 10, 11, 13, 8, 10], features=5))


def check(federation: Federation, job: Job) -> None:
    """Each checkpoint is the same when the run offers it and when the run is over."""
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    offered = [
        (event, encode(event, "abc", job.strategy))
        for event in JobRun(pool, job).events(1)
        if isinstance(event, RunState)
    ]
    assert offered or not job.rounds
    for standing, content in offered:
        assert encode(standing, "abc", job.strategy) == content


@pytest.mark.parametrize("name", STRATEGIES)
def test_of_every_strategy(federation: Federation, name: str) -> None:
    strategy: Any = registry.load("strategies", name, "strategy.name")()
    check(federation, fitting(job_of(federation, strategy, rounds=3, every=1), federation))


@pytest.mark.parametrize("section", SECTIONS)
def test_with_a_section(federation: Federation, section: str) -> None:
    check(federation, replace(job_of(federation, FedAvg(), rounds=3, every=1), **SECTIONS[section]))
