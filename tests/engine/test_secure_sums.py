"""Secure sums in runs: the same bits as plain sums, hospitals lost at any stage, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.engine.job import Outcome
from raysim.engine.pipeline.secure_sums import SecureSums
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.secure import traffic
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import LocalProblem, Upload
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All
from raysim.traffic.exchange import Traffic
from tests.conftest import job_of, run


def made(name):
    return registry.load("strategies", name, "strategy.name")()


@pytest.fixture
def federation(federate):
    return federate([12, 9, 0, 10, 11, 13, 8, 10, 9, 12])


def hidden(federation, strategy, secure, **settings):
    job = replace(job_of(federation, strategy, **settings), secure=SecureSection(**secure))
    check_job(job, federation)
    return job


def same(one: Outcome, other: Outcome):
    assert np.array_equal(one.models, other.models)
    assert repr(one.metrics) == repr(other.metrics)


@pytest.mark.parametrize(
    "strategy", ["fedavg", "fedprox", "fedadam", "scaffold", "ditto", "clustered", "chip", "local"]
)
def test_execute_is_model_is_plain(federation, strategy):
    settings = {"clusters": 2} if strategy in ("clustered", "chip") else {}
    strategy = registry.load("strategies", strategy, "strategy.name")(**settings)
    plain = run(federation, job_of(federation, strategy, precision="float32"), 1)
    for mode, actors in (("model", 1), ("execute", 1), ("execute", 3)):
        outcome = run(federation, hidden(federation, strategy, {"mode": mode}, precision="float32"), actors)
        same(outcome, plain)
        assert outcome.facts["secure_sums_given_up"] <= outcome.facts["secure_sums"]


@pytest.mark.parametrize("neighbours", ["all", 4])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_lost_hospitals_change_both_modes_alike(federation, seed, neighbours):
    drop = {"share": 0.1, "mask": 0.15, "unmask": 0.1}
    secure = {"threshold": 3, "neighbours": neighbours, "drop": drop}
    model = run(federation, hidden(federation, FedAvg(), secure, rounds=5, seed=seed), 2)
    execute = run(federation, hidden(federation, FedAvg(), secure | {"mode": "execute"}, rounds=5, seed=seed), 3)
    same(execute, model)
    assert [row.bytes_up for row in execute.rounds] == [row.bytes_up for row in model.rounds]
    assert not np.array_equal(
        model.models, run(federation, job_of(federation, FedAvg(), rounds=5, seed=seed), 1).models
    )


def test_each_sum_of_a_round_has_masks_of_its_own():
    """Two passes over the updates of a round, then the next round; the number of a sum decides its masks."""
    sums = SecureSums(SecureSection(mode="execute"), 3, "fedavg", 2)
    problem = LocalProblem(np.zeros(5, np.int64), Upload(np.full(5, 0.2)))
    passes = [sums.hospital_step(round, problem, np.arange(5)) for round in (1, 1, 2)]
    assert [(secure.round, secure.group) for each in passes for secure in each.sums] == [(1, 0), (1, 1), (2, 0)]
    first, again, later = (each.sums[0].masked(0, np.zeros(2, np.int64)).tolist() for each in passes)
    assert first != again != later != first


def test_who_is_left_counts_for_all(federation):
    """One round in which some masked updates never come: the average of the others by rows."""
    deltas = {}

    class Watching(FedAvg):
        def problem(self, view, state, ids):
            problem = super().problem(view, state, ids)
            return replace(problem, upload=replace(problem.upload, single=True))

        def aggregate(self, view, state, update):
            deltas.update(zip(update.ids.tolist(), update.deltas, strict=True))
            return super().aggregate(view, state, update)

    start = run(federation, job_of(federation, FedAvg(), rounds=0), 1).models[0]
    run(federation, job_of(federation, Watching(), rounds=1), 1)
    secure = {"threshold": 2, "drop": {"mask": 0.3}}
    job = hidden(federation, FedAvg(), secure, rounds=1)
    outcome = run(federation, job, 1)
    from raysim.engine.pipeline.secure_sums import SecureSums

    sums = SecureSums(job.secure, 1, "x", 4)
    ids = np.array(sorted(deltas))
    lost = sums._lost(1, "mask", 0.3, ids)
    assert 0 < len(lost) < len(ids) - 2
    left = [i for i in ids.tolist() if i not in lost]
    sizes = federation.sizes("train")[left]
    mean = sizes / sizes.sum() @ np.stack([deltas[i] for i in left])
    np.testing.assert_allclose(outcome.models[0] - start, mean, rtol=0, atol=1e-11)


def test_too_few_change_nothing_and_cost_bytes(federation):
    start = run(federation, job_of(federation, FedAvg(), rounds=0), 1).models
    secure = {"minimum": 9, "drop": {"mask": 0.9}}
    for mode in ("model", "execute"):
        outcome = run(federation, hidden(federation, FedAvg(), secure | {"mode": mode}), 2)
        assert np.array_equal(outcome.models, start)
        assert outcome.facts["secure_sums_given_up"] == outcome.facts["secure_sums"] == 3
    assert all(row.bytes_up > 9 * 64 for row in outcome.rounds)


def test_bytes_are_those_of_the_formula(federation):
    p, m = 4, 9
    outcome = run(federation, hidden(federation, FedAvg(), {}), 2)
    assert [row.bytes_up for row in outcome.rounds] == [m * traffic.up(p, m - 1)] * 3
    assert [row.bytes_down for row in outcome.rounds] == [m * (4 * p + traffic.down(m - 1))] * 3
    few = run(federation, hidden(federation, FedAvg(), {"neighbours": 4}), 2)
    assert [row.bytes_up for row in few.rounds] == [m * traffic.up(p, 4)] * 3


def test_a_run_that_goes_on_ends_with_the_same_bits(federation):
    secure = {"mode": "execute", "threshold": 3, "drop": {"mask": 0.2}}
    job = hidden(federation, FedAvg(), secure, rounds=4)
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, job).events(1)
    for standing in (event for event in events if isinstance(event, RunState)):
        read, _ = decode(encode(standing, "abc", job.strategy), job.strategy)
        *_, outcome = JobRun(pool, job, read).events()
        same(outcome, alone)
        assert outcome.facts == alone.facts


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fednova", "qfedavg", "ifca"])
@pytest.mark.parametrize("hides", [{"secure": SecureSection()}, {"compression": CompressionSection(name="qsgd")}])
def test_the_clock_expects_the_bytes_that_are_counted(federate, monkeypatch, strategy, hides):
    """Of all secure sums of a round, and with the numbers beside a compressed update."""
    federation = federate([12] * 9)
    expected: list[np.ndarray] = []
    exchanged = Traffic.exchanged
    monkeypatch.setattr(
        Traffic, "exchanged", lambda self, *args: (made := exchanged(self, *args), expected.append(made[1]))[0]
    )
    job = replace(job_of(federation, made(strategy), rounds=1, selection=All()), system=SystemSection(), **hides)
    ledger = run(federation, job, 1).ledger
    kinds = ("update", "variate")
    sent = sum(each for round, kind, _, each, _ in ledger.entries if round == 1 and kind in kinds)
    np.testing.assert_array_equal(expected[-1], sent)


@pytest.mark.parametrize("mode", ["model", "execute"])
def test_control_variates_are_whole_beside_a_compressed_update(federation, mode):
    compression = CompressionSection(name="random_k", ratio=0.5)
    plain = replace(job_of(federation, made("scaffold"), rounds=2), compression=compression)
    secure = replace(hidden(federation, made("scaffold"), {"mode": mode}, rounds=2), compression=compression)
    outcome = run(federation, secure, 2)
    same(outcome, run(federation, plain, 1))
    whole = traffic.up(2, 8) + traffic.up(4, 8)
    sent = [each for round, kind, _, each, _ in outcome.ledger.entries if round == 1 and kind in ("update", "variate")]
    assert (np.sum(sent, axis=0) == whole).all()


@pytest.mark.parametrize("kind", [{"name": "random_k", "ratio": 0.5}, {"name": "grid", "bits": 12, "feedback": "ef"}])
def test_what_can_be_added_up_can_be_compressed(federation, kind):
    section = CompressionSection(**kind)
    plain = run(federation, replace(job_of(federation, FedAvg()), compression=section), 1)
    job = replace(hidden(federation, FedAvg(), {"mode": "execute"}), compression=section)
    check_job(job, federation)
    outcome = run(federation, job, 2)
    same(outcome, plain)
    sent = 2 if kind["name"] == "random_k" else 4
    assert [row.bytes_up for row in outcome.rounds] == [9 * traffic.up(sent, 8)] * 3


def test_pooled_gradients_are_hidden_too(federation):
    from raysim.config.sections.privacy import PrivacySection

    private = PrivacySection(unit="patient", mode="pooled", noise_multiplier=1.0, delta=1e-4, rate=0.5)
    plain = replace(job_of(federation, FedAvg()), privacy=private)
    secure = replace(hidden(federation, FedAvg(), {"mode": "execute"}), privacy=private)
    same(run(federation, secure, 2), run(federation, plain, 1))


def test_attacks_of_single_hospitals_are_hidden_in_sums(federation):
    attack = AdversarySection(attack="sign_flip", share=0.3)
    plain = replace(job_of(federation, FedAvg()), adversary=attack)
    secure = replace(hidden(federation, FedAvg(), {"mode": "execute"}), adversary=attack)
    same(run(federation, secure, 2), run(federation, plain, 1))


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({"aggregation": AggregationSection(name="median")}, "secure.mode: .* aggregation.name: 'median' needs"),
        ({"adversary": AdversarySection(attack="alie")}, "secure.mode: .* adversary.attack: 'alie'"),
        ({"compression": CompressionSection(name="qsgd")}, "secure.mode: .* compression.name: 'qsgd'"),
        ({"strategy": made("fedbuff")}, "secure.mode: .* needs rounds"),
    ],
)
def test_sections_that_exclude_each_other(federation, beside, message):
    with pytest.raises(ConfigError, match=message):
        check_job(replace(hidden(federation, FedAvg(), {}), **beside), federation)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("cfl", "needs each update separately"),
        ("fedsoft", "sends whole models"),
        ("kfed", "sends a vector for each group"),
    ],
)
def test_strategies_that_no_secure_sum_fits(federation, strategy, message):
    with pytest.raises(ConfigError, match=f"secure.mode: .* {message}"):
        run(federation, hidden(federation, made(strategy), {}), 1)


def test_more_than_there_are_for_a_sum_is_refused(federation):
    """Else a run would learn nothing, and say nothing of it."""
    many = int((federation.sizes("train") > 0).sum())
    check_job(hidden(federation, FedAvg(), {"minimum": many}), federation)
    with pytest.raises(ConfigError, match=rf"secure.minimum: {many + 1} is more than the {many} hospitals"):
        check_job(hidden(federation, FedAvg(), {"minimum": many + 1}), federation)


def test_small_clusters_are_refused(federation):
    with pytest.raises(ConfigError, match=r"secure.minimum: 3 is more than the \d hospitals of cluster"):
        run(federation, hidden(federation, Chip(clusters=5), {}), 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"minimum": 2}, "can reveal single updates"),
        ({"neighbours": 5}, "even number"),
        ({"threshold": 1}, "at least 2"),
    ],
)
def test_bad_keys(keys, message):
    with pytest.raises(ValueError, match=message):
        SecureSection(**keys)


def test_noise_goes_into_secure_sums_as_into_plain_ones(federation):
    from raysim.config.sections.privacy import AdaptiveClip, PrivacySection

    private = PrivacySection(unit="hospital", noise_multiplier=1.0, delta=1e-3, clip=0.5)
    plain = replace(job_of(federation, FedAvg()), privacy=private)
    secure = replace(hidden(federation, FedAvg(), {"mode": "execute"}), privacy=private)
    same(run(federation, secure, 2), run(federation, plain, 1))
    adaptive = private.model_copy(update={"adaptive": AdaptiveClip(bits=5.0)})
    moved = run(federation, replace(plain, privacy=adaptive), 1)
    same(run(federation, replace(secure, privacy=adaptive), 2), moved)
    assert not (moved.models == run(federation, plain, 1).models).all()
    with pytest.raises(
        ConfigError, match=r"aggregation.name: .* needs single updates, but the guarantee of privacy.unit"
    ):
        check_job(replace(plain, aggregation=AggregationSection(name="median")), federation)
