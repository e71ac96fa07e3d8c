"""Writes boosted trees as plain JSON, as a model of xgboost, and as ONNX (TreeEnsembleRegressor of ``ai.onnx.ml``).

xgboost and ONNX add the values of trees in single precision. Splits in xgboost can only test "less than", so ``x <= e``
becomes ``x < e'``, where ``e'`` is the next larger number in single precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from raysim.core.atomic import write_json
from raysim.serving.outputs import TRIED, check_same
from raysim.serving.predictor import Predictor
from raysim.storage.served import Shift
from raysim.training.base import Grows
from raysim.trees.json_export import as_json

Tree = Mapping[str, Any]

LARGEST = float(np.finfo(np.float32).max)
"""The largest threshold of a split in exported trees."""

OBJECTIVES = {
    "logistic": ("binary:logistic", "[5E-1]"),
    "softmax": ("multi:softprob", "[5E-1]"),
    "squared": ("reg:squarederror", "[0E0]"),
    "poisson": ("count:poisson", "[1E0]"),
}
"""For each loss, the objective in xgboost, and the ``base_score`` that adds 0 to the sum of the trees' values."""


def writer(predictor: Predictor, owner: str, form: str) -> Callable[[Path], None]:
    """Return a function that writes a run's trees to a path in the format ``form``.

    ``owner`` names the model's parameters, such as ``global``. Raises ``ConfigError`` if the outputs of the ONNX model
    differ from those of the run's model.
    """
    theta, shift = predictor.served.of(owner)
    model = cast(Grows, predictor.model)
    tree = shifted(as_json(model.forest(theta), predictor.preprocessing.features), shift)
    if form == "json":
        return lambda path: write_json(path, tree)
    if form == "xgboost":
        made = xgboost_model(tree)
        return lambda path: write_json(path, made)
    content = onnx_model(tree)
    _try(predictor, owner, tree["levels"], content)

    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def _try(predictor: Predictor, owner: str, levels: Sequence[int], content: bytes) -> None:
    import onnx
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(0)
    columns = [rng.integers(0, count, TRIED) if count else rng.normal(size=TRIED) for count in levels]
    X = np.column_stack(columns).astype(np.float32)
    results: Any = ReferenceEvaluator(onnx.load_from_string(content)).run(None, {"features": X})
    check_same(predictor, owner, X, results[0])


def shifted(tree: Tree, shift: Shift | None) -> dict[str, Any]:
    """Return the trees with recalibrated outputs: each output before the inverse link is scaled and shifted.

    Without a ``shift``, the trees are unchanged.
    """
    made = copy.deepcopy(dict(tree))
    if shift is None:
        return made
    made["base"] = [shift.intercept + shift.slope * base for base in made["base"]]
    for each in made["trees"]:
        for node in each["nodes"]:
            if "value" in node:
                node["value"] *= shift.slope
    return made


class _Stored(NamedTuple):
    """The nodes of a tree, numbered from 0 (the root)."""

    nodes: Sequence[Mapping[str, Any]]
    left: list[int]
    """For each node, the number of its left child, or -1 for a leaf."""
    right: list[int]


def _stored(tree: Tree) -> _Stored:
    place = {node["node"]: k for k, node in enumerate(tree["nodes"])}
    left, right = ([place.get(node.get(side), -1) for node in tree["nodes"]] for side in ("left", "right"))
    return _Stored(tree["nodes"], left, right)


def xgboost_model(tree: Tree) -> dict[str, Any]:
    """Convert the trees to xgboost's format 3, for ``Booster(model_file=...)``."""
    objective, start = OBJECTIVES[tree["loss"]]
    outputs, columns = len(tree["base"]), len(tree["columns"])
    bases = [
        {"class": k, "nodes": [{"node": 0, "rows": 0, "hessian": 0.0, "value": b}]} for k, b in enumerate(tree["base"])
    ]
    trees = [*bases, *tree["trees"]]
    of_objective: dict[str, Any] = {"name": objective}
    if tree["loss"] == "softmax":
        of_objective["softmax_multiclass_param"] = {"num_class": str(outputs)}
    elif tree["loss"] == "poisson":
        of_objective["poisson_regression_param"] = {"max_delta_step": "0.7"}
    else:
        of_objective["reg_loss_param"] = {"scale_pos_weight": "1"}
    return {
        "version": [3, 2, 0],
        "learner": {
            "attributes": {},
            "feature_names": list(tree["columns"]),
            "feature_types": ["c" if levels else "float" for levels in tree["levels"]],
            "learner_model_param": {
                "base_score": start,
                "boost_from_average": "1",
                "num_class": str(outputs if outputs > 1 else 0),
                "num_feature": str(columns),
                "num_target": "1",
            },
            "objective": of_objective,
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(0, len(trees) + 1, outputs)),
                    "tree_info": [each["class"] for each in trees],
                    "trees": [_xgboost_tree(k, each, tree["levels"]) for k, each in enumerate(trees)],
                },
            },
        },
    }


