"""A hospital that joins with labelled rows fine-tunes the model that serves it, or chooses a cluster by their loss."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import raysim
from raysim.config import plugins, reading
from raysim.config.sections.evaluation import UnseenSection
from raysim.engine.job import Outcome, Result
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.packing import Arrays, pack_newcomers, unpack_newcomers
from raysim.experiment.unseen.folds import Fold, LeftOut
from raysim.experiment.unseen.joining import fine_tuned, in_cluster, joined
from raysim.experiment.unseen.rows import _joining
from raysim.strategies.base import Rows
from raysim.strategies.hospital_clusters.clust_psi import NearestSkew, Skews
from raysim.strategies.shared.signatures import BLOCKS, NearestSignature, exact_signature
from tests.experiment.unseen.test_unseen import config, table

CHANGES: dict[str, Any] = {"model": {"name": "logistic_regression"}, "strategies": ["fedavg", "local"]}


@pytest.mark.xdist_group("actors")
@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("joining", ["fine_tune", "cluster"])
def test_the_curve_after_rows_have_joined(joining: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))  # not what the processes of this Ray were started with
    asked = config(folds=["h0", "h1"], onboarding=[0, 20], joining=joining) | CHANGES | {"seeds": [0]}
    # What joins is computed by another process than the one that trained: on Ray from what that one has stored.
    raysim.compare(asked, data=table(), out=tmp_path / "out", in_process=joining == "cluster")
    unseen = pd.read_csv(tmp_path / "out" / "unseen.csv")
    one = unseen[(unseen["strategy"] == "fedavg") & (unseen["model"] == "global")]
    before, after = (one[one["k"] == k].set_index("hospital") for k in (0, 20))
    assert (before["rows"] == after["rows"]).all()
    fold = pd.read_csv(tmp_path / "out" / "unseen" / "fedavg" / "seed-0" / "fold-2" / "predictions.csv")
    assert fold["hospital"].unique().tolist() == after.index[after["fold"] == 2].tolist()
    if joining == "fine_tune":
        assert (before["log_loss"] != after["log_loss"]).all()
        assert set(after["served_by"]) == {"global, fine-tuned"}
    else:  # one model: there is nothing to choose
        np.testing.assert_allclose(before["log_loss"], after["log_loss"], rtol=1e-6)
    alone = unseen[unseen["strategy"] == "local"].set_index("k")
    assert alone.loc[0, "log_loss"].isna().all()
    assert set(alone.loc[0, "served_by"]) == {"nobody"}
    assert alone.loc[20, "log_loss"].between(0.3, 1).all()
    assert set(alone.loc[20, "served_by"]) == {"personal, trained on its rows"}


def test_all_rows_of_a_patient_join_together_or_are_judged() -> None:
    """Four patients of three rows: of four or five rows that could join, the three of one patient do."""
    people = np.repeat([7, 3, 9, 5], 3)
    federation: Any = SimpleNamespace(identities=people, rows=lambda h, part: slice(0, 12), hospitals=("h0",))
    order, joins = _joining(federation, 0, 1, UnseenSection(onboarding=(0, 4, 5, "all"), held=0.5))
    assert joins == {0: 0, 4: 3, 5: 3, "all": 6}
    assert sorted(order.tolist()) == list(range(12))
    for rows in (3, 6):
        assert not set(people[order[:rows]]) & set(people[order[rows:]])


def test_a_model_of_the_hospitals_own_cannot_be_fine_tuned_by_a_newcomer(tmp_path: Path) -> None:
    unseen = {"folds": ["h0"], "onboarding": [0, 20], "joining": "fine_tune"}
    asked = config(**unseen) | CHANGES | {"seeds": [0], "strategies": ["fedavg", "per_fedavg"]}
    raysim.compare(asked, data=table(), out=tmp_path / "out", in_process=True)
    found = pd.read_csv(tmp_path / "out" / "unseen.csv").set_index(["strategy", "model", "k"])
    assert found.loc[("per_fedavg", "personal", 0), "served_by"] == "personal"
    assert found.loc[("per_fedavg", "personal", 20), "served_by"] == "nobody"
    assert np.isnan(found.loc[("per_fedavg", "personal", 20), "log_loss"])


def left_out(tmp_path: Path, models: np.ndarray, cluster: list[int], *, alone: bool = False, **keys: Any) -> LeftOut:
    """A run whose hospital ``h0`` took no part, with these models of the server."""
    frame = table()
    frame.to_csv(tmp_path / "stays.csv", index=False)
    tree = {
        "source": "table",
        "path": str(tmp_path / "stays.csv"),
        "silo": "hospital",
        "label": "died",
        "drop": ["ward"],
    }
    asked = Fold(1, ("h0",)).of(reading.resolve({"data": tree, "training": {"batch_size": 0}} | keys))
    federation = plugins.build_federation(asked, plugins.build_source(asked.data), 0)
    served = np.array(cluster)
    outcome = object.__new__(Outcome)
    outcome.models, outcome.cluster, outcome.newcomers = models, served, None
    outcome.serve = {"cluster": served, "global": np.zeros(5, np.int64)}
    result = Result("made", False, 0, federation, outcome, tmp_path, alone=alone)
    return LeftOut(Fold(1, ("h0",)), asked, result)


def test_the_cluster_with_the_lowest_loss_on_the_rows_that_join(tmp_path: Path) -> None:
    models = np.array([[0, 0, 0], [2.0, 0, -1], [-2.0, 0, -1], [2.0, 0, -1]], np.float32)  # x helps: 1 and 3 alike
    run = left_out(tmp_path, models, [2, 1, 1, 2, 3])
    rows = np.arange(30)
    found = in_cluster(run, "cluster", 0, rows)
    X = run.result.federation.X[run.result.federation.rows(0, "test")]
    assert found is not None
    np.testing.assert_allclose(found.margins, X @ models[1, :2] + models[1, 2], rtol=1e-5)
    assert found.served_by == "cluster 0"  # the larger of two clusters that are alike
    assert in_cluster(run, "cluster", 0, rows[:0]) is None  # without labels the engine's cluster stays
    assert in_cluster(run, "global", 0, rows) is None
    assert joined(run, "cluster", 0, rows, "fine_tune", defined=False) is None


def two_kinds(hospitals: int = 6, rows: int = 120) -> pd.DataFrame:
    """Hospitals of two kinds: ``x`` lies elsewhere, events are rare or frequent, and ``x`` predicts the reverse."""
    frames = []
    for h in range(hospitals):
        rng, kind = np.random.default_rng(h), "ab"[h % 2]
        x = rng.normal(size=rows)
        died = rng.random(rows) < 1 / (1 + np.exp((3 * x + 2) * (1 if kind == "a" else -1)))
        frames.append(pd.DataFrame({"hospital": f"{kind}{h}", "x": x + 4 * (kind == "b"), "died": died.astype(int)}))
    return pd.concat(frames, ignore_index=True)


def test_a_newcomer_gets_the_cluster_of_its_kind(tmp_path: Path) -> None:
    """By features alone without labels; by labels, or by the loss on them, once rows have joined."""
    chip = {"name": "chip", "clusters": 2, "lam": 0.0, "mu": 0.0, "alpha": 1.0}
    settings: list[dict[str, Any]] = [
        {"name": "clustered", "clusters": 2},
        chip,
        {"name": "clustered", "label": "by_labels", "clusters": 2, "signature": ["prevalence"]},
        chip | {"label": "chip_by_labels", "signature": ["prevalence"]},
        {"name": "clust_psi", "clusters": 2, "by": ["attributes"]},
        {"name": "clust_psi", "label": "psi_of_labels", "clusters": 2},
        {"name": "ifca", "clusters": 2, "spread": 1.0},
    ]
    asked = config(folds=[["b5", "a0"]], onboarding=[0, 50]) | {
        "strategies": settings,
        "seeds": [0],
        "reference": "clustered",
        "model": {"name": "logistic_regression"},
        "training": {"rounds": 5, "learning_rate": 0.5},
    }
    raysim.compare(asked, data=two_kinds(hospitals=8), out=tmp_path / "out", in_process=True)
    found = pd.read_csv(tmp_path / "out" / "unseen.csv").set_index(["strategy", "model", "k", "hospital"]).sort_index()
    ranks, by = found["auroc"], found["served_by"]
    for name in ("clustered", "clust_psi"):
        for k in (0, 50):
            assert (ranks.loc[name, "cluster", k] > 0.8).all(), (name, k)
            assert by.loc[name, "cluster", k].nunique() == 2
    for model in ("cluster", "personal"):
        assert (ranks.loc["chip", model, 0] > 0.8).all(), model
        assert by.loc["chip", model, 0].str.startswith(model).all()
    # Labels alone say nothing before any is known: the global model, or nobody.
    for name in ("by_labels", "psi_of_labels"):
        assert by.loc[name, "cluster", 0].eq("nobody").all()
        assert ranks.loc[name, "cluster", 0].isna().all()
    assert (ranks.loc["by_labels", "cluster", 50] > 0.8).all()
    assert by.loc["psi_of_labels", "cluster", 50].str.startswith("cluster").all()
    assert by.loc["chip_by_labels", "cluster", 0].eq("global").all()
    assert (ranks.loc["chip_by_labels", "cluster", 50] > 0.8).all()
    # IFCA has no signatures: the model with the most training rows, then that of the lowest loss.
    assert by.loc["ifca", "cluster", 0].str.fullmatch("cluster [01]").all()
    assert (ranks.loc["ifca", "cluster", 50] > 0.8).all()


def test_hospitals_without_training_rows_get_their_cluster_in_any_run(tmp_path: Path) -> None:
    tree = {
        "data": {"source": "table", "silo": "hospital", "label": "died", "split": {"unseen": ["b5", "a0"]}},
        "strategy": {"name": "clustered", "clusters": 2},
        "tracking": {"uri": "none"},
    }
    raysim.run(tree, data=two_kinds(), out=tmp_path / "out", in_process=True)
    cluster = pd.read_csv(tmp_path / "out" / "hospitals.csv").set_index("hospital")["cluster"]
    assert cluster["b5"] == cluster["b1"] != cluster["a0"] == cluster["a2"]


@pytest.mark.parametrize("labels", [0, 20])
def test_a_rule_is_stored_with_a_finished_run(labels: int) -> None:
    """On Ray, what joins is computed by another process than the one that trained."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(kind, 1, (40, 3)) for kind in (0, 1, 0, 1)]
    seen = np.ones((40, 3), np.bool_)
    y = (rng.random(40) < 0.4).astype(np.int64)
    sent = np.stack([exact_signature(Rows(X, y, seen), 2) for X in parts])
    counts = np.array([[30.0, 10], [10, 30], [32, 8], [12, 28]])
    cluster = np.array([1, 2, 1, 2])
    rules = [
        NearestSignature(sent, cluster, 2, BLOCKS, True),
        NearestSkew(Skews(counts, np.zeros((4, 0)), counts.sum(axis=1)), cluster, ("labels", "sizes"), 0.05, 2, None),
    ]
    for rule in rules:
        arrays: Arrays = {}
        again = unpack_newcomers(json.loads(json.dumps(pack_newcomers(rule, arrays))), arrays)
        assert type(again) is type(rule)
        given = parts[3] + 0.2, seen, y[:labels]
        assert again.row(*given) == rule.row(*given)
    assert rules[0].row(parts[3] + 0.2, seen, y[:labels]) == 2
    with pytest.raises(ValueError, match="which this version does not know"):
        unpack_newcomers({"class": "os.system", "value": None}, {})


