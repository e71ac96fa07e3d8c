"""What is exchanged before the first round, and with questions: exact bytes by hand, and where they are reported."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from raysim.cli import commands
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.reading import resolve
from raysim.config.sections.system import SystemSection
from raysim.core.errors import StrategyError
from raysim.data.federation import Federation
from raysim.engine.job import Outcome, Round
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.timing import reached
from raysim.metrics.labels import CLASSIFICATION
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import (
    OWN,
    Context,
    Draw,
    Selection,
    Send,
    State,
    Statistic,
    Strategy,
    choose,
    statistics_of,
)
from raysim.strategies.coalitions.cs_rcfl import CsRcfl
from raysim.strategies.fairness.afl import AgnosticFL
from raysim.strategies.fairness.fairfed import FairFed
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.hospital_clusters.fedsoft import FedSoft
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.cbfl import Cbfl
from raysim.strategies.patient_clusters.fedgmc import FedGmc
from raysim.strategies.patient_clusters.kfed import KFed
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.selections.haccs import Haccs
from raysim.strategies.selections.power_of_choice import PowerOfChoice
from raysim.strategies.selections.sampling import Uniform
from raysim.traffic.ledger import TO_EXPERIMENTER, Bytes, Ledger
from tests.conftest import MakeFederation, empty_store, job_of, run_strategy, store, with_patients
from tests.strategies.contexts import hospital, view_of

SIZES = [3, 2, 0, 3, 1]
N, T, D = 5, 4, 4
"""Hospitals, those of them with training rows, and features, all continuous."""


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    """So few rows each that a hospital's mixture has one component."""
    return with_patients(federate(SIZES, [4, 4, 4, 4, 4], features=D))


