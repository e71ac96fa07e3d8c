"""Unreliable hospitals: the virtual clock by hand, and rounds that end early."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.job import Round
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.storage.encoding import decode, encode
from raysim.strategies.asynchronous.fedasync import FedAsync
from raysim.strategies.asynchronous.fedbuff import FedBuff
from raysim.strategies.base import Draw, Ids, Selection
from raysim.strategies.coalitions.cs_rcfl import CsRcfl
from raysim.strategies.fairness.fairfed import FairFed
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.one_model.adaptive import FedAdam
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.strategies.patient_clusters.kfed import KFed
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.selections.haccs import Haccs
from raysim.strategies.selections.power_of_choice import PowerOfChoice
from raysim.strategies.selections.sampling import Uniform
from raysim.strategies.selections.superquantile import Superquantile
from raysim.virtual_time.clock import Answers, Clock, answers, checked, trained_rows
from raysim.virtual_time.hospitals import resolve
from raysim.virtual_time.scheduling import check_one_model
from raysim.virtual_time.synchronous import SynchronousScheduler
from raysim.virtual_time.unreliable import check_progress, check_system, usual_seconds
from tests.conftest import MakeFederation, job_of, run_strategy, with_patients
from tests.storage.test_checkpoint import same
from tests.strategies.asynchronous.event_loop import trained
from tests.strategies.test_identities import assert_different, assert_same
from tests.virtual_time.unreliable import MODEL, SIZES, moments, seconds, system, trace


@dataclass(frozen=True)
class These(Selection):
    """Always the same hospitals, those of them that are there."""

    ids: tuple[int, ...]

    def pick(self, draw: Draw) -> Ids:
        return np.intersect1d(draw.candidates, np.array(self.ids))


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


# Time


def test_perfect_hospitals_change_nothing_and_take_no_time(federation):
    for strategy in (FedAvg(), Chip(clusters=2), FedAdam(), Ifca(clusters=2), Local()):
        run = {"selection": Uniform(0.5, 2), "epochs": 2}
        ideal, timed = (
            run_strategy(federation, strategy, **run),
            run_strategy(federation, strategy, **run, system=system()),
        )
        same(ideal, timed)
        assert moments(timed) == [0.0] * 3
        assert moments(ideal) == []


def test_a_round_takes_as_long_as_its_slowest_hospital(federation):
    speed = {"rows_per_second": 2.0, "downlink": 1e-4, "uplink": 2e-5, "latency": 0.25}
    outcome = run_strategy(federation, FedAvg(), epochs=3, rounds=2, system=system(**speed))
    # Two messages; 12.5 bytes a second down and 2.5 up; 3 epochs over 13 rows at the largest.
    expected = 2 * 0.25 + MODEL / 12.5 + (MODEL + 4) / 2.5 + 3 * 13 / 2.0
    assert moments(outcome) == pytest.approx([expected, 2 * expected])
    assert [row.asked for row in outcome.rounds] == [6, 6]


def test_a_local_update_takes_as_long_as_all_its_phases(federation):
    """Three epochs of the federated model and two of the hospital's own, in which it may have other epochs."""
    slow = seconds(1, 2, 3, 4, 5, 6)
    assert moments(run_strategy(federation, Ditto(epochs=2), epochs=3, rounds=2, system=slow)) == pytest.approx(
        [30, 60]
    )
    assert moments(run_strategy(federation, Ditto(epochs=0), epochs=3, rounds=1, system=slow)) == pytest.approx([18])
    uneven = FedProx(straggler_epochs={"h5": 1, "h3": 7})
    assert moments(run_strategy(federation, uneven, epochs=3, rounds=1, system=slow)) == pytest.approx([7 * 4])


def test_a_hospital_that_trains_groups_of_its_rows_trains_each_row_once(federation):
    slow = seconds(1, 2, 3, 4, 5, 6)
    outcome = run_strategy(federation, KFed(clusters=2), epochs=3, rounds=2, system=slow)
    assert outcome.clusters_of_patients is not None
    assert (outcome.clusters_of_patients > 0).sum() > len(SIZES), "some hospitals have rows in both groups"
    assert moments(outcome) == pytest.approx([18, 36])


