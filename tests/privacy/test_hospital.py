"""Guarantees for hospitals: identities, the noise that is added, how far one hospital can move a sum, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome, Round
from raysim.engine.messages.update_sums import number_rows
from raysim.engine.privacy.checks import check_privacy
from raysim.engine.privacy.release import Release, release_of
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.privacy.clip import update_multiplier
from raysim.storage.encoding import decode, encode
from raysim.strategies.hospital_clusters.cfl import Cfl
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.adaptive import FedAdam
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedavgm import FedAvgM
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import All, Poisson, Uniform
from tests.conftest import MakeFederation, fitting, job_of, run, run_and_resumed, store

SIZES = [9, 4, 13, 7, 0, 6]
UNIFORM = {"weights": "uniform"}


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def section(**keys) -> PrivacySection:
    return PrivacySection(**{"noise_multiplier": 0.0, "delta": 1e-3, "declared_public": ("sizes", "metrics")} | keys)


def private(federation: Federation, strategy=None, actors: int = 1, rounds: int = 3, **keys) -> Outcome:
    selection = keys.pop("selection", All())
    job = job_of(federation, strategy or FedAvg(**UNIFORM), selection=selection, rounds=rounds, epochs=2)
    return run(federation, replace(job, privacy=section(**keys)), actors)


@pytest.mark.parametrize("clip", [math.inf, 100.0])
def test_without_noise_and_clipping_it_is_uniform_federated_averaging_bit_for_bit(federation, clip):
    strategies = [FedAvg(**UNIFORM), FedProx(**UNIFORM), FedAvgM(**UNIFORM), FedAdam(**UNIFORM), Scaffold(), Local()]
    for strategy in [*strategies, Ditto(**UNIFORM)]:
        plain = run(federation, job_of(federation, strategy, rounds=3, epochs=2), 1)
        assert (private(federation, strategy, clip=clip).models == plain.models).all(), strategy


def test_a_clip_that_clips_changes_the_result(federation):
    plain = private(federation, clip=math.inf).models
    assert np.abs(private(federation, clip=0.01).models - plain).max() > 1e-3


def test_the_bits_do_not_depend_on_how_many_actors_there_are(federation):
    alone, several = (
        private(federation, actors=actors, noise_multiplier=1.5, clip=0.1, selection=Poisson(0.5)) for actors in (1, 4)
    )
    assert (alone.models == several.models).all()
    assert alone.privacy == several.privacy


def test_the_noise_of_a_round_has_the_configured_deviation_also_without_participants(federate):
    """A Poisson cohort of nearly nobody: the model moves by noise alone."""
    wide = federate([3, 3, 3, 3], features=4000)
    rate, multiplier, clip = 0.01, 2.0, 0.5
    outcome = private(wide, rounds=1, noise_multiplier=multiplier, clip=clip, selection=Poisson(rate))
    assert outcome.rounds[0].cohort_size == 0
    deviation = multiplier * clip / (rate * 4)
    assert outcome.models[0].std() == pytest.approx(deviation, rel=0.05)
    assert abs(outcome.models[0].mean()) < 5 * deviation / math.sqrt(4001)


def test_noise_from_the_operating_system_is_another_each_time(federation):
    first, second = (private(federation, noise_multiplier=1.0, noise="system").models for _ in range(2))
    assert np.abs(first - second).max() > 1e-3


def neighbours(federation: Federation, folder: Path, gone: int) -> Federation:
    """The federation in which the labels of one hospital belong to other rows of it, so that its statistics stay."""
    y = federation.y.copy()
    low, high = federation.bounds[gone, 0], federation.bounds[gone, 1]
    y[low:high] = np.roll(y[low:high], 3)
    assert (y != federation.y).any()
    return store(folder, federation.X, y, federation.bounds)


def strategies() -> list[str]:
    """Those whose hospitals send updates; sums of programs are bounded by row, see ``test_noisy_programs``."""
    return [
        name
        for name, entry in registry.entries("strategies").items()
        if entry.load().needs.kind not in ("refused", "programs")
    ]


@pytest.mark.parametrize("name", strategies())
def test_one_hospital_with_a_capped_weight_moves_a_round_by_at_most_the_clip(federation, tmp_path, name):
    """Of two hospitals' data in one place each sum differs by at most twice its share of the clip: each is in one."""
    (tmp_path / "other").mkdir()
    other = neighbours(federation, tmp_path / "other", 2)
    strategy = made(name)
    clip, sums = 0.05, []
    for each in (federation, other):
        job = fitting(job_of(each, strategy, rounds=1, epochs=3, learning_rate=0.5), each)
        sums.append(first_sums(each, replace(job, privacy=section(clip=clip, weights="capped", cap=8))))
    (units, shares), (others, _) = sums
    if not shares.any():
        pytest.skip("nothing leaves a hospital")
    length = math.sqrt(((units - others) / shares[:, None]) ** 2 @ np.ones(units.shape[1]) @ np.ones(len(units)))
    assert 0 < length <= 2 * clip * (1 + 1e-9)


