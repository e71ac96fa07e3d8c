"""Real-valued labels from a table to a report: training, evaluation, files, sweeps, and what refuses them."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from raysim.cli import main as cli
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.data.heterogeneity import label_counts, label_spread
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.metrics.labels import REGRESSION
from raysim.strategies.base import FederationView, LocalProblem, State, Strategy, mean_losses
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.selections.fedcls import FedCls
from raysim.strategies.selections.haccs import Haccs
from raysim.strategies.shared.signatures import signature_matrix, signatures
from raysim.training import losses
from raysim.tune.choice import choose, title
from raysim.tune.journal import Finished
from raysim.tune.plan import make_plan
from raysim.tune.settings import read_sweep
from tests.conftest import empty_store, job_of, run_strategy, store
from tests.tune.conftest import small_tree

LINEAR = ModelSpec("linear_regression", None, {}, "default")
SIZES = [9, 4, 13, 0, 1, 6]


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """Six hospitals, one without training and one without test rows."""
    rng = np.random.default_rng(5)
    stops = np.cumsum([[a, 0, b] for a, b in zip(SIZES, [5, 6, 0, 8, 4, 3], strict=True)])
    bounds = np.concatenate([[0], stops])[np.arange(6)[:, None] * 3 + np.arange(4)]
    n = int(stops[-1])
    X = rng.normal(size=(n, 3)).astype(np.float32)
    folder = tmp_path / "federation"
    folder.mkdir()
    return store(folder, X, X @ [2.0, -1.0, 0.5] + 7 + rng.normal(size=n), bounds, classes=0)


def gradient_descent(federation: Federation, loss: str, steps: int, rate: float) -> np.ndarray:
    """On all training rows by hand: the mean of residual times row, its sign for absolute errors."""
    rows = np.concatenate([np.arange(*federation.bounds[h, :2]) for h in range(len(federation.hospitals))])
    X, y = np.column_stack([federation.X[rows], np.ones(len(rows))]).astype(float), federation.y[rows]
    theta = np.zeros(X.shape[1])
    for _ in range(steps):
        error = X @ theta - y
        theta = theta - rate * X.T @ (np.sign(error) if loss == "absolute" else error) / len(y)
    return theta


@pytest.mark.parametrize("loss", losses.REGRESSION)
def test_fedavg_of_one_full_batch_step_is_gradient_descent(federation: Federation, loss: str) -> None:
    model = ModelSpec("linear_regression", None, {"loss": loss}, "default")
    federated = run_strategy(federation, FedAvg(), rounds=4, batch_size=0, model=model)
    expected = gradient_descent(federation, loss, steps=4, rate=0.1)
    np.testing.assert_allclose(federated.models[0], expected, rtol=1e-10)
    pooled = run_strategy(federation, Centralized(), rounds=4, batch_size=0, model=model)
    np.testing.assert_allclose(pooled.models[0], expected, rtol=1e-10)


def test_figures_of_a_run_are_those_of_its_model(federation: Federation) -> None:
    outcome = run_strategy(federation, FedAvg(), rounds=3, model=LINEAR, actors=3)
    theta = outcome.models[0]
    column = {name: outcome.figures["global"][:, j] for j, name in enumerate(REGRESSION.figures)}
    for h in range(6):
        rows = federation.rows(h, "test")
        error = federation.X[rows].astype(float) @ theta[:3] + theta[3] - federation.y[rows]
        assert column["n"][h] == len(error)
        if len(error):
            assert column["mae"][h] == pytest.approx(np.abs(error).mean())
            assert column["bias"][h] == pytest.approx(error.mean())
        else:
            assert np.isnan(column["mae"][h])
    tested = column["n"] > 0
    mean = np.average(column["mae"][tested], weights=column["n"][tested])
    assert outcome.metrics["global"]["mae"] == pytest.approx(mean)
    assert outcome.rounds[-1].metrics["global"]["mae"] == pytest.approx(mean)
    assert outcome.rounds[0].metrics["global"]["mae"] > mean
    assert set(outcome.metrics["global"]) >= set(REGRESSION.reported())
    assert "pooled_auroc" not in outcome.metrics["global"]


class Asks(Strategy):
    """Asks for losses before it does anything, and stores what it received."""

    received: list[np.ndarray]

    def __init__(self) -> None:
        self.received = []

    def setup(self, view: FederationView) -> State:
        assert view.classes == 0
        self.received += [mean_losses(view, view.initial[None, :], view.everyone)[:, 0]]
        return super().setup(view)

    def problem(self, view: FederationView, state: State, ids: np.ndarray) -> LocalProblem:
        whole = super().problem(view, state, ids)
        assert whole.upload is not None
        return replace(whole, upload=replace(whole.upload, losses=True))

    def aggregate(self, view: FederationView, state: State, update: Any) -> State:
        self.received.append(update.losses)
        return super().aggregate(view, state, update)


@pytest.mark.parametrize("loss", losses.REGRESSION)
def test_the_losses_that_hospitals_tell_are_those_of_the_model(federation: Federation, loss: str) -> None:
    strategy = Asks()
    run_strategy(federation, strategy, rounds=1, model=ModelSpec("linear_regression", None, {"loss": loss}, "default"))
    local_losses, before = strategy.received  # the initial model predicts 0
    for h, n in enumerate(SIZES):
        y = federation.y[federation.rows(h, "train")]
        expected = (np.square(y) / 2 if loss == "squared" else np.abs(y)).mean() if n else np.nan
        np.testing.assert_allclose(local_losses[h], expected, rtol=1e-12)
    np.testing.assert_allclose(before, local_losses[[h for h, n in enumerate(SIZES) if n]], rtol=1e-12)


def test_signatures_of_real_labels_hold_their_mean_and_deviation(federation: Federation) -> None:
    class Look(Strategy):
        def setup(self, view: FederationView) -> State:
            self.answers = signatures(view)
            return super().setup(view)

    strategy = Look()
    run_strategy(federation, strategy, rounds=1, model=LINEAR)
    y = federation.y[federation.rows(0, "train")]
    assert len(strategy.answers[0]) == 1 + 2 + 3 * 3
    np.testing.assert_allclose(strategy.answers[0][1:3], [y.mean(), y.std()], rtol=1e-12)
    assert np.isnan(strategy.answers[3]).all()
    answers = strategy.answers[[h for h, n in enumerate(SIZES) if n]]
    assert signature_matrix(answers, 0).shape == (5, 12)
    assert signature_matrix(answers, 0, ["prevalence"]).shape == (5, 2)
    run_strategy(federation, Chip(clusters=2), rounds=2, model=LINEAR)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": ClustPsi()}, "strategy.by: labels needs the classes of a label, but this label is a number; use"),
        (
            {"selection": FedCls()},
            "selection.name: fedcls needs the classes of a label, but this label is a number; use",
        ),
        ({"selection": Haccs()}, "selection.name: haccs needs the classes of a label, but this label is a number; use"),
        (
            {"model": ModelSpec("logistic_regression", None, {}, "default")},
            "model.name: 'logistic_regression' predicts",
        ),
    ],
)
def test_what_needs_classes_refuses_before_anything_starts(
    federation: Federation, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_job(job_of(federation, **{"strategy": FedAvg(), "model": LINEAR, **changes}), federation)
    assert str(error.value).startswith(message)


def test_clust_psi_takes_what_is_not_the_label(federation: Federation) -> None:
    check_job(job_of(federation, ClustPsi(by=("sizes",)), model=LINEAR), federation)
    outcome = run_strategy(federation, ClustPsi(by=("sizes",), clusters=2), rounds=1, model=LINEAR)
    assert np.isfinite(outcome.metrics["cluster"]["mae"])


def test_how_a_real_label_differs_between_hospitals(federation: Federation) -> None:
    spread = label_spread(federation)
    y = np.concatenate([federation.y[federation.rows(h, "train")] for h in range(6)])
    assert spread["std_between"] ** 2 + spread["std_within"] ** 2 == pytest.approx(y.var())
    means = np.concatenate([[federation.y[federation.rows(h, "train")].mean()] * n for h, n in enumerate(SIZES) if n])
    assert spread["std_between"] == pytest.approx(means.std())
    assert spread["between_share"] == pytest.approx(means.var() / y.var())
    with pytest.raises(Exception, match=r"data.task: a label that is a number has no classes to count"):
        label_counts(federation)


def write_table(folder: Path) -> Path:
    """A table of six hospitals in which the label is linear in two columns, in a unit of thousands."""
    rng = np.random.default_rng(3)
    n = 360
    table = pd.DataFrame({"site": rng.choice(list("abcdef"), n), "x": rng.normal(size=n), "z": rng.normal(size=n)})
    table["cost"] = 1000 * (5 + 2 * table["x"] - table["z"] + 0.3 * rng.normal(size=n))
    path = folder / "costs.csv"
    table.to_csv(path, index=False)
    return path


def raysim(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["raysim", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 0


def test_a_comparison_on_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    tree: dict[str, Any] = {
        "data": {"source": "table", "path": str(write_table(tmp_path)), "silo": "site", "label": "cost"},
        "model": {"name": "linear_regression"},
        "training": {"rounds": 8, "batch_size": 16, "learning_rate": 0.1},
        "selection": {"name": "all"},
        "strategies": ["fedavg", "local"],
        "seeds": [1, 2],
        "tracking": {"uri": f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"},
    }
    tree["data"]["task"] = "regression"
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree))
    out = tmp_path / "out"
    raysim(monkeypatch, "compare", str(tmp_path / "c.yaml"), "--out", str(out), "--in-process", "--details")
    said = capsys.readouterr().out
    assert "mean MAE" in said
    assert "MAE against fedavg" in said
    assert "AUROC" not in said
    hospitals = pd.read_csv(out / "hospitals.csv")
    columns = ["strategy", "seed", "hospital", "n_train", "n_test", "cluster", "model", "mae", "rmse", "r2", "bias"]
    assert list(hospitals.columns) == [*columns, "n_total", "participated", "rounds", "trained", "learner"]
    assert (hospitals["rmse"] >= hospitals["mae"] - 1e-9).all()
    table = pd.read_csv(out / "comparison.csv")
    fedavg = table[table["strategy"] == "fedavg"].iloc[0]
    rows = hospitals[hospitals["strategy"] == "fedavg"]
    by_seed = [np.average(seed["mae"], weights=seed["n_test"]) for _, seed in rows.groupby("seed")]
    assert fedavg["mae"] == pytest.approx(np.mean(by_seed))
    worst = rows.groupby("seed")["mae"].max()  # the highest of six hospitals
    assert fedavg["worst_decile"] == pytest.approx(worst.mean())
    assert fedavg["mae"] < 400  # the noise has 300, so federating has learned the law
    assert fedavg["r2"] > 0.9
    assert "MAE by hospital size" in (out / "plots" / "by_size.svg").read_text()
    page = (out / "report.html").read_text()
    assert "mean MAE" in page
    assert "highest MAE" in page
    summary = json.loads((out / "runs" / "fedavg" / "seed-1" / "summary.json").read_text())
    assert summary["mae"] == pytest.approx(by_seed[0])
    recorded = sqlite3.connect(tmp_path / "mlflow.db").execute("select distinct key from metrics").fetchall()
    assert any(key.endswith("mae") for (key,) in recorded)
    assert not any("auroc" in key for (key,) in recorded)
    raysim(monkeypatch, "describe", str(tmp_path / "c.yaml"))
    said = capsys.readouterr().out
    assert "hospitals' means" in said
    assert "std_between" in said


def regression_sweep(**changes: Any) -> dict[str, Any]:
    return small_tree(
        data__task="regression",
        model__name="linear_regression",
        strategy={"name": "fedprox"},
        sweep__space=SPACE,
        **changes,
    )


SPACE = {"strategy.mu": {"uniform": [0, 1]}}


def test_a_sweep_aims_at_low_errors_unless_it_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    plan, _ = make_plan(regression_sweep())
    assert plan.sweep.objectives == {"mae": "min", "worst_decile": "min", "size_bias_abs": "min", "gini": "min"}
    assert read_sweep({"sweep": plan.sweep.frozen()}) == plan.sweep  # as a sweep that goes on reads it
    explicit, _ = make_plan(regression_sweep(sweep__objectives={"rmse": "min", "bytes_up": "min"}))
    assert explicit.sweep.names == ("rmse", "bytes_up")


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ({"auroc": "max"}, r"sweep.objectives.auroc: no run of a regression task reports this metric; "),
        ({"mae": "max"}, r"sweep.objectives.mae: max searches for the worst value in a regression task; write min"),
        (
            {"worst_decile": "max"},
            r"sweep.objectives.worst_decile: max searches for the worst value in a regression task",
        ),
    ],
)
def test_a_sweep_that_aims_the_wrong_way_is_refused(
    objectives: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        make_plan(regression_sweep(sweep__objectives=objectives))


def test_a_sweep_of_classes_cannot_aim_at_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"sweep.objectives.mae: no run of a classification task reports this"):
        make_plan(small_tree(sweep__objectives={"mae": "min"}))


def test_the_recommended_trial_has_the_lower_error() -> None:
    objectives = {"mae": "min", "worst_decile": "min"}
    sweep = read_sweep({"sweep": {"trials": 3, "space": SPACE, "objectives": objectives}})
    reached = {1: (5.0, 9.0), 2: (2.0, 3.0), 3: (4.0, 8.0), 4: (math.nan, 1.0)}
    trials = {
        number: Finished(number, {}, "completed", finals={1: {"global": {"mae": mae, "worst_decile": worst}}})
        for number, (mae, worst) in reached.items()
    }
    choice = choose(trials, sweep)
    assert choice.front.tolist() == [False, True, False, False]
    assert choice.recommended is trials[2]
    assert choice.reference == (5.0, 9.0)  # the worst of the trials: an error has no usual worst
    assert choice.hypervolume == pytest.approx(3 * 6)
    assert title(choice, 1) == "worst decile MAE"