def test_traffic_is_that_of_the_strategy(federation):
    speed = system(downlink=8e-6, uplink=8e-6)  # a byte a second
    per_hospital = {
        FedAvg(): MODEL + MODEL + 4,
        Chip(clusters=2, mu=0.1): 2 * MODEL + MODEL + 4,
        Scaffold(): 2 * MODEL + 2 * MODEL + 4,
        Local(): 0,
    }
    for strategy, expected in per_hospital.items():
        rounds = run_strategy(federation, strategy, rounds=2, system=speed).rounds
        assert rounds[1].virtual_seconds - rounds[0].virtual_seconds == pytest.approx(expected), strategy
        assert (rounds[1].bytes_down + rounds[1].bytes_up) / 6 == pytest.approx(expected), strategy


def test_questions_take_time_and_what_a_hospital_has_is_not_sent_again(federation):
    speed = system(downlink=8e-6, uplink=8e-6)
    asked = run_strategy(
        federation, FedAvg(), selection=PowerOfChoice(candidates=6, fraction=0.5), rounds=1, system=speed
    )
    assert moments(asked) == pytest.approx([(MODEL + 4) + (MODEL + 4)])
    everybody = run_strategy(federation, Ifca(clusters=2), rounds=1, system=speed)
    assert moments(everybody) == pytest.approx([(2 * MODEL + 4) + (MODEL + 4)])
    slow = system(downlink=8e-6, uplink=8e-6, hospitals={"h2": {"downlink": 4e-6, "uplink": 4e-6}})
    waiting = run_strategy(federation, Ifca(clusters=2), rounds=1, system=slow)
    assert moments(waiting) == pytest.approx([2 * ((2 * MODEL + 4) + (MODEL + 4))]), "all wait for the slowest answer"


def test_training_on_pooled_rows_has_no_virtual_time_and_local_training_waits_for_nobody(federation):
    outcome = run_strategy(federation, Centralized(), system=seconds(1, 1, 1, 1, 1, 1))
    assert np.isnan(moments(outcome)).all()
    same(outcome, run_strategy(federation, Centralized()))
    alone = run_strategy(federation, Local(), system=seconds(1, 2, 3, 4, 5, 60, latency=9, rounds={"deadline": 2}))
    assert moments(alone) == pytest.approx([60, 120, 180])
    same(alone, run_strategy(federation, Local()))


def test_haccs_knows_how_long_rounds_take(federation):
    slow = seconds(1, 2, 3, 40, 5, 6)
    outcome = run_strategy(
        federation, FedAvg(), selection=Haccs(rho=1.0, fraction=0.5, minimum=1), rounds=4, system=slow
    )
    job = job_of(federation, FedAvg(), selection=Haccs(), system=slow)
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    standing = next(event for event in JobRun(pool, job).events(1) if isinstance(event, RunState))
    assert standing.memory["latencies"] == pytest.approx([1, 2, 3, 40, 5, 6])
    assert len(outcome.rounds) == 4


def test_a_usual_round_is_two_messages_and_all_epochs():
    """A byte a second down and half of one up, and two rows a second."""
    speed = resolve(system(downlink=8e-6, uplink=4e-6, rows_per_second=2.0, latency=0.25), ("a", "b"), 1)
    view: Any = SimpleNamespace(sizes=np.array([5, 0]), initial=np.zeros(4), local_epochs=3)
    usual = 2 * 0.25 + MODEL + 2 * (MODEL + 4)
    assert usual_seconds(speed, view) == pytest.approx([usual + 15 / 2, usual])


def test_a_round_takes_what_its_own_hospital_needs():
    """2 bytes a second down and 1 up, 4 rows a second, and 3 s each way; nothing of the other."""
    slow = {"latency": 3.0, "downlink": 16e-6, "uplink": 8e-6, "rows_per_second": 4.0}
    speed = resolve(system(hospitals={"b": slow}), ("a", "b"), 1)
    ids, rows = np.array([1, 0]), np.array([4.0, 4.0])
    assert speed.seconds(ids, rows, 5.0, 6.0).tolist() == [2 * 3 + 5 / 2 + 6 / 1 + 4 / 4, 0.0]


