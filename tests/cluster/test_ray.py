"""Hospital actors and the coordinator actor on a real Ray that is configured with GPUs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray

from raysim.cluster.placement import Placement, balance, place
from raysim.cluster.pool import LocalPool, RayPool
from raysim.config.nodes import Node
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import ResourcesSection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import HospitalFailed, ResourceError, StrategyError, TrainingDiverged
from raysim.core.importing import by_path, standing_here
from raysim.core.registry import load_class
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec, RoundPlan, Work
from raysim.engine.server.coordinator import JobRun
from raysim.experiment.session import Session, open_session
from raysim.strategies.base import Context, Send, Statistic, Strategy, statistics_of
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.references.local import Local
from raysim.strategies.selections.power_of_choice import PowerOfChoice
from raysim.strategies.selections.sampling import InverseSqrt
from raysim.strategies.trees.federated import FederatedTrees
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, run_strategy, shared_ray
from tests.equality import same_models

pytestmark = shared_ray("actors")

SIZES = [30, 8, 21, 0, 14, 9, 17, 40]


def job(federation: Federation, strategy: Strategy, **changes: object) -> Job:
    optimizer = Optimizer("sgd", float(changes.pop("rate", 0.1)), 4)
    model = changes.pop("model", None) or ModelSpec("logistic_regression", None, {}, "default")
    work = Work(str(federation.folder), model, optimizer, 2, 1, "float32")
    return Job(work, strategy, InverseSqrt(0.5, 2), 4, EvaluationSection())


def same_bits(session: Session, federation: Federation) -> None:
    """What a session gives is what one process gives, with models of everybody and of each hospital."""
    for strategy in (Chip(clusters=2), Local()):
        *rounds, outcome = session.run(job(federation, strategy))
        alone = run_strategy(
            *(federation, strategy), selection=InverseSqrt(0.5, 2), rounds=4, epochs=2, precision="float32"
        )
        assert isinstance(outcome, Outcome)
        assert [row.round for row in rounds] == [1, 2, 3, 4]
        same_models(outcome, alone)
        assert repr([row.metrics for row in rounds]) == repr([row.metrics for row in alone.rounds])  # NaN equals NaN


def test_an_actor_for_each_hospital_gives_the_same_bits_as_one_process(federate: MakeFederation):
    federation = federate(SIZES[1:4], [6] * 3)
    resources = ResourcesSection(hospitals_per_actor=1)
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        same_bits(session, federation)


class Broken(Statistic):
    name = "broken"
    sent = Send((1,), how="each")

    def value(self, at: Context) -> np.ndarray:
        if len(at.rows.y) == 21:
            raise ZeroDivisionError("no rows to spare")
        return np.zeros(1)


class AsksBroken(Strategy):
    def setup(self, view):
        statistics_of(view, Broken())
        return super().setup(view)


class Leaves(Strategy):
    def aggregate(self, view, state, update):
        raise SystemExit(0)


class Leaving(Statistic):
    name = "leaving"
    sent = Send((1,), how="each")

    def value(self, at: Context) -> np.ndarray:
        raise SystemExit(0)


class AsksLeaving(Strategy):
    def setup(self, view):
        statistics_of(view, Leaving())
        return super().setup(view)


@pytest.fixture(scope="class")
def two() -> Iterator[Session]:
    """Two actors, four hospitals each, for the jobs of tests after which they still stand."""
    resources = ResourcesSection(hospitals_per_actor=4)
    with open_session(np.array(SIZES), resources, in_process=False, verbose=False) as session:
        yield session


class TestOnTwoActors:
    def test_two_actors_give_the_same_bits_as_one_process(self, federate: MakeFederation, two: Session):
        same_bits(two, federate(SIZES, [6] * 8))

    def test_questions_are_answered_under_what_hospitals_keep(self, federate: MakeFederation, two: Session):
        """Whom Power-of-Choice takes depends on losses under parameters that are with the actors."""
        federation, selection = federate(SIZES, [6] * 8), PowerOfChoice(candidates=6, fraction=0.3)
        run_of = {"rounds": 4, "epochs": 2, "batch_size": 4, "precision": "float32", "learning_rate": 0.5}
        alone = run_strategy(federation, FedPer(), selection=selection, **run_of)
        planned = replace(job(federation, FedPer(), rate=0.5), selection=selection)
        *_, outcome = two.run(planned)
        assert isinstance(outcome, Outcome)
        np.testing.assert_array_equal(outcome.models, alone.models)
        assert (outcome.setup, outcome.traffic) == (alone.setup, alone.traffic)

    @pytest.mark.parametrize(
        "sections",
        [
            {"secure": SecureSection(mode="execute", threshold=3, drop={"mask": 0.1})},
            {"compression": CompressionSection(name="top_k", ratio=0.5)},
            {
                "adversary": AdversarySection(attack="mimic", share=0.3),
                "aggregation": AggregationSection(name="centred_clipping"),
            },
        ],
        ids=["secure", "compressed", "attacked"],
    )
    def test_what_stands_between_hospitals_and_sums_is_the_same_bits(
        self, federate: MakeFederation, two: Session, sections
    ):
        planned = replace(job(federate(SIZES), FedAvg()), **sections)
        *_, outcome = two.run(planned)
        *_, alone = JobRun(LocalPool(Placement(balance(np.array(SIZES), 1), 1, 0), "cpu"), planned).events()
        assert isinstance(outcome, Outcome)
        assert isinstance(alone, Outcome)
        np.testing.assert_array_equal(outcome.models, alone.models)
        assert (outcome.setup, outcome.traffic) == (alone.setup, alone.traffic)
        if "secure" in sections:
            model = replace(planned, secure=SecureSection(threshold=3, drop={"mask": 0.1}))
            *_, counted = two.run(model)
            assert isinstance(counted, Outcome)
            np.testing.assert_array_equal(counted.models, outcome.models)
            assert counted.traffic == outcome.traffic

    def test_divergence_names_round_and_hospital(self, federate: MakeFederation, two: Session):
        with pytest.raises(TrainingDiverged, match=r"learning_rate: 1e\+30 made hospital .h\d. diverge in round 1"):
            list(two.run(job(federate(SIZES), FedAvg(), rate=1e30)))

    def test_a_failing_hospital_is_named_with_its_own_error(self, federate: MakeFederation, two: Session):
        with pytest.raises(
            HospitalFailed, match=r"hospital 'h2' failed while running .*program 'broken': ZeroDivisionError: no rows"
        ):
            list(two.run(job(federate(SIZES), AsksBroken())))

    def test_a_plug_in_that_leaves_an_actors_process_is_an_error_that_names_it(
        self, federate: MakeFederation, two: Session
    ):
        federation = federate(SIZES, [6] * 8)
        with pytest.raises(StrategyError, match=r"round 1: aggregate called sys.exit\(0\); raise an error instead"):
            list(two.run(job(federation, Leaves())))
        with pytest.raises(HospitalFailed, match=r"its code called sys.exit\(0\); raise an error instead"):
            list(two.run(job(federation, AsksLeaving())))

    def test_a_module_that_the_driver_alone_has_is_named(
        self, federate: MakeFederation, two: Session, tmp_path, monkeypatch
    ):
        """As where a node of a cluster lacks it: here it is gone by the time that actors look for it."""
        monkeypatch.syspath_prepend(tmp_path)
        path = tmp_path / "driver_alone.py"
        path.write_text("from raysim import Strategy\n\n\nclass Mine(Strategy):\n    pass\n")
        strategy = load_class("driver_alone.Mine", "strategy.class")()
        path.unlink()
        missing = r"cannot be imported on every node \(ModuleNotFoundError: No module named 'driver_alone'\); install"
        with pytest.raises(ResourceError, match=missing):
            list(two.run(job(federate(SIZES), strategy)))

    def test_killed_actors_come_back_and_the_result_is_the_same(self, federate: MakeFederation, two: Session):
        federation = federate(SIZES, [6] * 8)
        expected = list(two.run(job(federation, Chip(clusters=2))))[-1]
        events = two.run(job(federation, Chip(clusters=2)))
        next(events)
        for actor in two.actors:
            ray.kill(actor, no_restart=False)
        *_, outcome = events
        assert isinstance(outcome, Outcome)
        assert isinstance(expected, Outcome)
        np.testing.assert_array_equal(outcome.models, expected.models)

    def test_killed_in_the_middle_of_a_tree_actors_receive_their_memory_again(
        self, federate: MakeFederation, two: Session
    ):
        federation = federate([30] * 8)
        asked: list[tuple[RoundPlan, object]] = []

        class Recording(LocalPool):
            def round(self, plan, memory):
                asked.append((plan, memory))
                return super().round(plan, memory)

        trees = ModelSpec("boosted_trees", None, {"trees": 2, "depth": 2, "min_rows": 1}, "default")
        placement = Placement(two.pool.served, cpus=1, gpus=0)
        list(JobRun(Recording(placement, "cpu"), job(federation, FederatedTrees(), model=trees)).events())
        first, second = [call for call in asked if call[0].call and call[0].call.program.name == "histograms"][2:4]
        assert second[0].only_reads
        expected, _ = LocalPool(placement, "cpu").round(*second)
        _, remembered = two.pool.round(*first)
        kept, _ = two.pool.round(second[0], remembered)
        for actor in two.actors:
            ray.kill(actor, no_restart=False)
        again, _ = two.pool.round(second[0], remembered)
        for partials in (kept, again):
            for partial, one in zip(partials, expected, strict=True):
                np.testing.assert_array_equal(partial.sums, one.sums)


def test_fractions_of_a_gpu_are_held_and_visible(federate: MakeFederation):
    federation = federate(SIZES[:4])
    resources = ResourcesSection(hospitals_per_actor=2, gpus_per_actor=0.5, cpus_per_actor=0.5)
    placement = place(federation.totals, resources, [Node("here", 4, 2)])
    assert len(placement.served) == 2
    pool = RayPool(placement, "cpu")
    pool.wait(600)
    assert ray.available_resources().get("GPU", 0.0) == pytest.approx(1.0)

    (device, other) = ray.get([actor.__ray_call__.remote(_visible) for actor in pool.actors])
    assert device == other in ("0", "1"), "two halves of one device"
    del pool


def _visible(actor: object) -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


def test_a_gpu_share_without_cuda_is_said(federate: MakeFederation):
    federation = federate(SIZES)
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    resources = ResourcesSection(hospitals_per_actor=8, gpus_per_actor=0.5)
    with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
        assert session.warning is not None
        assert "sees no CUDA device" in session.warning
        assert isinstance(list(session.run(job(federation, Local())))[-1], Outcome)
    required = ResourcesSection(hospitals_per_actor=8, gpus_per_actor=0.5, device="cuda")
    with (
        pytest.raises(ResourceError, match=r"resources.device: cuda, but torch sees no CUDA device"),
        open_session(federation.totals, required, in_process=False, verbose=False),
    ):
        pass


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (ResourcesSection(hospitals_per_actor=1, cpus_per_actor=1), "8 actors x 1 need 8 CPUs, but there are 4"),
        (ResourcesSection(hospitals_per_actor=4, gpus_per_actor=3), "2 actors x 3 need 6 GPUs, but there are 2"),
        (ResourcesSection(hospitals_per_actor=1, gpus_per_actor=0.6), "8 actors x 0.6 need 4.8 GPUs, but there are 2"),
        (ResourcesSection(gpus_per_actor=1.5), "1.5 is more than one GPU, but not a whole number"),
    ],
)
def test_more_than_there_is_is_an_error_that_says_what_there_is(federate: MakeFederation, resources, message):
    with (
        pytest.raises(ResourceError, match=message),
        open_session(federate(SIZES).totals, resources, in_process=False, verbose=False),
    ):
        pass


def test_actors_that_cannot_come_up_in_time_are_an_error_and_not_a_wait():
    stuck = RayPool(Placement((np.array([0]),), cpus=1000, gpus=0), "cpu")
    with pytest.raises(ResourceError, match="not started after"):
        stuck.wait(0.5)


def test_at_most_one_put_a_round_and_uplink_that_does_not_grow_with_hospitals(federate: MakeFederation, monkeypatch):
    puts: list[object] = []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(value) or put(value))
    uplink = {}
    for count in (6, 24):
        federation = federate([10] * count)
        placement = place(federation.totals, ResourcesSection(hospitals_per_actor=count // 2), [Node("here", 4)])
        pool = RayPool(placement, "cpu")
        _, message = _first_plan(federation, count)
        before = len(puts)
        partials, _ = pool.round(message, None)
        assert len(puts) == before  # a small plan travels within the calls
        uplink[count] = sum(partial.units.nbytes for partial in partials)
        large = replace(message, models=np.zeros((5000, 4), np.float32))
        pool.round(large, None)
        assert len(puts) == before + 1
    assert uplink[6] == uplink[24]


def _first_plan(federation: Federation, count: int) -> tuple[Job, RoundPlan]:
    from raysim.strategies.base import LocalProblem, Upload

    planned = job(federation, Strategy())
    ids = np.arange(count)
    problem = LocalProblem(start=np.zeros_like(ids), upload=Upload(np.full(count, 1 / count)))
    return planned, RoundPlan(planned.work, 1, np.zeros((1, 4), dtype=np.float32), ids, problem)


class LooksFor(Strategy):
    """Tells in its state which of the modules ``ours`` and ``theirs`` the coordinator's process can import."""

    def setup(self, view):
        state = super().setup(view)
        for module in ("theirs_alone", "ours_alone"):
            with contextlib.suppress(ValueError):
                state = replace(state, models=np.full_like(state.models, by_path(f"{module}.NUMBER")))
        return state

    def aggregate(self, view, state, update):
        return state


def test_actors_take_code_from_where_the_command_was_typed_and_not_from_where_it_works(
    federate: MakeFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    federation = federate(SIZES, [6] * 8)
    for folder, number in (("ours", 1), ("theirs", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}_alone.py").write_text(f"NUMBER = {number}\n")
    monkeypatch.chdir(tmp_path / "ours")
    with standing_here([tmp_path / "theirs"]), contextlib.chdir(tmp_path / "theirs"):
        resources = ResourcesSection(hospitals_per_actor=8)
        with open_session(federation.totals, resources, in_process=False, verbose=False) as session:
            *_, outcome = session.run(job(federation, LooksFor()))
    assert isinstance(outcome, Outcome)
    np.testing.assert_array_equal(outcome.models, np.ones_like(outcome.models))