def made(name: str):
    cls = registry.load("strategies", name, "strategy.name")
    settings = {"weights": "uniform"} if "weights" in cls.__dataclass_fields__ else {}
    return cls(**settings, **({"clusters": 2} if "clusters" in cls.__dataclass_fields__ else {}))


def first_sums(federation: Federation, job: Job) -> tuple[np.ndarray, np.ndarray]:
    """The sums of round 1 as they arrive, and the largest weight in each."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    forward = pool.round

    def watched(plan, memory):
        partials, later = forward(plan, memory)
        if plan.round == 1 and plan.problem is not None and plan.problem.sent is not None:
            assert isinstance(release_of(plan), Release)
            sent = plan.problem.sent
            into = np.zeros(len(plan.ids), dtype=int) if sent.sum_index is None else sent.sum_index
            shares = np.full(sent.sums, 1e-300)
            capped = np.minimum(federation.sizes("train")[plan.ids] / (job.privacy.cap or 1), 1.0)
            np.maximum.at(shares, into, sent.weight / capped)
            units = np.sum([partial.units for partial in partials], axis=0) * 2.0**-44
            rows = number_rows(plan.problem, units.shape[1])
            if plan.problem.spread:  # all are in all sums
                shares[:] = shares.max()
            beside = shares if sent.extra_weight is None else sent.extra_weight
            shares = np.append(shares, np.full(rows, beside.max()))
            seen.append((units, shares))
        return partials, later

    spied: Any = pool
    spied.round = watched
    list(JobRun(pool, job).events())
    return seen[0] if seen else (np.zeros((1, 1)), np.zeros(1))


def test_capped_weights_are_rows_up_to_the_cap_over_all_of_these(federation):
    """One round by hand: sum_i min(n_i / 8, 1) delta_i / (rate * W)."""
    strategy = FedAvg(**UNIFORM)
    capped = private(federation, strategy, rounds=1, clip=math.inf, weights="capped", cap=8).models[0]
    counts = np.minimum(np.array(SIZES) / 8, 1.0)
    by_hand = np.zeros_like(capped)
    for hospital in np.flatnonzero(counts):
        alone = job_of(federation, Alone(hospital), rounds=1, epochs=2)
        by_hand += counts[hospital] / counts.sum() * run(federation, alone, 1).models[0]
    assert capped == pytest.approx(by_hand, abs=1e-10)


class Alone(FedAvg):
    """Federated averaging of one hospital."""

    hospital: int

    def __init__(self, hospital: int) -> None:
        super().__init__()
        object.__setattr__(self, "hospital", hospital)

    def select(self, view, state, round):
        return np.array([self.hospital])


def test_the_statement_names_what_is_exact_and_gives_the_number_otherwise(federation):
    guarantee = private(federation, noise_multiplier=5.0, rounds=20, delta=1e-5).privacy
    assert guarantee.epsilon == pytest.approx(3.848610, abs=1e-4)
    assert (guarantee.covers, guarantee.not_private, math.isinf(guarantee.epsilons["server"])) == (
        ("update",),
        (),
        True,
    )
    guarantee = private(
        federation, noise_multiplier=5.0, rounds=20, delta=1e-5, declared_public=("sizes", "nothing")
    ).privacy
    assert math.isinf(guarantee.epsilon)
    assert guarantee.covered["outsider"] == pytest.approx(3.848610, abs=1e-4)
    assert guarantee.not_private == ("metrics",)
    assert guarantee.as_json()["epsilon"] == "inf"
    assert "not private: metrics" in guarantee.sentence()


def test_clusters_that_rest_on_exact_statistics_are_not_covered(federation):
    guarantee = private(federation, Clustered(clusters=2), noise_multiplier=5.0).privacy
    assert guarantee.not_private == ("signature",)


def test_a_run_goes_on_bit_for_bit(federation):
    job = replace(
        job_of(federation, Scaffold(), rounds=4, selection=Poisson(0.5)),
        privacy=section(noise_multiplier=1.0, clip=0.2),
    )
    whole, resumed = run_and_resumed(federation, job)
    assert (resumed.models == whole.models).all()
    assert resumed.privacy == whole.privacy


def test_an_adaptive_clip_that_stays_is_a_fixed_one(federation):
    still = {"adaptive": {"rate": 0.0, "bits": math.inf}, "noise_multiplier": 1.5, "clip": 0.2}
    fixed = private(federation, noise_multiplier=1.5, clip=0.2)
    assert (private(federation, **still).models == fixed.models).all()


def test_the_clip_follows_the_share_among_the_hospitals_expected_in_a_round(federation):
    """All updates are longer than the clip: whoever takes part sends -1/2, and four of five are expected."""
    job = job_of(federation, FedAvg(**UNIFORM), selection=Poisson(0.8), rounds=6)
    job = replace(job, privacy=section(clip=1e-4, adaptive={"quantile": 0.5, "rate": 0.5}))
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    events = list(JobRun(pool, job).events(1))
    clips = [event.guarantee["guard"]["clip"] for event in events if isinstance(event, RunState)]
    cohorts = [event.cohort_size for event in events if isinstance(event, Round)]
    assert len(set(cohorts)) > 1
    clip = 1e-4
    for reached, cohort in zip(clips, cohorts, strict=False):
        clip *= math.exp(-0.5 * (max(0.5 - 0.5 * cohort / (0.8 * 5), 0.0) - 0.5))
        assert reached == pytest.approx(clip, rel=1e-9)


def test_noise_is_in_units_of_the_clip_that_the_round_was_clipped_to(federate):
    """Nobody takes part, and the clip moves by the noise on the bits: a round's noise has the clip before that."""
    wide = federate([3] * 4, features=4000)
    rate, multiplier, clip = 0.01, 1.0, 0.5
    adaptive = {"quantile": 0.9, "rate": 1.0, "bits": 1.0}
    job = job_of(wide, FedAvg(**UNIFORM), selection=Poisson(rate), rounds=3)
    guarantee = section(noise_multiplier=multiplier, clip=clip, adaptive=adaptive)
    pool = LocalPool(Placement(balance(wide.totals, 1), 1, 0), "cpu")
    states = [event for event in JobRun(pool, replace(job, privacy=guarantee)).events(1) if isinstance(event, RunState)]
    first, second = (state.state.models[0] for state in states)
    updates = update_multiplier(multiplier, adaptive["bits"])
    assert first.std() == pytest.approx(updates * clip / (rate * 4), rel=0.05)
    used = states[0].guarantee["guard"]["clip"]
    assert used != clip
    assert (second - first).std() == pytest.approx(updates * used / (rate * 4), rel=0.05)