def test_a_hospital_without_a_group_behind_those_that_have_some_trains_nothing():
    """Hospital 0 has two groups of its 5 rows, hospital 1 one of 4 rows, for 3 and 2 epochs."""
    phase = SimpleNamespace(training=SimpleNamespace(epochs=np.array([3, 3, 2])))
    problem: Any = SimpleNamespace(groups=SimpleNamespace(hospital=np.array([0, 0, 1])), chain=(phase,))
    view: Any = SimpleNamespace(sizes=np.array([5, 4, 0]), local_epochs=1)
    assert trained_rows(view, np.array([0, 1, 2]), problem).tolist() == [15, 8, 0]


def test_old_models_are_for_strategies_with_one_model_alone():
    def problem(**given: Any) -> Any:
        return SimpleNamespace(
            **{"sent": SimpleNamespace(sums=1), "then": None, "groups": None, "program": None} | given
        )

    one: Any = SimpleNamespace(models=np.zeros((1, 3)))
    two: Any = SimpleNamespace(models=np.zeros((2, 3)))
    check_one_model(one, problem(), "this", "drop it")
    check_one_model(one, problem(sent=None), "this", "drop it")
    for state, unlike in (
        (two, {}),
        *((one, {name: object()}) for name in ("then", "groups", "program")),
        (one, {"sent": SimpleNamespace(sums=2)}),
    ):
        with pytest.raises(ConfigError, match=r"^this is for strategies whose only model is the global one"):
            check_one_model(state, problem(**unlike), "this", "drop it")


