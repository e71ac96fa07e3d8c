"""Compressed updates in runs: what is counted, what is remembered, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.compression import compressors
from raysim.config.sections.compression import CompressionSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.engine.job import Outcome
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.storage.encoding import decode, encode
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fednova import FedNova
from tests.conftest import job_of, run

KINDS = [
    {"name": "top_k", "ratio": 0.5},
    {"name": "top_k", "ratio": 0.3, "feedback": "ef21"},
    {"name": "top_k", "ratio": 0.3, "feedback": "none"},
    {"name": "random_k", "ratio": 0.5},
    {"name": "random_k", "ratio": 0.5, "indices": "own"},
    {"name": "sign"},
    {"name": "qsgd", "levels": 4},
    {"name": "grid", "bits": 12, "feedback": "ef"},
]


def made(name):
    return registry.load("strategies", name, "strategy.name")()


@pytest.fixture
def federation(federate):
    return federate([12, 9, 0, 10, 11, 13, 8, 10], features=5)


def compressed(federation, strategy, kind, **settings):
    return replace(job_of(federation, strategy, **settings), compression=CompressionSection(**kind))


def same(one: Outcome, other: Outcome):
    assert np.array_equal(one.models, other.models)
    assert [row.bytes_up for row in one.rounds] == [row.bytes_up for row in other.rounds]


@pytest.mark.parametrize("kind", [{}, {"name": "top_k", "ratio": 1.0}, {"name": "random_k", "ratio": 1.0}])
@pytest.mark.parametrize("strategy", ["fedavg", "chip", "fedper", "ditto"])
def test_sending_all_is_no_compression(federation, strategy, kind):
    settings = {}
    if strategy == "fedper":
        from tests.conftest import MLP

        settings["model"] = MLP
    plain = run(federation, job_of(federation, made(strategy), **settings), 1)
    same(run(federation, compressed(federation, made(strategy), kind, **settings), 2), plain)


@pytest.mark.parametrize("strategy", ["fedavg", "ditto"])
def test_ef21_of_all_entries_is_no_compression(federation, strategy):
    plain = run(federation, job_of(federation, made(strategy)), 1)
    job = compressed(federation, made(strategy), {"name": "top_k", "ratio": 1.0, "feedback": "ef21"})
    outcome = run(federation, job, 2)
    np.testing.assert_allclose(outcome.models, plain.models, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_placement_changes_nothing(federation, kind):
    job = compressed(federation, FedAvg(), kind, rounds=4)
    one = run(federation, job, 1)
    same(run(federation, job, 3), one)
    assert not np.array_equal(one.models, run(federation, job_of(federation, FedAvg(), rounds=4), 1).models)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_a_run_that_goes_on_ends_with_the_same_bits(federation, kind):
    job = compressed(federation, FedAvg(), kind, rounds=4)
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, job).events(1)
    for standing in (event for event in events if isinstance(event, RunState)):
        read, _ = decode(encode(standing, "abc", job.strategy), job.strategy)
        *_, outcome = JobRun(pool, job, read).events()
        same(outcome, alone)


def test_bits_are_traffic(federation):
    p, hospitals = 6, 7
    for kind, bits in (
        ({"name": "top_k", "ratio": 0.5}, compressors.top_k_bits(p, 3)),
        ({"name": "random_k", "ratio": 0.5}, 3 * 32),
        ({"name": "qsgd", "levels": 4}, 32 + p * 4),
        ({"name": "grid", "bits": 12}, 12 * p),
        ({"name": "sign"}, 32 + p),
    ):
        outcome = run(federation, compressed(federation, FedAvg(), kind), 2)
        assert [row.bytes_up for row in outcome.rounds] == [hospitals * (-(-bits // 8) + 4)] * 3
        assert [row.bytes_down for row in outcome.rounds] == [hospitals * p * 4] * 3


@pytest.mark.parametrize("name", ["top_k", "qsgd", "sign"])
def test_numbers_that_are_sent_with_a_compressed_update_are_traffic(federation, name):
    """FedNova sends its number of steps, 4 bytes, beside what FedAvg sends."""
    compression = CompressionSection(name=name)
    plain, more = (
        run(federation, replace(job_of(federation, strategy, rounds=1), compression=compression), 1).ledger
        for strategy in (FedAvg(), FedNova())
    )
    (sent,), (sent_more,) = ([each for _, kind, _, each, _ in of.entries if kind == "update"] for of in (plain, more))
    assert (sent_more == sent + 4).all()


def test_nothing_is_lost_with_error_feedback(federation):
    """What the server has added up, and what hospitals still owe, is what they would have sent: here of one round."""
    job = compressed(federation, FedAvg(), {"name": "top_k", "ratio": 0.3}, rounds=1)
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, job).events(1)
    (standing,) = [event for event in events if isinstance(event, RunState)]
    plain = run(federation, job_of(federation, FedAvg(), rounds=1), 1)
    sizes = federation.sizes("train")
    owed = sum(
        sizes[hospital] / sizes.sum() * vectors["residual of 0"] for hospital, vectors in standing.states.items()
    )
    assert np.abs(owed).max() > 1e-3
    np.testing.assert_allclose(alone.models[0] + owed, plain.models[0], rtol=0, atol=1e-12)


def test_what_cannot_be_compressed(federation):
    with pytest.raises(ConfigError, match=r"compression.name: strategy .* sends whole models"):
        run(federation, compressed(federation, made("fedsoft"), {"name": "sign"}), 1)
    with pytest.raises(Exception, match=r"compression.feedback: 'ef' grows without bound"):
        CompressionSection(name="random_k", feedback="ef")
