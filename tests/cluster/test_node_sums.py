"""Sums that are added up node by node on their way: who adds what, that no bit changes, and what a lost adder costs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from raysim.cluster import node_sums
from raysim.cluster.node_sums import MOST_SUMS, added, additions
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool, RayPool
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec, PartialResult, RoundPlan, Work
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.merging import summed
from raysim.engine.server.pool import StateReferences
from raysim.strategies.base import POOLED, Strategy
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.strategies.problem import LocalProblem, Upload
from raysim.strategies.selections.sampling import All
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, shared_ray

SIZES = [30, 8, 21, 14, 11, 5, 9, 17]
NODES = (0, 0, 1, 1)

pytestmark = shared_ray("actors")


def placement(nodes: Sequence[int] = NODES) -> Placement:
    return Placement(balance(np.array(SIZES), len(nodes)), 0.5, 0, nodes=tuple(nodes))


class TestWhoAdds:
    def test_by_hand(self):
        assert additions([0, 1, 2, 3], [0, 0, 1, 1]) == [[(0, 1), (2, 3)]]
        assert additions([0, 3], [0, 0, 1, 1]) == []
        assert additions([0, 2, 3], [0, 0, 1, 1]) == [[(2, 3)]]
        alone = list(range(MOST_SUMS + 2))
        assert additions(alone, alone) == [[tuple(range(MOST_SUMS)), (MOST_SUMS, MOST_SUMS + 1)]]

    @given(st.lists(st.integers(0, 99), min_size=1, max_size=300), st.integers(0, 2**32 - 1))
    def test_every_sum_arrives_once_and_few_travel(self, nodes: list[int], seed: int):
        rng = np.random.default_rng(seed)
        actors = np.flatnonzero(rng.random(len(nodes)) < 0.7).tolist()
        # The whole range, which wraps around as masked sums do.
        values = rng.integers(-(2**63), 2**63, size=(len(nodes), 3), dtype=np.int64)
        held, travelled = {actor: values[actor] for actor in actors}, 0
        for i, level in enumerate(additions(actors, nodes)):
            taken = [actor for group in level for actor in group]
            assert len(set(taken)) == len(taken)
            for group in level:
                assert len(group) > 1
                homes = {nodes[actor] for actor in group}
                if i == 0 and len(homes) == 1:
                    assert not any(nodes[actor] in homes for actor in held if actor not in group)
                else:
                    assert len(homes) == len(group) <= MOST_SUMS
                    travelled += len(group) - 1
                held[group[0]] = added([held.pop(actor) for actor in group])
        used = {nodes[actor] for actor in actors}
        assert len(held) <= MOST_SUMS
        assert travelled + len(held) == len(used)
        wrapped = [(sum(column.tolist()) + 2**63) % 2**64 - 2**63 for column in values[actors].T]
        assert sum(held.values(), np.zeros(3, np.int64)).tolist() == wrapped

    def test_what_is_added_stays_as_it_is(self):
        one, other = np.array([1, 2]), np.array([3, 4])
        one.flags.writeable = other.flags.writeable = False  # as Ray hands them over
        assert added([one, other]).tolist() == [4, 6]
        assert (one.tolist(), other.tolist()) == ([1, 2], [3, 4])


def plan(federation: Federation, **changes: Any) -> RoundPlan:
    """A round of everybody's."""
    model = ModelSpec("logistic_regression", None, {}, "default")
    work = Work(str(federation.folder), model, Optimizer("sgd", 0.1, 4), 2, 1, "float32")
    ids = np.arange(len(SIZES))
    models = np.linspace(-0.1, 0.1, federation.X.shape[1] + 1, dtype=np.float32)[None]
    problem = LocalProblem(start=np.zeros(len(ids), np.int64), upload=Upload(weight=np.full(len(ids), 1 / len(ids))))
    return replace(RoundPlan(work, 1, models, ids, problem), **changes)


def test_small_sums_travel_within_answers(federate: MakeFederation, monkeypatch: pytest.MonkeyPatch):
    round = plan(federate(SIZES))
    served = placement().served
    assert node_sums.sums_bytes(round) == 8 * 4
    assert node_sums.sums_bytes(replace(round, problem=None)) == 0
    assert node_sums.with_sums(round, served) == frozenset()
    monkeypatch.setattr(node_sums, "LEAST_BYTES", 32)
    assert node_sums.with_sums(round, served) == {0, 1, 2, 3}
    assert node_sums.with_sums(replace(round, ids=served[2]), served) == {2}
    assert node_sums.with_sums(replace(round, ids=np.array([POOLED])), served) == {0}
    monkeypatch.setattr(node_sums, "LEAST_BYTES", 33)
    assert node_sums.with_sums(round, served) == frozenset()