def test_noise_of_hospitals_own_adds_up_and_costs_what_twice_the_clip_does(federate):
    wide = federate([3] * 4, features=4000)
    outcome = private(wide, mode="local", rounds=1, clip=1e-9, noise_multiplier=2.0, delta=1e-5)
    assert outcome.models[0].std() == pytest.approx(2.0 * 1e-9 / 2, rel=0.05)
    assert outcome.privacy.against == "server"
    assert set(outcome.privacy.epsilons.values()) == {outcome.privacy.epsilon}
    assert outcome.privacy.epsilon == pytest.approx(4.377178, abs=1e-4)


def test_shares_of_hospitals_add_up_to_the_noise_that_the_server_would_add(federate):
    wide = federate([3] * 4, features=4000)
    guarantee = section(mode="distributed", clip=1e-9, noise_multiplier=2.0, delta=1e-5)
    job = replace(job_of(wide, FedAvg(**UNIFORM), rounds=1), privacy=guarantee, secure=SecureSection())
    outcome = run(wide, job, 2)
    assert outcome.models[0].std() == pytest.approx(2.0 * 1e-9 / 4, rel=0.05)
    assert outcome.privacy.against == "server"
    assert outcome.privacy.epsilon == outcome.privacy.epsilons["outsider"] < outcome.privacy.epsilons["peer"]
    with pytest.raises(ConfigError, match=r"privacy.mode: distributed needs secure aggregation"):
        check_job(replace(job, secure=None), wide)