def sent_by_kind(outcome: Outcome) -> dict[str, list[int]]:
    """Scalars that each hospital sent before the first round, by kind."""
    return {kind: (sent // 4).tolist() for t, kind, _, sent, _ in outcome.ledger.entries if t == 0}


def setup(federation: Federation, strategy: Strategy, **settings: Any) -> Bytes:
    return run_strategy(federation, strategy, rounds=1, **settings).setup


def test_federated_averaging_tells_sizes_alone(federation):
    outcome = run_strategy(federation, FedAvg(), rounds=2)
    assert outcome.setup == Bytes(0, 4 * N)
    size = outcome.layout.size
    assert outcome.traffic == Bytes(2 * 4 * T * size, 2 * 4 * T * (size + 1))


def test_what_preprocessing_sends_is_part_of_it(federation):
    meta = federation.folder / "federation.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"preprocessing_scalars": 7}))
    assert setup(Federation.open(federation.folder), FedAvg()) == Bytes(0, 4 * N * (1 + 7))


def test_signatures_go_up_and_nothing_comes_down(federation):
    assert setup(federation, Chip(clusters=2)) == Bytes(0, 4 * N * (1 + 1 + 1 + 3 * D))


def test_clust_psi_sends_the_edges_of_bins_to_everybody(federation):
    bins, classes = 5, 2
    by_labels = setup(federation, ClustPsi(clusters=2))
    assert by_labels == Bytes(0, 4 * N * (1 + classes))
    by_both = setup(federation, ClustPsi(clusters=2, by=("labels", "attributes"), bins=bins))
    assert by_both == Bytes(4 * N * D * (bins - 1), 4 * N * (1 + classes + 2 * (bins + 1) * D))


def test_fedgmc_sends_columns_and_the_mixture(federation):
    """Of one component: D means and a triangle with its diagonal, and its weight. Hospitals send a table of four."""
    component, clusters = 1 + D + D * (D + 1) // 2, 2
    outcome = run_strategy(federation, FedGmc(clusters=clusters), rounds=1)
    left = int(outcome.facts["patient_clusters"])
    fewer = N * left if left < clusters else 0
    assert outcome.setup.down == 4 * (T * D + N * (D + clusters * component) + fewer)
    assert outcome.setup.up == 4 * (N + T * D + T * 4 * component + N * clusters)


def test_cbfl_and_kfed_send_columns_and_centres(federation):
    assert setup(federation, Cbfl(clusters=1)) == Bytes(4 * (T * D + N * 2 * D), 4 * (N + T * D + T * D + N))
    sent = 4 * (N + T * D + T * 4 * D + N)  # a table of four centres, however few there are
    assert setup(federation, KFed(clusters=1)) == Bytes(4 * (T * D + N * 2 * D), sent)


def test_who_inherits_receives_the_clusters_of_their_centres_alone(federation):
    """A hospital with less than two training rows has no centres, and receives columns and the server's two."""
    outcome = run_strategy(federation, KFed(clusters=2, inherit=True), rounds=1)
    assert outcome.facts["patient_clusters"] == 2
    centres = [n // 2 for n in SIZES]
    down = T * D + sum(centres) + centres.count(0) * (D + 2 * D)
    assert outcome.setup == Bytes(4 * down, 4 * (N + T * D + T * 4 * D + 2 * N))


def test_hospitals_receive_the_remaining_clusters(tmp_path):
    """Of CBFL's three centres the one at the mean of the first hospital has no patient near it."""
    X = np.concatenate([np.tile([[-10.0], [10.0]], (10, 1)), np.full((20, 1), -10.0), np.full((20, 1), 10.0)])
    X += np.random.default_rng(0).normal(scale=0.1, size=X.shape)
    sides = store(tmp_path, X, np.arange(60) % 2, np.array([[0, 12, 12, 20], [20, 32, 32, 40], [40, 52, 52, 60]]))
    outcome = run_strategy(sides, Cbfl(clusters=3), rounds=1)
    assert outcome.facts == {"patient_clusters": 2, "patient_clusters_found": 3}
    assert outcome.setup == Bytes(4 * 3 * (1 + (1 + 3) + 2), 4 * 3 * (1 + 1 + 1 + 3))
    assert "clusters_left" not in sent_by_kind(outcome), "nothing leaves a hospital with that"


def test_cs_rcfl_has_its_row_0(federate):
    federation = federate([8, 0, 15, 11], features=3)
    outcome = run_strategy(federation, CsRcfl(clusters=2), rounds=0)
    expected = Bytes(4 * 3 * 3 * 4, 4 * (4 + 3 * (4 + 3)))
    assert outcome.setup == expected
    (row,) = outcome.rounds
    assert (row.round, row.bytes_down, row.bytes_up) == (0, expected.down, expected.up)
    assert outcome.traffic == Bytes()


def test_pooled_rows_leave_before_the_first_round(federation):
    outcome = run_strategy(federation, Centralized(), rounds=2)
    assert outcome.setup == Bytes(0, 4 * (N + sum(SIZES) * (D + 1)))
    assert outcome.traffic == Bytes()


# --- Selections ------------------------------------------------------------------------------------------------------


def test_haccs_receives_labels_and_losses_under_the_initial_model(federation):
    outcome = run_strategy(federation, FedAvg(), rounds=1, selection=Haccs(minimum=2))
    size = outcome.layout.size
    assert outcome.setup == Bytes(4 * T * size, 4 * (N + 2 * N + T))
    assert outcome.traffic == Bytes(4 * 2 * size, 4 * 2 * (size + 2))


@pytest.mark.parametrize("strategy", [Local(), Centralized(), AgnosticFL(), FairFed(), CsRcfl(clusters=2), FedSoft()])
def test_an_unused_selection_receives_nothing(strategy, federation):
    outcomes = [
        run_strategy(federation, strategy, rounds=2, selection=how) for how in (Haccs(minimum=2), Uniform(0.5, 2))
    ]
    assert outcomes[0].setup == outcomes[1].setup
    assert outcomes[0].traffic == outcomes[1].traffic
    np.testing.assert_array_equal(outcomes[0].models, outcomes[1].models)


def test_fedsoft_uses_the_selection_if_configured(federation):
    strategy = FedSoft(selection="configured")
    some, haccs = (
        run_strategy(federation, strategy, rounds=2, selection=how) for how in (Uniform(0.5, 2), Haccs(minimum=2))
    )
    assert haccs.setup.up == some.setup.up + 4 * (2 * N + T)


# --- Calls at once ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Who(Statistic):
    """Which hospital it is, to which numbers are sent."""

    carries: Any = 0
    name = "who"
    sent = Send((2,), how="each", kind=name)

    def value(self, at: Context) -> np.ndarray:
        return np.array([at.hospital, len(at.rows.y)], dtype=np.float64)


@dataclass(frozen=True)
class Asking(Strategy):
    """Sends a program to hospitals ``ids`` in each round, and writes down the ``answers``."""

    program: Any
    ids: tuple[int, ...] | None = None
    answers: list[Any] = field(default_factory=list)

    def select(self, view, state, round):
        ids = None if self.ids is None else np.array(self.ids)
        self.answers.append(statistics_of(view, self.program, ids).tolist())
        return super().select(view, state, round)


@pytest.mark.parametrize("actors", [1, 3, 5])
def test_answers_come_in_the_order_of_hospitals(actors, federation):
    asking = Asking(Who(), (0, 3, 4))
    run_strategy(federation, asking, rounds=1, actors=actors)
    assert asking.answers == [[[0, 3], [3, 3], [4, 1]]]
    everyone = Asking(Who())
    run_strategy(federation, everyone, rounds=1, actors=actors)
    assert everyone.answers == [[[h, n] for h, n in enumerate(SIZES)]]


def test_a_hospital_that_there_is_not_is_an_error_of_the_strategy(federation):
    for wrong in ((0, 9), (3, 0)):
        with pytest.raises(StrategyError, match=r"^strategy 'Asking': "):
            run_strategy(federation, Asking(Who(), wrong), rounds=1)


def test_what_a_program_carries_counts_each_time_for_those_who_are_asked(federation):
    plain, same, other = (
        run_strategy(federation, Asking(Who(scalars), (0, 3)), rounds=2)
        for scalars in (0, 6, np.array([10, 1, 1, 20, 1]))
    )
    assert [row.bytes_down for row in same.rounds] == [row.bytes_down + 4 * 2 * 6 for row in plain.rounds]
    assert [row.bytes_down for row in other.rounds] == [row.bytes_down + 4 * 30 for row in plain.rounds]
    assert [row.bytes_up for row in same.rounds] == [row.bytes_up for row in plain.rounds]
    assert plain.setup == same.setup == other.setup == Bytes(0, 4 * N)


def test_what_a_question_brings_takes_its_time(federation):
    """At .008 Mbit/s, 1,000 bytes a second; the slowest of those asked decides."""
    system = SystemSection(downlink=0.008)
    plain, some = (
        run_strategy(federation, Asking(Who(scalars)), rounds=1, system=system).rounds[0].virtual_seconds
        for scalars in (0, np.array([250, 0, 500, 0, 0]))
    )
    assert some - plain == pytest.approx(2.0)


def test_a_selection_cannot_ask_about_a_model_that_the_server_does_not_have():
    view = view_of([hospital([2, 2]), hospital([3, 1]), hospital([0, 0])])
    state = State(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"^start: "):
        choose(view, state, view.trainable, "sample", 1, start=np.array([1, OWN, 0]))
    # Who is not among the candidates may have any start.
    assert choose(view, state, view.trainable, "sample", 1, start=np.array([1, 0, OWN])).tolist() == [0, 1]


# --- Private parameters ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listening(Selection):
    """All candidates, once they have sent their losses, which are written down."""

    received: list[Any] = field(default_factory=list)

    def pick(self, draw: Draw) -> Any:
        self.received.append(draw.losses(draw.candidates))
        return draw.candidates[: len(draw.candidates) - 1]


@pytest.mark.parametrize("actors", [1, 3])
def test_hospitals_tell_losses_under_their_own_private_parameters(actors, federate):
    """After a round, by hand; the last hospital has not trained, and has the common start's."""
    federation = federate([9, 7, 0, 12, 6], features=3)
    listening = Listening()
    run = {"learning_rate": 0.5, "batch_size": 0, "actors": actors}
    after = run_strategy(
        federation, FedPer(), rounds=1, **run
    )  # who is drawn does not matter below: all but the last are
    run_strategy(federation, FedPer(), rounds=2, selection=listening, **run)
    one = run_strategy(federation, FedPer(), rounds=1, selection=Listening(), **run)
    assert after.private is not None
    assert sorted(one.own_models) == [0, 1, 3]
    assert np.abs(one.own_models[0] - one.models[0])[after.private].max() > 1e-3, "or the test would not notice"
    expected = []
    for h in (0, 1, 3, 4):
        rows = federation.rows(h, "train")
        theta = np.where(after.private, one.own_models.get(h, one.models[0]), one.models[0])
        X, y = federation.X[rows].astype(np.float64), federation.y[rows]
        z = X @ theta[:-1] + theta[-1]
        expected.append((np.logaddexp(0, z) - y * z).mean())
    np.testing.assert_allclose(listening.received[1], expected, rtol=1e-12)


def test_only_what_is_not_private_goes_to_the_candidates(federate):
    federation = federate([9, 7, 5, 12, 6], features=3)
    outcome = run_strategy(federation, FedPer(), rounds=2, selection=PowerOfChoice(candidates=4, fraction=0.4))
    body = 3
    for row in outcome.rounds:
        assert row.bytes_down == 4 * 4 * body, "those that take part have it already"
        assert row.bytes_up == 4 * (4 + 2 * (body + 1))


# --- Where it is reported --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [KFed(clusters=2, inherit=True), FedGmc(clusters=2), ClustPsi(by=("attributes",))])
def test_a_run_that_goes_on_remembers_it(strategy, federation):
    planned = job_of(federation, strategy, rounds=3)
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, planned, None).events(1)
    assert isinstance(alone, Outcome)
    assert alone.setup.down > 0
    for standing in (event for event in events if isinstance(event, RunState)):
        *_, outcome = JobRun(
            pool, planned, decode(encode(standing, "", planned.strategy), planned.strategy)[0]
        ).events()
        assert isinstance(outcome, Outcome)
        assert (outcome.setup, outcome.traffic) == (alone.setup, alone.traffic)
        np.testing.assert_array_equal(outcome.models, alone.models)


def test_what_is_measured_for_the_experimenter_is_no_traffic():
    ledger = Ledger()
    ledger.add(0, "size", np.arange(3), 1)
    ledger.add(0, "metrics", np.arange(3), 100)
    ledger.add(1, "update", np.arange(2), 5)
    assert (ledger.sent(0), ledger.sent(1), ledger.sent(2)) == (12, 40, 0)


def test_bytes_until_a_target_begin_with_the_set_up():
    rounds = [Round(t, 0.0, 1, 100, 10, {"global": {"auroc": 0.2 * t}}, 2.5 * t) for t in (1, 2, 3)]
    assert reached(rounds, "auroc", 0.4, CLASSIFICATION, 1000).bytes == 1000 + 220
    once = [replace(rounds[2], round=0, bytes_down=900, bytes_up=100)]
    assert reached(once, "auroc", 0.4, CLASSIFICATION, 1000).bytes == 1000, "a row 0 is the set-up itself"


CONFIG = """
name: setup
seeds: [1]
data: {source: synthetic, hospitals: 8, rows: 800}
training: {rounds: 2}
selection: all
strategies: [fedavg, {name: cbfl, clusters: 2}, {name: cs_rcfl, clusters: 2}]
reference: fedavg
tracking: {uri: "sqlite:///mlflow.db"}
"""


def test_tables_summaries_and_mlflow_tell_both_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(empty_store(tmp_path))
    (tmp_path / "c.yaml").write_text(CONFIG)
    commands.compare_all(resolve(tmp_path / "c.yaml"), Console(), tmp_path / "out", in_process=True, verbose=False)
    table = pd.read_csv(tmp_path / "out" / "comparison.csv").set_index("strategy")
    columns = ["bytes_down", "bytes_up", "bytes_setup_down", "bytes_setup_up"]
    summaries = {}
    for label in table.index:
        folder = tmp_path / "out" / "runs" / label / "seed-1"
        summary = json.loads((folder / "summary.json").read_text())
        summaries[label] = {name: summary[name] for name in columns}
        assert table.loc[label, columns].to_dict() == summaries[label]
        messages = pd.read_csv(folder / "egress.csv")
        egress = messages[~messages["kind"].isin(TO_EXPERIMENTER)].groupby(messages["round"] > 0)["bytes"].sum()
        assert (summary["bytes_setup_up"], summary["bytes_up"]) == (egress[False], egress.get(True, 0))
        rounds = pd.read_csv(folder / "rounds.csv")
        assert summary["bytes_down"] == rounds.loc[rounds["round"] > 0, "bytes_down"].sum()
    assert summaries["fedavg"]["bytes_setup_down"] == 0 < summaries["cbfl"]["bytes_setup_down"]
    assert summaries["cs_rcfl"]["bytes_setup_down"] > 0 == summaries["cs_rcfl"]["bytes_up"]

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    recorded = {
        run.data.tags["strategy"]: run.data.metrics
        for run in client.search_runs(experiments)
        if "traffic/bytes_setup_up" in run.data.metrics
    }
    assert {
        label: (metrics["traffic/bytes_setup_down"], metrics["traffic/bytes_setup_up"])
        for label, metrics in recorded.items()
    } == {label: (summary["bytes_setup_down"], summary["bytes_setup_up"]) for label, summary in summaries.items()}