def test_a_clock_that_no_server_can_have_is_refused():
    sound = Clock.zero(2).started(np.array([3, 5]), 1, np.zeros(2), np.array([1.0, 2.0]), np.array([False, True]))
    assert checked(sound) is sound
    assert checked(None) is None
    for wrong, message in (
        ({"now": 1}, "has no valid time"),
        ({"waits": -1}, "has waited -1 times"),
        ({"waits": 0.0}, "has waited 0.0 times"),
        ({"ends": np.zeros(1)}, "lacks end times or models"),
        ({"models": np.zeros((2, 2))}, "lacks end times or models"),
        ({"version": np.array([1, 2])}, "missing or not finite"),
        ({"models": np.array([[0.0, np.inf]])}, "missing or not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            checked(replace(sound, **wrong))
    with pytest.raises(ValueError, match="has no valid time"):
        checked(7.0)


# Who is late, lost or superfluous


@pytest.mark.parametrize("strategy", [FedAvg(), FedProx(mu=0.5), Scaffold()], ids=lambda s: type(s).__name__)
def test_dropping_the_late_is_selecting_the_others(strategy, federation):
    late = seconds(1, 9, 2, 3, 9, 4, rounds={"deadline": 5})
    dropped, others = (
        run_strategy(federation, strategy, system=late),
        run_strategy(federation, strategy, selection=These((0, 2, 3, 5))),
    )
    assert_same(dropped.models, others.models)
    assert moments(dropped) == pytest.approx([5, 10, 15])
    for row, other in zip(dropped.rounds, others.rounds, strict=True):
        assert (row.cohort_size, row.asked) == (4, 6)
        assert row.bytes_up == other.bytes_up
        assert row.bytes_down == other.bytes_down * 6 / 4, "the late got the model in vain"
    assert_different(dropped.models, run_strategy(federation, strategy).models)


def test_the_first_to_answer_are_taken_of_more_that_are_selected(federation):
    fast = seconds(1, 6, 2, 3, 9, 4, rounds={"over_selection": 0.5})
    outcome = run_strategy(federation, FedAvg(), selection=Uniform(0.67, 1), system=fast)
    assert [(row.asked, row.cohort_size) for row in outcome.rounds] == [(6, 4)] * 3
    assert moments(outcome) == pytest.approx([4, 8, 12])
    assert_same(outcome.models, run_strategy(federation, FedAvg(), selection=These((0, 2, 3, 5))).models)


def test_late_updates_count_less_in_the_round_in_which_they_arrive(federation):
    """Hospital 2 starts in rounds 1 and 4, which end at the deadline, and arrives in 3 and 6, two rounds late."""
    late = seconds(1, 1, 6.5, 1, 1, 1, rounds={"deadline": 5, "late": "discount"})
    run = {"rounds": 6, "batch_size": 0, "learning_rate": 0.5, "system": late}
    outcome = run_strategy(federation, FedAvg(), **run)
    models = [np.zeros(4)]
    for t in range(1, 7):
        starts = dict.fromkeys([0, 1, 3, 4, 5], (models[-1], 0))
        if t in (3, 6):
            starts[2] = (models[t - 3], 2)
        weights = {h: SIZES[h] / (1 + age) for h, (_, age) in starts.items()}
        moves = {h: trained(federation, h, start, 0.5, 1, 0.0) - start for h, (start, _) in starts.items()}
        models.append(models[-1] + sum(weights[h] * moves[h] for h in starts) / sum(weights.values()))
    assert_same(outcome.models[0], models[-1])
    assert [row.cohort_size for row in outcome.rounds] == [5, 5, 6, 5, 5, 6]
    assert [row.asked for row in outcome.rounds] == [6, 5, 5, 6, 5, 5]
    assert [row.staleness for row in outcome.rounds] == pytest.approx([0, 0, 2 / 6, 0, 0, 2 / 6])
    assert moments(outcome) == pytest.approx([5, 6, 7, 12, 13, 14])
    assert_different(outcome.models, run_strategy(federation, FedAvg(), **(run | {"system": None})).models)


def test_a_late_update_that_comes_as_the_round_ends_is_in_it(federation):
    """Hospital 2 starts in rounds 1 and 3, which end at the deadline, and the next ones end when it does."""
    late = seconds(1, 1, 6, 1, 1, 1, rounds={"deadline": 5, "late": "discount"})
    outcome = run_strategy(federation, FedAvg(), rounds=4, system=late)
    assert [row.cohort_size for row in outcome.rounds] == [5, 6, 5, 6]
    assert [row.asked for row in outcome.rounds] == [6, 5, 6, 5]
    assert moments(outcome) == pytest.approx([5, 6, 11, 12])


def test_a_deadline_that_nobody_can_meet_is_refused_and_one_that_others_met_is_not(federation):
    by_hospital, two = (1, 2, 3, 4, 5, 6), {"minimum_cohort": 2}
    short = r"^system\.rounds\.deadline: 1\.5 s are too short: .* need 2 s until 2 of them have replied; raise the"
    with pytest.raises(ConfigError, match=short):
        run_strategy(federation, FedAvg(), rounds=1, system=seconds(*by_hospital, rounds={"deadline": 1.5} | two))
    with pytest.raises(ConfigError, match=r"need 4 s until 2 of them have replied; raise the"):
        run_strategy(
            federation, FedAvg(), rounds=1, epochs=2, system=seconds(*by_hospital, rounds={"deadline": 1.5} | two)
        )
    met = run_strategy(federation, FedAvg(), rounds=2, system=seconds(*by_hospital, rounds={"deadline": 2} | two))
    assert [row.cohort_size for row in met.rounds] == [2, 2]
    slower = seconds(*by_hospital, rounds={"deadline": 2} | two)
    with pytest.raises(ConfigError, match=r"^system\.rounds: none of 2 rounds brought 2 updates"):
        run_strategy(federation, FedAvg(), rounds=2, selection=These((2, 3)), system=slower)


@pytest.mark.parametrize(("fraction", "more", "needed"), [(0.5, 0.0, 4), (0.5, 0.5, 4), (0.01, 0.0, 3), (1.0, 0.0, 7)])
def test_a_selection_that_is_never_large_enough_is_refused(federation, fraction, more, needed):
    """Half of six hospitals are three, also where half as many more are called; two are the least."""
    most = {0.5: 3, 0.01: 2, 1.0: 6}[fraction]
    rules = system(rounds={"minimum_cohort": needed, "over_selection": more})
    message = rf"^system\.rounds\.minimum_cohort: {needed} is more than the {most} hospitals whose updates"
    with pytest.raises(ConfigError, match=message):
        run_strategy(federation, FedAvg(), rounds=1, selection=Uniform(fraction, 2), system=rules)
    enough = system(rounds={"minimum_cohort": most, "over_selection": more})
    outcome = run_strategy(federation, FedAvg(), rounds=1, selection=Uniform(fraction, 2), system=enough)
    assert outcome.rounds[0].cohort_size == most


def test_no_more_are_needed_than_have_rows():
    rows, names = np.array([5, 0, 1, 2]), tuple("abcd")
    check_system(system(rounds={"minimum_cohort": 3}), Uniform(1.0, 1), names, rows, 1)
    with pytest.raises(ConfigError, match=r"^system\.rounds\.minimum_cohort: 4 is more than the 3 hospitals that have"):
        check_system(system(rounds={"minimum_cohort": 4}), Uniform(1.0, 1), names, rows, 1)


def test_late_hospitals_are_asked_again_and_that_is_counted(federation):
    """Hospital 2 starts in rounds 1 and 4, which end at the deadline, and arrives in 3 and 6."""
    late = seconds(1, 1, 6.5, 1, 1, 1, rounds={"deadline": 5, "late": "discount"})
    outcome = run_strategy(with_patients(federation), FairFed(), rounds=6, system=late)
    messages = [(t, ids.tolist()) for t, kind, ids, _, _ in outcome.ledger.entries if kind == "group_counts"]
    everybody, prompt = [0, 1, 2, 3, 4, 5], [0, 1, 3, 4, 5]
    expected = {1: [everybody], 2: [prompt], 3: [prompt, [2]], 4: [everybody], 5: [prompt], 6: [prompt, [2]]}
    assert messages == [(t, ids) for t, asked in expected.items() for ids in asked]
    downs = {row.round: row.bytes_down for row in outcome.rounds}
    assert downs[3] - downs[2] == MODEL, "what it started from it has, and this round's model came with the question"


def test_a_round_for_which_the_strategy_calls_nobody_takes_no_time_and_changes_nothing(federation, tmp_path):
    ideal = run_strategy(federation, CsRcfl(clusters="each"))
    night = trace(tmp_path, *(f"h{i},10,20" for i in range(6)))
    for section in (system(), system(availability=0.6), system(trace=str(night), trace_period=40)):
        outcome = run_strategy(federation, CsRcfl(clusters="each"), system=section)
        same(ideal, outcome)
        assert [(row.cohort_size, row.asked) for row in outcome.rounds] == [(0, 0)] * 3
        assert len(set(moments(outcome))) == 1


def test_a_small_draw_is_tried_again_with_another_one(federate):
    """A draw is of those above the median loss of a sample: sometimes the largest hospital alone."""
    federation = federate([90] + [20] * 7)
    run = {"selection": Superquantile(0.5, fraction=0.6, minimum=2), "rounds": 8}
    cohorts = {}
    for retries in (0, 3):
        rules = system(rounds={"minimum_cohort": 2, "retries": retries})
        cohorts[retries] = [row.cohort_size for row in run_strategy(federation, FedAvg(), system=rules, **run).rounds]
    assert 0 in cohorts[0]
    assert 1 not in cohorts[0]
    assert cohorts[3].count(0) < cohorts[0].count(0)


def test_where_too_few_are_there_nobody_is_called_and_the_server_tries_again(federation):
    """A try takes 60 s, and a round's two messages a second."""
    few = {"rounds": {"minimum_cohort": 3, "retries": 1}, "latency": 0.5, "availability": 0.4}
    outcome = run_strategy(federation, FedAvg(), rounds=12, system=system(**few))
    empty = [row for row in outcome.rounds if not row.cohort_size]
    assert 0 < len(empty) < 12
    again = 0
    for row, began, ended in zip(outcome.rounds, [0.0, *moments(outcome)], moments(outcome), strict=False):
        if row.cohort_size:
            assert row.cohort_size == row.asked >= 3
            tries, left = divmod(ended - began, 60)
            assert left == pytest.approx(1)
            again += tries == 1
        else:
            assert (row.asked, row.bytes_down, row.bytes_up) == (0, 0, 0)
            assert ended - began == pytest.approx(120)
    assert again
    for row, before in zip(outcome.rounds[1:], outcome.rounds, strict=False):
        assert row.cohort_size or row.metrics == before.metrics


def test_a_single_hospital_may_be_hardly_ever_there(federation):
    rarely = system(hospitals={"h1": {"availability": 1e-9}})
    assert [row.asked for row in run_strategy(federation, FedAvg(), system=rarely).rounds] == [5, 5, 5]


def test_without_rounds_availability_is_sampled_at_each_try(federation):
    """Nobody is there at seven of ten tries."""
    outcome = run_strategy(federation, FedBuff(buffer=1, concurrency=2), rounds=3, system=system(availability=0.06))
    assert [row.cohort_size for row in outcome.rounds] == [1, 1, 1]
    assert all(moment > 0 and moment % 60 == 0 for moment in moments(outcome))


def test_updates_that_were_too_few_have_left_their_hospitals(federation):
    lossy = system(dropout=0.4, latency=1, rounds={"minimum_cohort": 4})
    outcome = run_strategy(federation, FedAvg(), rounds=6, system=lossy)
    unused = [row for row in outcome.rounds if not row.cohort_size and row.bytes_up]
    assert unused
    sent = {t: len(ids) for t, kind, ids, _, _ in outcome.ledger.entries if kind == "update"}
    for row in outcome.rounds:
        assert row.bytes_up == sent.get(row.round, 0) * (MODEL + 4)
        assert row.bytes_down == row.asked * MODEL
        assert sent[row.round] == row.cohort_size if row.cohort_size else sent.get(row.round, 0) < 4


def test_dropouts_are_sampled_by_seed_round_and_hospital(federation):
    lossy = system(dropout={"uniform": [0.1, 0.6]}, latency=1)
    one, two = (
        run_strategy(federation, FedAvg(), system=lossy, seed=3),
        run_strategy(federation, Chip(), system=lossy, seed=3),
    )
    assert [row.cohort_size for row in one.rounds] == [row.cohort_size for row in two.rounds]
    sizes = [
        row.cohort_size
        for seed in range(20)
        for row in run_strategy(federation, FedAvg(), system=lossy, seed=seed).rounds
    ]
    assert 0.5 < np.mean(sizes) / 6 < 0.8
    assert all(end - begin <= 2 for begin, end in zip([0, *moments(one)], moments(one), strict=False))


def test_a_dropout_is_given_up_at_a_uniform_moment_of_its_local_update(federation):
    """A round ends with the last answer, or when the last of the lost is: both draws are keyed by round and attempt."""
    spent, chance = np.array([1.0, 2, 3, 4, 5, 60]), 0.5
    lossy = seconds(*spent, dropout=chance)
    for seed in range(6):
        outcome = run_strategy(federation, FedAvg(), rounds=2, seed=seed, system=lossy)
        for row, began, ended in zip(outcome.rounds, [0.0, *moments(outcome)], moments(outcome), strict=False):
            lost, moment = stream(seed, "dropout", row.round, 0).random((2, 6))
            there = lost >= chance
            if there.any():
                assert row.cohort_size == there.sum()
                assert ended - began == pytest.approx(np.where(there, spent, moment * spent).max())


def test_a_hospital_that_leaves_during_its_local_update_is_lost_when_it_leaves():
    """From second 10: done at 12, gone at 11 of 13, gone before it began, and to stay until the end of the local
    update."""
    perfect = resolve(system(), tuple("abcd"), 1)
    ends = answers(perfect, 1, np.arange(4), 10.0, np.array([2.0, 3, 4, 5]), np.array([99.0, 11, 5, 15]), 1)
    assert ends.ends.tolist() == [12, 11, 10, 15]
    assert ends.lost.tolist() == [False, True, True, False]


def test_late_updates_have_the_age_of_their_own_start(monkeypatch):
    """Of 3, 1 and 4, under way since rounds 1, 2 and 3, that of 1 comes in round 5 with that of 0."""

    class Discounted(Exception):
        pass

    def discounted(problem, factor):
        raise Discounted(problem, factor.tolist())

    monkeypatch.setattr("raysim.virtual_time.synchronous.discounted", discounted)
    scheduler: Any = SynchronousScheduler.__new__(SynchronousScheduler)
    scheduler._measuring = lambda view, late: view
    scheduler._strategy = SimpleNamespace(problem=lambda view, state, ids: ids.tolist())
    scheduler.clock = Clock.zero(1)
    for hospital, version in ((3, 0), (1, 1), (4, 2)):
        end = np.array([9.0])
        scheduler.clock = scheduler.clock.started(np.array([hospital]), version, np.zeros(1), end, end < 0)
    with pytest.raises(Discounted) as caught:
        scheduler._merged(None, None, np.array([0, 2]), None, np.array([0]), np.array([False, True, False]), 5, None)
    assert caught.value.args == ([0, 1], [1.0, 1 / 4])


def test_who_drops_out_does_so_by_its_own_chance():
    lossy = resolve(system(hospitals={"b": {"dropout": 0.999}}), ("a", "b", "c"), 1)
    ends = answers(lossy, 1, np.array([1, 2]), 0.0, np.array([2.0, 3]), None, 1)
    assert ends.lost.tolist() == [True, False]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 9),
    st.sampled_from([3.0, 6.0, np.inf]),
)
def test_the_server_goes_on_with_the_first(cohort, wanted, deadline):
    ends, lost = (np.array(column) for column in zip(*cohort, strict=True))
    ids = np.arange(len(ends))
    taken, close = Answers(ends.astype(float), lost).taken(wanted, deadline, ids)
    arrivals = sorted((end, i) for i, end in enumerate(ends) if not lost[i])
    first = arrivals[:wanted]
    expected = first[-1][0] if len(first) == wanted else ends.max()
    assert close == min(expected, deadline)
    assert np.flatnonzero(taken).tolist() == sorted(i for end, i in first if end <= close)