def test_the_clip_follows_the_updates_and_goes_on_after_a_stop(federation):
    adaptive = {"quantile": 0.5, "rate": 0.5}
    job = replace(job_of(federation, FedAvg(**UNIFORM), rounds=6), privacy=section(clip=1e-4, adaptive=adaptive))
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(JobRun(pool, job).events(1))
    clips = [event.guarantee["guard"]["clip"] for event in events if isinstance(event, RunState)]
    assert clips[0] == pytest.approx(1e-4 * math.exp(0.25))
    assert clips[-1] == pytest.approx(1e-4 * math.exp(0.25 * len(clips)))
    stood = next(event for event in events if isinstance(event, RunState) and event.round == 3)
    again, _ = decode(encode(stood, "print", job.strategy), job.strategy)
    *_, outcome = JobRun(pool, job, again).events()
    assert (outcome.models == events[-1].models).all()


REFUSED = [
    ({}, {"noise_multiplier": 1.0, "adaptive": {}}, r"privacy.adaptive.bits: .*privacy.noise_multiplier: 1;"),
    ({"strategy": Cfl()}, {}, r"strategy.name: .*privacy.unit: hospital"),
    ({"strategy": FedAvg()}, {}, r"strategy.weights: 'samples'.*privacy.unit: hospital"),
    ({"selection": Uniform()}, {}, r"selection.name: with privacy.unit: hospital, .*which 'Uniform' does not do"),
    ({}, {"delta": 0.2}, r"privacy.delta: 0.2 must be below 1 / 5 .*; lower it"),
    (
        {},
        {"delta": 9e-15},
        r"^privacy.delta: 9e-15 is below 1e-14, the least at which epsilon can be computed; raise it$",
    ),
    (
        {},
        {"epsilon": 9e-7, "noise_multiplier": None},
        r"^privacy.epsilon: 9e-07 is outside the range 1e-06 to 1e\+06, in which noise can be calibrated",
    ),
    (
        {},
        {"epsilon": 1.1e6, "noise_multiplier": None},
        r"^privacy.epsilon: 1.1e\+06 is outside the range 1e-06 to 1e\+06, in which noise can be cali",
    ),
    ({}, {"against": "server"}, r"privacy.against: server.*privacy.mode: central"),
    ({}, {"epsilon": 2.0, "noise_multiplier": 1.0}, r"privacy.noise_multiplier: 1 .*privacy.epsilon is 2"),
    ({}, {"clip": math.inf, "noise_multiplier": 1.0}, r"privacy.clip: inf.*privacy.noise_multiplier: 1"),
    ({}, {"clip": 1e6}, r"privacy.clip: 1e\+06 is more"),
    ({"system": SystemSection(rounds={"retries": 2})}, {}, r"system.rounds.retries: 2.*privacy.unit: hospital"),
]


@pytest.mark.parametrize(("job", "keys", "line"), REFUSED)
def test_impossible_guarantees_are_refused_in_a_line(federation, job, keys, line):
    settings = {"strategy": FedAvg(**UNIFORM)} | job
    refused = replace(job_of(federation, **settings), privacy=section(**keys))
    with pytest.raises(ConfigError, match=line):
        check_job(refused, federation)


@pytest.mark.parametrize(
    "name", [n for n, e in registry.entries("strategies").items() if e.load().needs.kind == "refused"]
)
def test_every_strategy_that_needs_more_than_sums_is_refused(federation, name):
    job = replace(job_of(federation, made(name)), privacy=section())
    with pytest.raises(ConfigError, match=r"privacy.unit: hospital"):
        check_privacy(job, federation)


@pytest.mark.parametrize("keys", [{}, {"epsilon": 1.0, "weights": "capped"}, {"epsilon": 1.0, "cap": 3}])
def test_sections_that_lack_or_have_too_much_are_refused(keys):
    with pytest.raises(ConfigError, match="privacy"):
        PrivacySection(**keys)


def test_strategies_without_a_clipped_weight_of_their_own_are_weighed_uniformly(federation):
    """Fine-tuning weighs by rows and has no key for it: with a guarantee all count alike."""
    fine_tuned, uniform = private(federation, FineTuning(), clip=math.inf), private(federation, FedAvg(**UNIFORM))
    assert fine_tuned.models == pytest.approx(uniform.models, abs=1e-12)