def _xgboost_tree(number: int, tree: Tree, levels: Sequence[int]) -> dict[str, Any]:
    nodes, left, right = _stored(tree)
    parents = [2147483647] * len(nodes)
    for k in range(len(nodes)):
        for child in (left[k], right[k]):
            if child >= 0:
                parents[child] = k
    categories: list[int] = []
    of_nodes: dict[str, list[int]] = {"categories_nodes": [], "categories_segments": [], "categories_sizes": []}
    for k, node in enumerate(nodes):
        if "levels" in node:
            count = levels[node["column"]]
            # xgboost accepts no empty set: if only missing values go right, use a level that no row has.
            goes_right = sorted(set(range(count)) - set(node["levels"])) or [count]
            for name, value in zip(of_nodes, (k, len(categories), len(goes_right)), strict=True):
                of_nodes[name].append(value)
            categories += goes_right
    return {
        "base_weights": [float(node.get("value", 0.0)) for node in nodes],
        "categories": categories,
        **of_nodes,
        "default_left": [int(node.get("missing") == "left") for node in nodes],
        "id": number,
        "left_children": left,
        "loss_changes": [float(node.get("gain") or 0.0) for node in nodes],
        "parents": parents,
        "right_children": right,
        "split_conditions": [_below(node) for node in nodes],
        "split_indices": [int(node.get("column", 0)) for node in nodes],
        "split_type": [int("levels" in node) for node in nodes],
        "sum_hessian": [float(node["hessian"] or 0.0) for node in nodes],
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(len(levels)),
            "num_nodes": str(len(nodes)),
            "size_leaf_vector": "1",
        },
    }


def _below(node: Mapping[str, Any]) -> float:
    if "value" in node:
        return float(node["value"])
    if "levels" in node:
        return 0.0
    if node["at_most"] is None:
        return LARGEST
    return min(float(np.nextafter(np.float32(node["at_most"]), np.float32(np.inf))), LARGEST)


def onnx_model(tree: Tree) -> bytes:
    """Convert the trees to ONNX.

    The input is ``features [n, F]``; the output ``scores`` has one column per class if there are more than two. Each
    split by categories compares an additional feature: 0 for categories that go left, 1 for other categories,
    and NaN for a missing value.
    """
    from onnx import TensorProto, checker, helper, numpy_helper

    outputs, columns, levels = len(tree["base"]), len(tree["columns"]), tree["levels"]
    sides = [node for each in tree["trees"] for node in each["nodes"] if "levels" in node]
    made: list[Any] = []
    constants: dict[str, NDArray[Any]] = {}
    source = "features"
    if sides:
        width = np.array([levels[node["column"]] for node in sides])
        flat = np.concatenate([~np.isin(np.arange(w), node["levels"]) for w, node in zip(width, sides, strict=True)])
        constants |= {
            "columns": np.array([node["column"] for node in sides]),
            "first": np.concatenate([[0], np.cumsum(width)[:-1]]),
            "sides": flat.astype(np.float32),
            "zero": np.zeros(1, np.float32),
        }
        made += [
            helper.make_node("Gather", ["features", "columns"], ["codes"], axis=1),
            helper.make_node("IsNaN", ["codes"], ["absent"]),
            helper.make_node("Where", ["absent", "zero", "codes"], ["known"]),
            helper.make_node("Cast", ["known"], ["positions"], to=TensorProto.INT64),
            helper.make_node("Add", ["positions", "first"], ["places"]),
            helper.make_node("Gather", ["sides", "places"], ["goes"]),
            helper.make_node("Where", ["absent", "codes", "goes"], ["beside"]),
            helper.make_node("Concat", ["features", "beside"], ["with_sides"], axis=1),
        ]
        source = "with_sides"
    made.append(
        helper.make_node("TreeEnsembleRegressor", [source], ["margins"], domain="ai.onnx.ml", **_ensemble(tree))
    )
    made += _last(tree["loss"], constants)
    graph = helper.make_graph(
        made,
        "trees",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", columns])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", outputs] if outputs > 1 else ["rows"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _last(loss: str, constants: dict[str, NDArray[Any]]) -> list[Any]:
    """Return the ONNX nodes of the inverse link of the ``loss``, and add their constants to ``constants``."""
    from onnx import helper

    if loss == "softmax":
        return [helper.make_node("Softmax", ["margins"], ["scores"], axis=1)]
    constants["last"] = np.array([1])
    steps = [helper.make_node("Squeeze", ["margins", "last"], ["scores" if loss == "squared" else "flat"])]
    if loss == "logistic":
        steps.append(helper.make_node("Sigmoid", ["flat"], ["scores"]))
    elif loss == "poisson":
        from raysim.training.kernels.poisson import LARGEST as largest

        constants["largest"] = np.array(largest, np.float32)
        steps.append(helper.make_node("Min", ["flat", "largest"], ["bounded"]))
        steps.append(helper.make_node("Exp", ["bounded"], ["scores"]))
    return steps


def _ensemble(tree: Tree) -> dict[str, Any]:
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in (*names, "missing_value_tracks_true")}
    targets: dict[str, list[Any]] = {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    further = len(tree["columns"])
    for number, each in enumerate(tree["trees"]):
        stored, left, right = _stored(each)
        for k, node in enumerate(stored):
            if "value" in node:
                row: tuple[Any, ...] = (number, k, 0, 0.0, "LEAF", 0, 0, 0)
                for name, value in zip(targets, (number, k, each["class"], float(node["value"])), strict=True):
                    targets[name].append(value)
            else:
                column, at = (further, 0.5) if "levels" in node else (node["column"], node["at_most"])
                further += "levels" in node
                at = LARGEST if at is None or not math.isfinite(at) else float(at)
                row = (number, k, column, at, "BRANCH_LEQ", left[k], right[k], int(node["missing"] == "left"))
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
    return nodes | targets | {"n_targets": len(tree["base"]), "base_values": [float(b) for b in tree["base"]]}