# Determinism

UNRELIABLE = {
    "rows_per_second": {"lognormal": [5.0, 1.0]},
    "latency": {"uniform": [0.1, 2.0]},
    "availability": 0.8,
    "dropout": 0.2,
}


RULES = {
    "drop": (FedAvg(), {"deadline": 4.0, "minimum_cohort": 2, "retries": 2}),
    "discount": (FedAdam(), {"deadline": 1.0, "late": "discount"}),
    "over-selection": (Chip(clusters=2), {"over_selection": 0.4}),
    "fedasync": (FedAsync(concurrency=4), {}),
    "fedbuff": (FedBuff(buffer=2, concurrency=4), {}),
}


@pytest.mark.parametrize("case", RULES)
def test_placement_changes_nothing(case, federation):
    strategy, rules = RULES[case]
    run = {"selection": Uniform(0.6, 2), "rounds": 6, "system": system(**UNRELIABLE, rounds=rules)}
    one = run_strategy(federation, strategy, **run)
    same(one, run_strategy(federation, strategy, actors=4, **run))
    assert moments(one) == moments(run_strategy(federation, strategy, actors=4, **run))
    assert moments(one) != moments(run_strategy(federation, strategy, seed=2, **run))


@pytest.mark.parametrize("case", RULES)
def test_a_run_goes_on_from_every_checkpoint_with_who_is_under_way(case, federation):
    strategy, rules = RULES[case]
    unreliable = system(**UNRELIABLE, rounds=rules)
    job = job_of(federation, strategy, selection=Uniform(0.6, 2), rounds=7, system=unreliable, precision="float32")
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(JobRun(pool, job).events(1))
    whole = events[-1]
    checkpoints = [event for event in events if isinstance(event, RunState)]
    if case in ("discount", "fedasync", "fedbuff"):
        assert max(len(standing.clock.hospital) for standing in checkpoints) > 0
        assert max(len(standing.clock.kept) for standing in checkpoints) > 1
    for standing in checkpoints:
        since, _ = decode(encode(standing, "print", strategy), strategy)
        *rounds, again = JobRun(pool, job, since).events()
        same(whole, again)
        assert moments(whole) == moments(again)
        assert [(row.asked, row.staleness) for row in whole.rounds] == [(r.asked, r.staleness) for r in again.rounds]
        assert all(isinstance(event, Round) for event in rounds)


