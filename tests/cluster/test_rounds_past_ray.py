"""Rounds past Ray on real actors: the same bits, and whatever goes wrong there is made good through Ray."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import ray

from raysim.cluster import lines
from raysim.cluster import pool as pools
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool, RayPool
from raysim.core.errors import TrainingDiverged
from raysim.engine.messages import ModelSpec, PartialResult
from raysim.strategies.base import Visit
from tests.cluster.test_lines import SIZES, plan
from tests.conftest import MakeFederation, shared_ray

pytestmark = shared_ray("actors")


def same(partials: list[PartialResult], expected: list[PartialResult]) -> None:
    for partial, other in zip(partials, expected, strict=True):
        np.testing.assert_array_equal(partial.ids, other.ids)
        np.testing.assert_array_equal(partial.units, other.units)
        np.testing.assert_array_equal(partial.loss_sums["global"], other.loss_sums["global"])


def placement() -> Placement:
    return Placement(balance(np.array(SIZES), 2), 1, 0)


@contextlib.contextmanager
def two_actors() -> Iterator[RayPool]:
    """Actors that end afterwards, as others on this Ray need their CPUs."""
    pool = RayPool(placement(), "cpu", timeout=600.0)
    try:
        pool.wait(600)
        yield pool
    finally:
        for actor in pool.actors:
            ray.kill(actor)


@pytest.fixture(scope="module")
def pool(ray_here: None) -> Iterator[RayPool]:
    with two_actors() as pool:
        yield pool


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, who is called gets time to answer."""
    monkeypatch.setattr(lines, "DIAL_SECONDS", 600)
    monkeypatch.setattr(pools, "DIAL_SECONDS", 600)


def test_a_round_over_lines_has_the_bits_of_one_process(pool: RayPool, federate: MakeFederation):
    round = plan(federate(SIZES))
    expected, _ = LocalPool(placement(), "cpu").round(round, None)
    for _ in range(2):
        partials, _ = pool.round(round, None)
        same(partials, expected)
        assert pool._lines.up == {0, 1}


def test_a_plan_that_goes_through_ray_brings_models_that_are_read_only(
    pool: RayPool, federate: MakeFederation, monkeypatch: pytest.MonkeyPatch
):
    """So do plans of large models, and all of them to actors on other hosts."""
    monkeypatch.setattr(lines, "MOST_BYTES", 0)
    federation = federate(SIZES)
    perceptron = ModelSpec("mlp", None, {"hidden": [64]}, "default")
    size = 64 * (federation.X.shape[1] + 1) + 2 * 65
    round = plan(federation, bank=np.random.default_rng(0).normal(size=(1, size)).astype(np.float32))
    round = replace(round, work=replace(round.work, model=perceptron))
    expected, _ = LocalPool(placement(), "cpu").round(round, None)
    partials, _ = pool.round(round, None)
    same(partials, expected)


def test_models_that_stay_with_hospitals_go_through_ray(pool: RayPool, federate: MakeFederation):
    round = plan(federate(SIZES))
    assert round.problem is not None
    keeping = replace(round, problem=replace(round.problem, visit=Visit(keep=True)))
    partials, memory = pool.round(keeping, None)
    assert keeping.remembers
    assert all(isinstance(reference, ray.ObjectRef) for reference in memory)
    same(partials, LocalPool(placement(), "cpu").round(keeping, None)[0])
    assert sorted(pool.recall(memory)) == [0, 1, 2, 3]


def test_a_lost_actor_answers_through_ray_and_then_on_a_new_line(pool: RayPool, federate: MakeFederation):
    round = plan(federate(SIZES))
    expected, _ = LocalPool(placement(), "cpu").round(round, None)
    pool.round(round, None)
    assert pool._lines.up == {0, 1}
    victim = ray.get(pool.actors[1].__ray_call__.remote(lambda _: os.getpid()))
    os.kill(victim, signal.SIGKILL)
    same(pool.round(round, None)[0], expected)
    same(pool.round(round, None)[0], expected)
    assert pool._lines.up == {0, 1}


def test_an_error_is_that_of_the_call_through_ray(pool: RayPool, federate: MakeFederation):
    round = plan(federate(SIZES))
    wrong = replace(round, bank=np.full_like(round.bank, np.nan))
    with pytest.raises(TrainingDiverged, match="diverge in round 1"):
        pool.round(wrong, None)
    partials, _ = pool.round(round, None)
    same(partials, LocalPool(placement(), "cpu").round(round, None)[0])


def test_an_actor_that_stands_still_is_started_anew_once(federate: MakeFederation):
    round = plan(federate(SIZES))
    with two_actors() as pool:
        pool.round(round, None)
        assert pool._lines.up == {0, 1}
        pool._timeout, pool.restart_seconds = 2.0, 600.0
        os.kill(ray.get(pool.actors[0].__ray_call__.remote(lambda _: os.getpid())), signal.SIGSTOP)
        same(pool.round(round, None)[0], LocalPool(placement(), "cpu").round(round, None)[0])


def test_a_pool_that_travels_makes_its_own_calls(pool: RayPool, federate: MakeFederation):
    pool.round(plan(federate(SIZES)), None)
    there = pickle.loads(ray.cloudpickle.dumps(pool))
    assert there._lines.up == frozenset()
    there.round(plan(federate(SIZES)), None)
    assert there._lines.up == {0, 1}