def test_fine_tuning_is_a_step_from_the_model_that_serves(tmp_path: Path) -> None:
    """One full batch of one epoch: a gradient step by hand."""
    models = np.array([[0.5, -0.2, 0.1]], np.float32)
    run = left_out(tmp_path, models, [0] * 5)
    rows, part = np.arange(12), run.result.federation.rows(0, "test")
    X, y = run.result.federation.X[part].astype(np.float64), run.result.federation.y[part]
    z = X[rows] @ models[0, :2] + models[0, 2]
    error = 1 / (1 + np.exp(-z)) - y[rows]
    theta = models[0] - 0.03 * np.append(X[rows].T @ error, error.sum()) / len(rows)
    found = fine_tuned(run, "global", 0, rows)
    assert found is not None
    np.testing.assert_allclose(found.margins, X @ theta[:2] + theta[2], atol=1e-5)
    assert fine_tuned(run, "recalibrated", 0, rows) is None
    assert fine_tuned(run, "personal", 0, rows) is None


def test_a_newcomer_without_others_trains_on_its_rows_alone(tmp_path: Path) -> None:
    """One full batch of two epochs from zeros: two gradient steps by hand."""
    training = {"batch_size": 0, "rounds": 2, "local_epochs": 1, "optimizer": "sgd", "learning_rate": 0.5}
    model = {"name": "logistic_regression", "init": "zeros"}
    run = left_out(tmp_path, np.zeros((1, 3)), [0] * 5, alone=True, strategy="local", training=training, model=model)
    part, rows = run.result.federation.rows(0, "test"), np.arange(5, 25)
    X, y = run.result.federation.X[part].astype(np.float64), run.result.federation.y[part]
    theta = np.zeros(3)
    for _ in range(2):
        error = 1 / (1 + np.exp(-(X[rows] @ theta[:2] + theta[2]))) - y[rows]
        theta -= 0.5 * np.append(X[rows].T @ error, error.sum()) / len(rows)
    found = joined(run, "personal", 0, rows, "recalibrate")
    assert found is not None
    np.testing.assert_allclose(found.margins, X @ theta[:2] + theta[2], atol=1e-5)
    assert joined(run, "personal", 0, np.flatnonzero(y == 1), "recalibrate") is None  # one class
    assert joined(run, "global", 0, rows, "recalibrate") is None