def test_a_hospitals_draws_do_not_depend_on_how_many_there_are():
    section = system(rows_per_second={"lognormal": [10, 0.5]}, uplink={"choice": [1, 2]}, latency={"uniform": [1, 2]})
    few, many = (resolve(section, [f"h{i}" for i in range(n)], 7) for n in (3, 50))
    for key in ("rate", "up", "latency"):
        assert getattr(many, key)[:3].tolist() == getattr(few, key).tolist()
    assert np.median(many.rate) == pytest.approx(10, rel=0.3)
    assert set(many.up) == {125_000.0, 250_000.0}
    assert (resolve(section, ["h0"], 8).rate != few.rate[:1]).all()


def test_few_hospitals_train_at_a_time(federation):
    slow = seconds(1, 2, 3, 4, 5, 6)
    outcome = run_strategy(federation, FedAsync(concurrency=2), rounds=8, system=slow)
    assert [row.asked for row in outcome.rounds] == [2, *[1] * 7]
    assert max(row.staleness for row in outcome.rounds) <= 5


def test_a_table_says_what_differs_and_single_hospitals_go_before_it(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_text("hospital,rows_per_second,latency\nh1,7,\nh0,,0.5\nh2,9,1\n")
    resolved = resolve(
        system(rows_per_second=2, table=str(path), hospitals={"h2": {"latency": 4}}), ("h0", "h1", "h2"), 1
    )
    assert resolved.rate.tolist() == [2, 7, 9]
    assert resolved.latency.tolist() == [0.5, 0, 4]


def test_a_run_that_waits_all_in_vain_says_so_and_one_that_has_trained_does_not():
    still, section = Clock.zero(4), system(rounds={"minimum_cohort": 2})
    check_progress([0, 0], None, section)
    check_progress([0, 0], still, section)
    check_progress([0, 2, 0], still.at(60.0, waits=1), section)
    with pytest.raises(ConfigError, match=r"^system\.rounds: none of 2 rounds brought 2 updates; lower minimum_cohort"):
        check_progress([0, 0], still.at(60.0, waits=2), section)


@pytest.mark.parametrize(("sent", "wanted", "waits"), [("all", 8, True), (None, 10, False)])
def test_where_nothing_is_sent_all_are_waited_for_and_no_number_of_them_is_needed(sent, wanted, waits):
    """Ten are called, a quarter more than are wanted, where eleven are needed."""

    class Asked(Exception):
        pass

    def asked(*_):
        raise Asked(scheduler.__dict__.get("waited", False))

    def waited(*_):
        scheduler.waited = True

    problem = SimpleNamespace(sent=sent)
    scheduler: Any = SynchronousScheduler.__new__(SynchronousScheduler)
    scheduler._section = SimpleNamespace(rounds=SimpleNamespace(minimum_cohort=11, retries=0, over_selection=0.25))
    scheduler._strategy = SimpleNamespace(select=lambda *_: np.arange(10), problem=lambda *_: problem)
    scheduler._view_when_enough, scheduler._check_selection = lambda *_: (None, None), waited
    scheduler._answering = scheduler._wait = asked
    scheduler.clock = Clock.zero(1)
    assert scheduler._wanted(np.arange(10), problem) == wanted
    with pytest.raises(Asked) as caught:
        scheduler.schedule(None, None, 1)
    assert caught.value.args == (waits,)