class Seen:
    """A pool that notes how many sums arrive in each round."""

    def __init__(self, pool: RayPool) -> None:
        self.pool, self.served = pool, pool.served
        self.sums: list[int] = []
        self.recall = pool.recall

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        partials, remembered = self.pool.round(plan, memory)
        if plan.problem is not None:
            self.sums.append(sum(partial.units is not None for partial in partials))
        return partials, remembered


@pytest.fixture(scope="module")
def pool(ray_here: None) -> Iterator[RayPool]:
    """Four actors that are assigned to two nodes."""
    pool = RayPool(placement(), "cpu", timeout=600.0)
    pool.wait(600)
    yield pool
    for actor in pool.actors:
        ray.kill(actor)


class TestOnRay:
    @pytest.fixture(autouse=True)
    def apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node_sums, "LEAST_BYTES", 1)

    @pytest.mark.parametrize(
        ("strategy", "sections"),
        [
            (FedAvg(), {}),
            (Ifca(clusters=3), {}),
            (Scaffold(), {}),
            (FedAvg(), {"secure": SecureSection(mode="execute")}),
            (FedAvg(), {"compression": CompressionSection.model_validate({"name": "top_k", "ratio": 0.5})}),
        ],
    )
    def test_a_run_has_the_bits_of_one_process(
        self, pool: RayPool, federate: MakeFederation, strategy: Strategy, sections: dict[str, Any]
    ):
        federation = federate(SIZES)
        work = plan(federation).work
        job = Job(work, strategy, All(), 3, EvaluationSection(), **sections)
        seen = Seen(pool)
        (*_, here), (*_, there) = JobRun(seen, job).events(), JobRun(LocalPool(placement(), "cpu"), job).events()
        assert isinstance(here, Outcome)
        assert isinstance(there, Outcome)
        assert set(seen.sums) == {2}
        np.testing.assert_array_equal(here.models, there.models)
        assert np.ptp(here.models) > 0
        for model, figures in here.figures.items():
            np.testing.assert_array_equal(figures, there.figures[model])
        # What a hospital sends is as it was.
        assert [(row.bytes_down, row.bytes_up) for row in here.rounds] == [
            (row.bytes_down, row.bytes_up) for row in there.rounds
        ]

    def test_single_updates_come_one_by_one(self, pool: RayPool, federate: MakeFederation):
        round = plan(federate(SIZES))
        assert round.problem is not None
        assert round.problem.upload is not None
        upload = replace(round.problem.upload, single=True)
        single = replace(round, problem=replace(round.problem, upload=upload))
        partials, _ = pool.round(single, None)
        alone, _ = LocalPool(placement(), "cpu").round(single, None)
        for partial, other in zip(partials, alone, strict=True):
            np.testing.assert_array_equal(partial.deltas, other.deltas)
        np.testing.assert_array_equal(summed(partials, 1, 4), summed(alone, 1, 4))

    def test_a_lost_actor_adds_when_it_is_up_again(self, pool: RayPool, federate: MakeFederation):
        round = plan(federate(SIZES))
        expected = summed(LocalPool(placement(), "cpu").round(round, None)[0], 1, 4)
        os.kill(ray.get(pool.actors[2].__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        partials, _ = pool.round(round, None)
        assert [partial.units is not None for partial in partials] == [True, False, True, False]
        np.testing.assert_array_equal(summed(partials, 1, 4), expected)

    def test_an_adder_that_stands_still_is_restarted(
        self, pool: RayPool, federate: MakeFederation, monkeypatch: pytest.MonkeyPatch
    ):
        round = plan(federate(SIZES))
        expected = summed(LocalPool(placement(), "cpu").round(round, None)[0], 1, 4)
        process = ray.get(pool.actors[2].__ray_call__.remote(lambda _: os.getpid()))
        gather = pool._gather

        def stopped_afterwards(*arguments: Any, **options: Any) -> Any:
            answers = gather(*arguments, **options)
            monkeypatch.setattr(pool, "_gather", gather)
            os.kill(process, signal.SIGSTOP)
            monkeypatch.setattr(pool, "_timeout", 2.0)
            monkeypatch.setattr(pool, "restart_seconds", 600.0)
            return answers

        monkeypatch.setattr(pool, "_gather", stopped_afterwards)
        partials, _ = pool.round(round, None)
        np.testing.assert_array_equal(summed(partials, 1, 4), expected)
        assert process != ray.get(pool.actors[2].__ray_call__.remote(lambda _: os.getpid()))