def by_minimising(columns: np.ndarray, constant: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return margins after a head has been fitted to ``rows`` with a ridge of 1, by a general minimiser."""
    z = (columns - columns[rows].mean(axis=0)) / columns[rows].std(axis=0)

    def loss(beta: np.ndarray) -> float:
        margins = constant[rows] + beta[0] + z[rows] @ beta[1:]
        return float((np.logaddexp(0, margins) - y[rows] * margins).sum() + (beta[1:] ** 2).sum() / 2)

    beta = minimize(loss, np.zeros(1 + columns.shape[1]), method="BFGS", options={"gtol": 1e-9}).x
    return np.asarray(constant + beta[0] + z @ beta[1:])


def test_a_newcomers_head_is_fitted_to_the_shared_body(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    theta = rng.normal(size=2 * 4 + 4 + 4 * 2 + 2).astype(np.float32)
    run = left_out(tmp_path, theta[None], [0] * 5, model={"name": "mlp", "hidden": [4]})
    federation, outcome = run.result.federation, run.result.outcome
    part = federation.rows(0, "test")
    X, y = federation.X[part].astype(np.float64), federation.y[part]
    outcome.private = np.arange(len(theta)) >= 2 * 4 + 4
    tensors = ModelSpec.of(run.config.model).bind(federation, "cpu", "float32").layout.split(theta.astype(np.float64))
    weight, shift, *_ = tensors.values()
    hidden = np.maximum(X @ weight.T + shift, 0)
    rows = np.arange(30)
    found = joined(run, "global", 0, rows, "recalibrate")
    assert found is not None
    np.testing.assert_allclose(found.margins, by_minimising(hidden, np.zeros(len(X)), y, rows), atol=1e-4)
    assert found.served_by == "global, with its own head"
    assert joined(run, "global", 0, np.flatnonzero(y == 0), "recalibrate") is None  # one class
    assert joined(run, "cluster", 0, rows[:0], "recalibrate") is None
    outcome.private[:] = True  # a head of two layers
    assert joined(run, "global", 0, rows, "recalibrate") is None


def test_a_head_that_is_an_intercept_keeps_the_slopes(tmp_path: Path) -> None:
    theta = np.array([[1.5, -0.5, 0.7]], np.float32)
    run = left_out(tmp_path, theta, [0] * 5, model={"name": "logistic_regression"})
    federation = run.result.federation
    part, rows = federation.rows(0, "test"), np.arange(10, 40)
    X, y = federation.X[part].astype(np.float64), federation.y[part]
    run.result.outcome.private = np.array([False, False, True])
    found = joined(run, "global", 0, rows, "recalibrate")
    assert found is not None
    slopes = X @ theta[0, :2].astype(np.float64)
    np.testing.assert_allclose(found.margins, by_minimising(np.empty((len(X), 0)), slopes, y, rows), atol=1e-5)
    assert (1 / (1 + np.exp(-found.margins[rows]))).sum() == pytest.approx(y[rows].sum())
