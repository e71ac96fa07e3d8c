"""Trees that left raysim score as they did: plain JSON, xgboost, ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax

from raysim.serving.tree_formats import onnx_model, shifted, xgboost_model
from raysim.storage.served import Shift
from raysim.trees.boosting import boosted
from raysim.trees.json_export import as_json
from raysim.trees.settings import TreeSettings, TreeTask
from tests.trees.tables import table_r, task_r


def table(levels: tuple[int, ...], seed: int = 0, n: int = 300) -> Any:
    """Rows of two numbers and a column for each of ``levels``, a tenth of all values missing."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), *(rng.integers(0, size, n) for size in levels)]).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def of(loss: str) -> tuple[Any, Any]:
    """A forest of ``loss`` over numbers and categories, and rows."""
    levels = (5, 40)
    X = table(levels)
    signal = np.nan_to_num(X[:, 0]) + (np.nan_to_num(X[:, 2]) % 2) - 0.5 + (np.nan_to_num(X[:, 3]) % 3) / 2
    y: Any = {
        "logistic": (signal > 0.5).astype(int),
        "softmax": np.digitize(signal, [0.0, 1.0]),
        "squared": signal.astype(np.float32),
        "poisson": np.floor(np.exp(np.clip(signal, -2, 2))).astype(np.float32),
    }[loss]
    classes = {"logistic": 2, "softmax": 3}.get(loss, 0)
    settings = TreeSettings(trees=12, depth=3, min_rows=2, loss="poisson" if loss == "poisson" else "auto")
    return boosted(TreeTask(settings, (0, 0, *levels), classes), X, y), np.concatenate([X, table(levels, 1)])


def scores(loss: str, margins: Any) -> Any:
    if loss == "softmax":
        return softmax(margins, axis=1)
    return {"logistic": expit, "poisson": np.exp}.get(loss, lambda each: each)(margins[:, 0])


LOSSES = ("logistic", "softmax", "squared", "poisson")


def by_json(tree: Any, row: Any) -> Any:
    """A row's margins by the plain JSON alone, as its documentation reads."""
    margins = list(tree["base"])
    for each in tree["trees"]:
        nodes = {node["node"]: node for node in each["nodes"]}
        node = nodes[0]
        while "value" not in node:
            x = row[node["column"]]
            if np.isnan(x):
                side = node["missing"]
            elif "levels" in node:
                side = "left" if int(x) in node["levels"] else "right"
            else:
                side = "left" if node["at_most"] is None or x <= node["at_most"] else "right"
            node = nodes[node[side]]
        margins[each["class"]] += node["value"]
    return margins


@pytest.mark.parametrize("loss", LOSSES)
def test_the_plain_json_is_all_of_the_model(loss: str) -> None:
    forest, X = of(loss)
    tree = json.loads(json.dumps(as_json(forest)))
    np.testing.assert_allclose([by_json(tree, row) for row in X], forest.margins(X), rtol=0, atol=1e-12)
    assert any("levels" in node for each in tree["trees"] for node in each["nodes"])


@pytest.mark.parametrize("loss", LOSSES)
def test_onnx_says_the_same(loss: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    forest, X = of(loss)
    session = onnxruntime.InferenceSession(onnx_model(as_json(forest)), providers=["CPUExecutionProvider"])
    for rows in (X, X[:0]):
        said = session.run(None, {"features": rows})[0]
        expected = scores(loss, forest.margins(rows))
        assert said.shape == expected.shape
        np.testing.assert_allclose(said, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_xgboost_says_the_same(loss: str, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    forest, X = of(loss)
    (tmp_path / "model.json").write_text(json.dumps(xgboost_model(as_json(forest))))
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    types = ["c" if levels else "float" for levels in forest.task.levels]
    rows = xgboost.DMatrix(X, feature_names=as_json(forest)["columns"], feature_types=types, enable_categorical=True)
    np.testing.assert_allclose(booster.predict(rows), scores(loss, forest.margins(X)), rtol=2e-6, atol=1e-6)


def test_no_set_of_levels_is_empty_for_xgboost() -> None:
    """Where missing values alone go right every level goes left; xgboost refuses to read an empty set."""
    leaf = {"rows": 10, "hessian": 1.0, "value": 0.5}
    root = {"node": 0, "rows": 20, "hessian": 2.0, "column": 0, "levels": [0, 1, 2], "missing": "right", "gain": 1.0}
    nodes = [{**root, "left": 1, "right": 2}, {**leaf, "node": 1}, {**leaf, "node": 2}]
    tree = {
        "loss": "logistic",
        "columns": ["ward"],
        "levels": [3],
        "base": [0.0],
        "trees": [{"class": 0, "nodes": nodes}],
    }
    written = xgboost_model(tree)["learner"]["gradient_booster"]["model"]["trees"][1]
    assert (written["categories"], written["categories_sizes"], written["default_left"][0]) == ([3], [1], 0)


def test_table_r_with_an_infinite_threshold(tmp_path: Path) -> None:
    xgboost, onnxruntime = pytest.importorskip("xgboost"), pytest.importorskip("onnxruntime")
    X, y = table_r()
    forest = boosted(task_r(), X, y)
    tree = as_json(forest)
    assert any(node.get("at_most", 0) is None for each in tree["trees"] for node in each["nodes"])
    (tmp_path / "model.json").write_text(json.dumps(xgboost_model(tree)))
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    margins = booster.predict(xgboost.DMatrix(X, feature_names=tree["columns"]), output_margin=True)
    assert np.abs(margins - forest.margins(X)[:, 0]).max() < 1e-6
    session = onnxruntime.InferenceSession(onnx_model(tree), providers=["CPUExecutionProvider"])
    assert np.abs(session.run(None, {"features": X})[0] - expit(forest.margins(X)[:, 0])).max() < 1e-6


def test_a_recalibration_is_in_the_trees() -> None:
    forest, X = of("logistic")
    tree = shifted(as_json(forest), Shift("global", 0.3, 0.5))
    moved = 0.3 + 0.5 * forest.margins(X)[:40, 0]
    np.testing.assert_allclose([by_json(tree, row)[0] for row in X[:40]], moved, atol=1e-12)
    assert shifted(as_json(forest), None) == as_json(forest)
