"""Rows reach actors that cannot read the federation's folder, and only those of the hospitals that they serve."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
import ray

from raysim.cluster.placement import place
from raysim.cluster.pool import RayPool
from raysim.cluster.shipping import Sender, part_of
from raysim.config.nodes import Node
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import OwnActor, ResourcesSection
from raysim.core.errors import ResourceError
from raysim.data.federation import PARTS, Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.experiment.session import open_session
from raysim.strategies.base import Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.selections.sampling import InverseSqrt
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, run_strategy, shared_ray

pytestmark = shared_ray("actors")

SIZES = [30, 8, 21, 0, 14, 9]


def job(federation: Federation, strategy: Strategy) -> Job:
    work = Work(
        str(federation.folder),
        ModelSpec("logistic_regression", None, {}, "default"),
        Optimizer("sgd", 0.1, 4),
        epochs=1,
        seed=1,
        precision="float64",
    )
    return Job(work, strategy, InverseSqrt(0.5, 2), 3, EvaluationSection())


def test_a_part_has_its_hospitals_rows_under_the_same_ids(federate: MakeFederation):
    federation = federate(SIZES)
    served = np.array([1, 4])
    part = part_of(federation, served)
    assert len(part.X) == part.totals.sum() == federation.totals[served].sum()
    assert part.hospitals == federation.hospitals
    for hospital in range(len(SIZES)):
        for name in PARTS:
            rows = part.X[part.rows(hospital, name)]
            if hospital in served:
                np.testing.assert_array_equal(rows, federation.X[federation.rows(hospital, name)])
                np.testing.assert_array_equal(
                    part.y[part.rows(hospital, name)], federation.y[federation.rows(hospital, name)]
                )
            else:
                assert rows.shape == (0, 3)


def test_a_part_s_patients_keep_the_numbers_that_they_have_in_the_whole(federate: MakeFederation):
    federation = federate(SIZES)
    for people in (None, np.arange(len(federation.y)) // 2):
        if people is not None:
            np.save(federation.folder / "people.npy", people)
        whole = Federation.open(federation.folder)
        part = part_of(whole, np.array([1, 4]))
        for hospital in (1, 4):
            for name in PARTS:
                expected = whole.identities[whole.rows(hospital, name)]
                np.testing.assert_array_equal(part.identities[part.rows(hospital, name)], expected)


def test_a_part_to_train_on_everybody_has_nobody_elses_test_rows(federate: MakeFederation):
    federation = federate(SIZES)
    part = part_of(federation, np.array([1]), training_of_all=True)
    for hospital in range(len(SIZES)):
        np.testing.assert_array_equal(
            part.X[part.rows(hospital, "train")], federation.X[federation.rows(hospital, "train")]
        )
        assert len(part.X[part.rows(hospital, "test")]) == (5 if hospital == 1 else 0)


def test_a_part_of_nobody_is_empty(federate: MakeFederation):
    part = part_of(federate(SIZES), np.empty(0, dtype=np.int64))
    assert part.X.shape == (0, 3)
    assert not part.totals.any()


def test_shipped_rows_give_the_same_bits_as_one_process(federate: MakeFederation):
    federation = federate(SIZES)
    resources = ResourcesSection(data="shipped", hospitals_per_actor=3)
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        for strategy in (Chip(clusters=2), Centralized()):
            *_, outcome = session.run(job(federation, strategy))
            alone = run_strategy(federation, strategy, selection=InverseSqrt(0.5, 2))
            assert isinstance(outcome, Outcome)
            np.testing.assert_array_equal(outcome.models, alone.models)
            for model, figures in outcome.figures.items():
                np.testing.assert_array_equal(figures, alone.figures[model])


@contextlib.contextmanager
def unreadable(pool: RayPool, federation: Federation) -> Iterator[None]:
    """For actors alone, for the time being, the folder holds something else."""
    other = federation.folder.with_name("elsewhere")
    for actor in pool.actors[1:]:
        ray.get(actor.__ray_call__.remote(_blind, str(federation.folder), str(other)))
    yield
    shutil.rmtree(other, ignore_errors=True)


def _blind(actor: object, folder: str, other: str) -> None:
    from raysim.data.federation import Federation as Reader

    real = Reader.open

    def renamed(path: object) -> Federation:
        return real(other if str(path) == folder else str(path))

    Reader.open = staticmethod(renamed)


def test_who_cannot_read_the_folder_is_found_out(federate: MakeFederation):
    federation = federate(SIZES)
    placement = place(federation.totals, ResourcesSection(hospitals_per_actor=3), [Node("here", 4)])
    pool = RayPool(placement, "cpu")
    with unreadable(pool, federation):
        shared, where = Sender(pool.served, "shared"), str(federation.folder)
        with pytest.raises(ResourceError, match=r"resources.data: shared, but '.*' cannot be read on \d+\."):
            shared.shipments(where, pool.actors, pooled=False)
        first, *others = Sender(pool.served, "auto").shipments(where, pool.actors, pooled=False)
        assert first is None
        for ids, shipment in zip(pool.served[1:], others, strict=True):
            part = ray.get(shipment[0])
            assert len(part.X) == federation.totals[ids].sum()


class Lost:
    """An actor whose process is lost when it is asked."""

    def reads(self, folder: str, expected: object) -> None:
        os._exit(1)


def test_an_actor_that_is_lost_when_it_is_asked_is_sent_its_rows(federate: MakeFederation):
    federation = federate(SIZES)
    actor = ray.remote(Lost).options(num_cpus=0).remote()
    ((part, _),) = Sender([np.arange(len(SIZES))], "auto").shipments(str(federation.folder), [actor], pooled=False)
    np.testing.assert_array_equal(ray.get(part).X, federation.X)


def test_an_actor_that_moves_to_a_node_without_the_folder_is_sent_its_rows(federate: MakeFederation):
    federation, strategies = federate(SIZES), (Chip(clusters=2), Centralized())
    resources = ResourcesSection(hospitals_per_actor=3)
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        read = [list(session.run(job(federation, strategy)))[-1] for strategy in strategies]
        moved = session.pool.actors[0]
        ray.get(moved.__ray_call__.remote(_forget))
        ray.get(moved.__ray_call__.remote(_blind, str(federation.folder), str(federation.folder) + "-gone"))
        sent = [list(session.run(job(federation, strategy)))[-1] for strategy in strategies]
    for strategy, outcomes in zip(strategies, zip(read, sent, strict=True), strict=True):
        alone = run_strategy(federation, strategy, selection=InverseSqrt(0.5, 2))
        for outcome in outcomes:
            assert isinstance(outcome, Outcome)
            np.testing.assert_array_equal(outcome.models, alone.models)


def _forget(actor: object) -> None:
    actor._group._federation.cache_clear()


def test_a_large_centre_computes_in_its_own_actor(federate: MakeFederation):
    federation = federate(SIZES)
    requests = {"h0": OwnActor(cpus=2, gpus=1), "h2": OwnActor(gpus=0.5)}
    shares = {"hospitals_per_actor": 4, "gpus_per_actor": 0.25, "cpus_per_actor": 0.5}
    resources = ResourcesSection(per_hospital=requests, **shares, device="cpu")
    alone = run_strategy(federation, Chip(clusters=2), selection=InverseSqrt(0.5, 2))
    with open_session(
        federation.totals, resources, in_process=False, verbose=False, names=federation.hospitals
    ) as session:
        assert [ids.tolist() for ids in session.pool.served[:2]] == [[0], [2]]
        in_actors = ray.get([actor.__ray_call__.remote(_held) for actor in session.actors])
        *_, outcome = session.run(job(federation, Chip(clusters=2)))
    devices = [device for device, _ in in_actors]
    assert devices[0] not in devices[1:]  # a whole device
    assert set(devices[1:]) == {devices[1]}  # the other one, shared
    assert [threads for _, threads in in_actors] == ["2"] + ["1"] * (len(in_actors) - 1)
    assert isinstance(outcome, Outcome)
    np.testing.assert_allclose(outcome.models, alone.models, rtol=0, atol=1e-6)


def _held(actor: object) -> tuple[str, str]:
    import os

    return os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"]


def test_a_session_leaves_nothing_reserved(federate: MakeFederation):
    federation = federate(SIZES)
    resources = ResourcesSection(per_hospital={"h0": OwnActor(cpus=2)})
    with open_session(federation.totals, resources, in_process=False, verbose=False, names=federation.hospitals):
        table = ray.util.placement_group_table()
        assert [group["state"] for group in table.values()].count("CREATED") == 1
    table = ray.util.placement_group_table()
    assert not [group for group in table.values() if group["state"] == "CREATED"]
