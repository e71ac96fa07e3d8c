"""``raysim plan`` says beforehand what a run then does."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace

import numpy as np
import pytest
import yaml
from rich.console import Console

from raysim.cli import commands
from raysim.cluster import node_sums
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config import plugins, reading
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.plugin_sections import StrategySection
from raysim.config.sections.privacy import PrivacySection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Round
from raysim.engine.messages.plan import ModelSpec, PartialResult, RoundPlan, Work
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.pool import StateReferences
from raysim.experiment.planning.plan import available, make_plan, memory, weigh
from raysim.experiment.planning.tables import fits
from raysim.strategies.base import Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.selections.sampling import All, InverseSqrt
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, fitting, run, with_patients

SIZES = [30, 8, 21, 0, 14, 9, 17, 40]


def strategies() -> list[str]:
    return sorted(registry.entries("strategies"))


class Weighing(LocalPool):
    """Hospitals that train, and weigh what passes."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement, "cpu")
        self.down: list[int] = []
        self.up: list[int] = []

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        partials, kept = super().round(plan, memory)
        if not plan.at_once and (plan.problem is not None or plan.call is not None):
            self.down.append(len(pickle.dumps(plan, protocol=5)))
            self.up.append(sum(len(pickle.dumps(partial, protocol=5)) for partial in partials))
        return partials, kept


def job(federation, strategy: Strategy, every: int) -> Job:
    work = Work(
        federation=str(federation.folder),
        model=ModelSpec("logistic_regression", None, {}, "default"),
        optimizer=Optimizer("sgd", 0.1, 4),
        epochs=1,
        seed=1,
        precision="float32",
    )
    return Job(work, strategy, InverseSqrt(0.5, 2), 3, EvaluationSection(every=every))


@pytest.mark.parametrize("name", strategies())
def test_bytes_are_those_of_a_run(federate: MakeFederation, name):
    federation = with_patients(federate(SIZES, [6] * 8))
    strategy = plugins.build_strategy(StrategySection.model_validate({"name": name}))
    placement = Placement(balance(federation.totals, 3), 1, 0)
    for field in ("clusters", "models"):
        if hasattr(strategy, field):
            strategy = type(strategy)(**{field: 2})
    planned = fitting(job(federation, strategy, every=0), federation)
    traffic = weigh(planned, placement)
    pool = Weighing(placement)
    rounds = [event for event in JobRun(pool, planned).events() if isinstance(event, Round)]
    assert (traffic.cohort, traffic.down, traffic.up) == (
        rounds[0].cohort_size,
        rounds[0].bytes_down,
        rounds[0].bytes_up,
    )
    if not pool.down:
        assert traffic.cohort == 0, "it trains in no round"
        return
    assert traffic.plan == pytest.approx(pool.down[0], abs=64)
    assert traffic.partials == pytest.approx(pool.up[0], abs=64)


@pytest.mark.parametrize(
    ("strategy", "keys"),
    [("ifca", {}), ("scaffold", {}), ("qfedavg", {}), ("fedavg", {"adaptive": {}})],
    ids=["ifca", "scaffold", "qfedavg", "adaptive"],
)
def test_bytes_under_a_guarantee_for_hospitals_are_those_of_a_run(federate: MakeFederation, strategy: str, keys):
    federation = federate([30] * 12)
    placement = Placement(balance(federation.totals, 3), 1, 0)
    settings = {"weights": "uniform"} if strategy == "fedavg" else {}
    made = registry.load("strategies", strategy, "strategy.name")(**settings)
    privacy = PrivacySection(unit="hospital", epsilon=8.0, delta=1e-3, **keys)
    planned = replace(job(federation, made, every=0), privacy=privacy, selection=All())
    first = run(federation, planned, 1).rounds[0]
    traffic = weigh(planned, placement)
    assert (traffic.down, traffic.up) == (first.bytes_down, first.bytes_up)


def test_evaluation_is_weighed_with_the_round(federate: MakeFederation):
    federation = federate(SIZES, [6] * 8)
    placement = Placement(balance(federation.totals, 3), 1, 0)
    traffic = weigh(job(federation, Chip(clusters=2), every=1), placement)
    pool = Weighing(placement)
    list(JobRun(pool, job(federation, Chip(clusters=2), every=1)).events())
    # The second round's message asks for the evaluation of the first.
    assert traffic.plan == pytest.approx(pool.down[1], rel=0.35)
    assert traffic.plan > weigh(job(federation, Chip(clusters=2), every=0), placement).plan
    assert traffic.partials >= 8 * 8 * 2


