"""What each column does to a model, against the definitions written out, and what is written of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from raysim.config import plugins, reading
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.serving.export import export
from raysim.serving.importance import Evaluated, columns_of, dependence, importances
from raysim.serving.predictor import Predictor
from raysim.statistics.differences.paired import paired
from tests.serving.runs import folder_of

TREES = {"model": {"name": "boosted_trees", "trees": 6, "depth": 2}, "training": {}}


@pytest.fixture
def opened(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The predictor and the federation of a run."""

    def open_(strategy: Any, label: str = "died", **sections: Any) -> tuple[Predictor, Federation]:
        folder = folder_of(place, strategy, label, **sections)
        monkeypatch.setitem(os.environ, "RAYSIM_CACHE", str(place / "cache"))
        config = reading.resolve(folder / "config.yaml")
        return Predictor.open(folder), plugins.build_federation(config, plugins.build_source(config.data), config.seed)

    return open_


def test_importance_is_the_fall_of_auroc_by_the_definition(opened: Any) -> None:
    predictor, federation = opened("fedavg")
    table = importances(predictor, federation, "test", 2, 7).set_index("column")
    assert list(table["importance"]) == sorted(table["importance"], reverse=True)
    rows = Evaluated.of(predictor, federation, "test")
    theta = predictor.served.vectors["global"].astype(float)
    for name, (_, features) in columns_of(predictor.preprocessing).items():
        figures: dict[str, list[float]] = {"whole": [], "without": []}
        moved = []
        for repeat in range(2):
            rng, X = stream(7, f"importance/{name}/{repeat}"), rows.X.copy()
            for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
                X[a:b, features] = X[a + rng.permutation(b - a)][:, features]
            moved.append(X @ theta[:-1])
        for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
            both = 0 < rows.y[a:b].sum() < b - a
            auroc = [roc_auc_score(rows.y[a:b], z[a:b]) if both else np.nan for z in (rows.X @ theta[:-1], *moved)]
            figures["whole"].append(auroc[0])
            figures["without"].append(float(np.mean(auroc[1:])))
        expected = paired([figures["whole"]], [figures["without"]], [np.diff(rows.offsets)])
        said = table.loc[name]
        np.testing.assert_allclose(said["importance"], expected.difference, atol=1e-6)
        np.testing.assert_allclose(said[["low", "high"]].astype(float), expected.population(), atol=1e-5)
        spread = np.std(rows.X[:, features] @ theta[:-1][features])
        np.testing.assert_allclose(said["spread"], spread, rtol=1e-5)
    assert table.loc["severity", "importance"] > 0.1


def test_dependence_is_the_mean_prediction_by_the_definition(opened: Any) -> None:
    predictor, federation = opened("fedavg")
    table = dependence(predictor, federation, "test", ["severity", "unit"])
    rows, fitted = Evaluated.of(predictor, federation, "test"), predictor.preprocessing
    theta, places = predictor.served.vectors["global"].astype(float), columns_of(fitted)
    column = fitted.columns[[each.name for each in fitted.columns].index("severity")]
    for _, row in table[table["column"] == "severity"].iterrows():
        X = rows.X.astype(float)
        X[:, places["severity"][1]] = 0.0
        X[:, places["severity"][1][0]] = (float(row["value"]) - column.mean) / column.scale
        assert row["mean"] == pytest.approx(expit(X @ theta[:-1] + theta[-1]).mean(), abs=1e-5)
    units = table[table["column"] == "unit"].set_index("value")["mean"]
    assert set(units.index) <= {"MICU", "NICU", "SICU", "ZICU"}
    assert units["SICU"] > units["MICU"]  # as the table was drawn


def test_trees_have_gains_and_columns_that_they_do_not_use_have_none(opened: Any) -> None:
    predictor, federation = opened({"name": "centralized", "label": "trees"}, **TREES)
    table = importances(predictor, federation, "test", 2, 0).set_index("column")
    assert table["gain"].sum() == pytest.approx(1.0)
    assert (table.loc[table["gain"] == 0, ["importance", "low", "high"]] == 0).all(axis=None)
    assert table["gain"].idxmax() == table["importance"].idxmax() == "severity"
    curve = dependence(predictor, federation, "test", ["severity"])["mean"]
    assert curve.iloc[-1] > curve.iloc[0]


def test_random_splits_have_no_gain(place: Path, opened: Any, tmp_path: Path) -> None:
    """Neither do they have sums over rows: all are empty in files, and not 0."""
    data = {
        "source": "table",
        "path": str(place / "stays.csv"),
        "silo": "hospital",
        "label": "died",
        "drop": ["stage", "cost", "age", "ventilated", "gcs", "sex"],
        "split": {"column": "part"},
        "preprocessing": "declared",
        "ranges": {"severity": [-4, 4, None], "unit": ["MICU", "NICU", "SICU", "ZICU", None]},
    }
    predictor, federation = opened({"name": "random_trees", "label": "drawn"}, data=data, **TREES)
    table = importances(predictor, federation, "test", 1, 0)
    assert table["gain"].isna().all()
    assert table["importance"].notna().all()
    export(predictor, tmp_path / "json", "json", None, None)
    _, *trees = json.loads((tmp_path / "json" / "model.json").read_text())["trees"]
    nodes = [node for tree in trees for node in tree["nodes"]]
    assert {node["rows"] for node in nodes} == {node["hessian"] for node in nodes} == {None}
    assert [node["gain"] for node in nodes if "left" in node] == [None] * 3 * 5


def test_a_number_gains_error_and_three_classes_have_no_dependence(opened: Any) -> None:
    predictor, federation = opened("fedavg", "cost")
    table = importances(predictor, federation, "test", 2, 0).set_index("column")
    assert table.loc["severity", "importance"] > 0
    predictor, federation = opened("fedavg", "stage")
    assert dependence(predictor, federation, "test", ["severity"]).empty
    table = importances(predictor, federation, "test", 1, 0)
    assert "spread" not in table
    assert table["column"].iloc[0] == "severity"


def test_a_run_that_is_asked_writes_and_draws_it(place: Path) -> None:
    sections = {"evaluation": {"importance": 1}}
    folder = folder_of(place, {"name": "fedavg", "label": "asked"}, **sections)
    table = pd.read_csv(folder / "importance.csv")
    assert set(pd.read_csv(folder / "dependence.csv")["column"]) == set(table["column"].head(6))
    egress = pd.read_csv(folder / "egress.csv")
    sent = egress[egress["kind"] == "importance"]
    # In float64 the figure without and with each permutation, and 9 sums for each of the six columns, or fewer.
    assert set(sent["bytes"]) == {8 * (1 + len(table) + 9 * min(6, len(table)))}
    assert sent["hospital"].nunique() == egress["hospital"].nunique()
    page = (folder / "report.html").read_text()
    assert "Importance of columns" in page
    assert "Predictions along the most important columns" in page
    assert not (folder_of(place, "fedavg") / "importance.csv").exists()
