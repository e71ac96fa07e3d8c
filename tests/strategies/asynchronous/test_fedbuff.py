"""FedBuff: the identity with federated averaging, weights by hand, and a simulation of events in numpy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysim.config.sections.system import SystemSection
from raysim.data.federation import Federation
from raysim.strategies.asynchronous.fedasync import FedAsync
from raysim.strategies.asynchronous.fedbuff import FedBuff
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All, Uniform
from raysim.virtual_time.clock import Clock
from raysim.virtual_time.unreliable import AsynchronousScheduler
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.asynchronous.event_loop import simulated
from tests.strategies.asynchronous.test_fedasync import SPEEDS, speeds
from tests.strategies.contexts import hospital, view_of
from tests.strategies.test_identities import SIZES, assert_different, assert_same


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


@pytest.mark.parametrize("system", [None, SystemSection(latency=2.0)])
def test_a_buffer_of_all_equally_fast_hospitals_is_federated_averaging(system, federation):
    run = {"rounds": 4, "epochs": 2, "system": system}
    averaged = run_strategy(federation, FedAvg(weights="uniform"), **run)
    for size in (6, 50):
        outcome = run_strategy(federation, FedBuff(buffer=size, concurrency=size), **run)
        assert_same(outcome.models, averaged.models)
        assert [row.cohort_size for row in outcome.rounds] == [6] * 4
        assert [row.virtual_seconds for row in outcome.rounds] == [row.virtual_seconds for row in averaged.rounds]
    assert_different(run_strategy(federation, FedBuff(buffer=3, concurrency=6), **run).models, averaged.models)
    slower = run_strategy(federation, FedBuff(buffer=6, server_learning_rate=0.5), **run)
    assert_different(slower.models, averaged.models)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_first_to_start_are_those_that_federated_averaging_would_select(seed, federation):
    run = {"rounds": 1, "epochs": 2, "seed": seed}
    averaged = run_strategy(federation, FedAvg(weights="uniform"), selection=Uniform(0.1, 3), **run)
    # Its size is that of the room there is, whatever the selection says of a round's.
    outcome = run_strategy(federation, FedBuff(buffer=3, concurrency=3), selection=Uniform(0.9, 1), **run)
    assert_same(outcome.models, averaged.models)


def test_a_buffer_of_one_without_staleness_is_fedasync_with_whole_mixing(federation):
    run = {"rounds": 5, "selection": Uniform(0.5, 2)}
    one = run_strategy(federation, FedBuff(buffer=1, concurrency=1), **run)
    assert_same(one.models, run_strategy(federation, FedAsync(mixing=1.0, rho=0.0, concurrency=1), **run).models)


@pytest.mark.parametrize("buffer", [1, 2, 4])
def test_it_is_the_papers_algorithm_on_a_simulation_of_events(buffer, federation):
    seconds = 2 * np.array(SIZES) / np.array(list(SPEEDS.values()))

    def step(model, ready):
        return model + 0.8 / buffer * sum((new - old) / np.sqrt(1 + age) for old, new, age in ready)

    expected, times, ages = simulated(federation, seconds, 9, buffer, step, rate=0.3, epochs=2)
    run = {"rounds": 9, "epochs": 2, "batch_size": 0, "learning_rate": 0.3, "selection": All(), "system": speeds()}
    outcome = run_strategy(federation, FedBuff(buffer=buffer, server_learning_rate=0.8), **run)
    assert_same(outcome.models[0], expected)
    assert [row.virtual_seconds for row in outcome.rounds] == pytest.approx(times)
    assert [row.staleness for row in outcome.rounds] == pytest.approx([np.mean(age) for age in ages])
    assert max(max(age) for age in ages) > 0, "the example has stale updates"


def test_weights_by_hand():
    view = view_of([hospital([n, 0]) for n in (2, 3, 5)])
    ids, buff = np.arange(3), FedBuff(server_learning_rate=3.0)
    assert buff.problem(view, buff.setup(view), ids).upload.weight == pytest.approx([1, 1, 1])
    object.__setattr__(view, "staleness", np.array([0, 3, 8]))
    assert buff.problem(view, buff.setup(view), ids).upload.weight == pytest.approx([1, 1 / 2, 1 / 3])
    constant = FedBuff(server_learning_rate=3.0, exponent=0.0)
    assert constant.problem(view, constant.setup(view), ids).upload.weight == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("bad", [{"buffer": 0}, {"server_learning_rate": -1}, {"exponent": -1}, {"concurrency": 0}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        FedBuff(**bad)


def test_who_ends_first_is_taken_unless_it_is_lost():
    """Of 4, 1 and 2, that end after 9, 3 and 5 s, 1 is lost."""

    class Asked(Exception):
        pass

    def asked(view, state, ids):
        raise Asked(ids.tolist(), view.staleness.tolist())

    scheduler: Any = AsynchronousScheduler.__new__(AsynchronousScheduler)
    scheduler._buffer, scheduler._strategy = 1, SimpleNamespace(problem=asked)
    scheduler._start = lambda *_: (0, 0)
    ends, lost = np.array([9.0, 3.0, 5.0]), np.array([False, True, False])
    scheduler.clock = Clock.zero(1).started(np.array([4, 1, 2]), 5, np.zeros(1), ends, lost)
    with pytest.raises(Asked) as caught:
        scheduler.schedule(view_of([hospital([1, 1])] * 5), None, 8)
    assert caught.value.args == ([2], [0, 0, 2, 0, 0])
    assert (scheduler.clock.now, scheduler.clock.hospital.tolist()) == (5.0, [4])


@pytest.mark.parametrize("concurrency", [1, 3])
def test_nobody_is_asked_where_there_is_no_room_and_where_nobody_is_chosen(concurrency):
    scheduler: Any = AsynchronousScheduler.__new__(AsynchronousScheduler)
    scheduler._concurrency, scheduler._seed = concurrency, 1
    scheduler._strategy = SimpleNamespace(select=lambda *_: np.zeros(0, np.int64))
    scheduler._availability = lambda *_: (np.ones(5, bool), None)
    scheduler.clock = Clock.zero(1).started(np.array([4]), 5, np.zeros(1), np.ones(1), np.zeros(1, bool))
    view = replace(view_of([hospital([1, 1])] * 5), selection=Uniform(1.0, 1))
    assert scheduler._start(view, None, np.zeros(0, np.int64), 1, 0) == (0, 0)