def test_sums_are_weighed_where_they_are_added_up(federate: MakeFederation, monkeypatch: pytest.MonkeyPatch):
    """Eight actors on four nodes, two a node; what FedAvg sums is one model of 1,001 scalars."""
    federation, size = federate([10] * 8, [6] * 8, features=1000), 8 * 1001
    planned = replace(job(federation, FedAvg(), every=0), selection=All())
    placement = Placement(balance(federation.totals, 8), 1, 0, nodes=(0, 0, 1, 1, 2, 2, 3, 3))
    one_each = weigh(planned, placement)
    assert one_each.between == 0
    monkeypatch.setattr(node_sums, "LEAST_BYTES", 1)
    # Of each node one sum comes.
    added = weigh(planned, placement)
    assert one_each.partials - added.partials == pytest.approx(4 * size, abs=200)
    assert added.between == 0
    monkeypatch.setattr(node_sums, "MOST_SUMS", 2)
    added = weigh(planned, placement)
    # Four nodes, by twos.
    assert one_each.partials - added.partials == pytest.approx(6 * size, abs=200)
    assert added.between == 2 * size


def test_memory_grows_with_rows_and_with_pooled_ones(federate: MakeFederation):
    federation = federate(SIZES)
    placement = Placement(balance(federation.totals, 2), 1, 0)
    traffic = [weigh(job(federation, Centralized(), every=0), placement)]
    assert traffic[0].pooled
    few, all_rows = np.array([3]), np.arange(8)
    row = 3 * 4 + 8 + 3
    least = memory(federation, few, traffic, torch=False, pooled=False)
    assert memory(federation, all_rows, traffic, torch=False, pooled=False) - least >= (sum(SIZES) + 7 * 5) * row
    assert memory(federation, few, traffic, torch=False, pooled=True) - least == sum(SIZES) * row
    assert memory(federation, few, traffic, torch=True, pooled=False) > least


@pytest.mark.parametrize("actors", [2, 40])
def test_the_tables_name_nodes_and_strategies(tmp_path, monkeypatch, actors):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    settings = ["data.hospitals=40", "data.rows=2000", "strategies=[fedavg,chip]"]
    config = reading.resolve(None, [*settings, f"resources.hospitals_per_actor={40 // actors}"])
    console = Console(width=160, record=True, file=io.StringIO())
    commands.show_plan(config, "1x4cpu,1x2cpu", console)
    text = console.export_text()
    assert "nodes: 1 x 4 CPUs, 1 x 2 CPUs" in text
    assert f"{actors} actors" in text
    for word in ("node 1", "node 2", "fedavg", "chip", " kB"):
        assert word in text


def test_a_strategy_taken_from_elsewhere_is_weighed_with_its_own_model(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    data = ["data.hospitals=6", "data.rows=600", "data.features=6"]
    other = tmp_path / "rec.yaml"
    tree = {
        "data": {"source": "synthetic", "hospitals": 6, "rows": 600, "features": 6},
        "model": {"name": "mlp", "hidden": [10]},
        "strategy": {"name": "fedprox", "label": "[tuned]"},
    }
    other.write_text(yaml.safe_dump(tree))
    config = reading.resolve(None, [*data, f"strategies=[fedavg,{{from: {other}}}]"])
    console = Console(width=160, record=True, file=io.StringIO())
    commands.show_plan(config, "1x2cpu", console)
    rows = [line.split() for line in console.export_text().splitlines()]
    parameters = {row[0]: int(row[2]) for row in rows if row[:1] in (["fedavg"], ["[tuned]"])}
    width = Federation.open(next(tmp_path.glob("**/federation.json")).parent).X.shape[1]
    assert parameters == {"fedavg": width + 1, "[tuned]": (width + 1) * 10 + 11 * 2}


def test_a_strategy_to_be_taken_from_elsewhere_is_never_built_as_another_one():
    section = StrategySection.model_validate({"from": "rec.yaml"})
    with pytest.raises(ConfigError, match=r"study.strategy.from: only run, compare and plan accept this key"):
        plugins.build_strategy(section, "study.strategy")


def test_this_machine_without_a_cluster(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (machine,) = available(None)
    assert machine.cpus >= 1
    with pytest.raises(ConfigError, match=r"--nodes: '4 machines' does not describe nodes; write for example"):
        available("4 machines")


def test_a_line_sums_a_plan_up(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    small = ["data.hospitals=6", "data.rows=300", "strategy=fedavg", "resources.hospitals_per_actor=3"]
    plan = make_plan(reading.resolve(None, small, reads=()), None)
    (traffic,) = plan.traffic.values()
    needed = sum(actor.memory for actor in plan.actors())
    moved = f"; at most {(traffic.down + traffic.up) / 1000:.1f} kB a round between hospitals and server"
    (machine,) = plan.machines
    assert np.isfinite(machine.memory), "this machine's is known"

    def summed_up(memory: float) -> str:
        return fits(replace(plan, machines=[replace(machine, memory=memory)]))

    assert summed_up(4e9) == f"fits: {needed / 1e6:.0f} MB of 4.0 GB of memory{moved}"
    assert summed_up(5e6) == f"does not fit: {machine.name} needs {needed / 1e6:.0f} MB of 5.0 MB{moved}"
    assert summed_up(np.inf) == f"needs about {needed / 1e6:.0f} MB of memory{moved}"
