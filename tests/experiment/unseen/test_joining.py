"""A hospital that joins with labelled rows fine-tunes the model that serves it, or chooses a cluster by their loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raysim
from raysim.config import plugins, reading
from raysim.engine.job import Outcome, Result
from raysim.experiment.unseen.folds import Fold, LeftOut
from raysim.experiment.unseen.joining import fine_tuned, in_cluster
from tests.experiment.unseen.test_unseen import config, table

CHANGES: dict[str, Any] = {"model": {"name": "logistic_regression"}, "strategies": ["fedavg", "local", "clustered"]}


@pytest.mark.parametrize("joining", ["fine_tune", "cluster"])
def test_the_curve_after_rows_have_joined(joining: str, tmp_path: Path) -> None:
    asked = config(onboarding=[0, 20], joining=joining) | CHANGES | {"seeds": [0]}
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
    alone = unseen[(unseen["strategy"] == "local") & (unseen["k"] == 20)]
    assert alone["log_loss"].isna().all()
    assert set(alone["served_by"]) == {"nobody"}


def test_a_model_of_the_hospitals_own_cannot_be_fine_tuned_by_a_newcomer(tmp_path: Path) -> None:
    unseen = {"folds": ["h0"], "onboarding": [0, 20], "joining": "fine_tune"}
    asked = config(**unseen) | CHANGES | {"seeds": [0], "strategies": ["fedavg", "per_fedavg"]}
    raysim.compare(asked, data=table(), out=tmp_path / "out", in_process=True)
    found = pd.read_csv(tmp_path / "out" / "unseen.csv").set_index(["strategy", "model", "k"])
    assert found.loc[("per_fedavg", "personal", 0), "served_by"] == "personal"
    assert found.loc[("per_fedavg", "personal", 20), "served_by"] == "nobody"
    assert np.isnan(found.loc[("per_fedavg", "personal", 20), "log_loss"])


def left_out(tmp_path: Path, models: np.ndarray, cluster: list[int]) -> LeftOut:
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
    asked = Fold(1, ("h0",)).of(reading.resolve({"data": tree, "training": {"batch_size": 0}}))
    federation = plugins.build_federation(asked, plugins.build_source(asked.data), 0)
    served = np.array(cluster)
    outcome = object.__new__(Outcome)
    outcome.models, outcome.cluster, outcome.serve = (
        models,
        served,
        {"cluster": served, "global": np.zeros(5, np.int64)},
    )
    return LeftOut(Fold(1, ("h0",)), asked, Result("made", False, 0, federation, outcome, tmp_path))


def test_the_cluster_with_the_lowest_loss_on_the_rows_that_join(tmp_path: Path) -> None:
    models = np.array([[0, 0, 0], [2.0, 0, -1], [-2.0, 0, -1], [2.0, 0, -1]], np.float32)  # x helps: 1 and 3 alike
    run = left_out(tmp_path, models, [2, 1, 1, 2, 3])
    rows = np.arange(30)
    found = in_cluster(run, "cluster", 0, rows)
    X = run.result.federation.X[run.result.federation.rows(0, "test")]
    assert found is not None
    np.testing.assert_allclose(found.margins, X @ models[1, :2] + models[1, 2], rtol=1e-5)
    assert found.served_by == "cluster 0"  # the larger of two clusters that are alike
    assert in_cluster(run, "cluster", 0, rows[:0]) is None
    kept = in_cluster(run, "global", 0, rows)
    assert kept is not None
    assert kept.served_by == "global"


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
