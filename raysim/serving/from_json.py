"""Predicts with a model that was exported as plain JSON: a linear model, or trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core import bounded
from raysim.core.errors import ConfigError

Floats = NDArray[np.float64]


def outputs_of(file: Path) -> Callable[[NDArray[np.float32]], NDArray[Any]]:
    """Return the function from features ``[n, F]`` to the probability of the event ``[n]``, for the two-class model in
    ``file``.

    Raises ``ConfigError`` for another file.
    """
    try:
        tree = bounded.read_json(file)
        known = tree.get("link", tree.get("loss"))
    except (OSError, ValueError, AttributeError):
        raise ConfigError(f"{file}: is not a model of raysim export; export it again") from None
    if known not in ("logit", "logistic"):
        raise ConfigError(f"{file}: is not a model of two classes; name one of two")
    margins = _of_trees if "trees" in tree else _of_coefficients

    def outputs(X: NDArray[np.float32]) -> NDArray[Any]:
        return 0.5 * (1 + np.tanh(0.5 * margins(tree, X)))

    return outputs


def _of_coefficients(tree: Mapping[str, Any], X: NDArray[np.float32]) -> Floats:
    made: Floats = float(tree["intercept"]) + X.astype(np.float64) @ np.array(list(tree["coefficients"].values()))
    return made


def _of_trees(tree: Mapping[str, Any], X: NDArray[np.float32]) -> Floats:
    margins = np.full(len(X), float(tree["base"][0]))
    for each in tree["trees"]:
        rows = {0: np.arange(len(X))}  # rows of each node; parents precede their children
        for node in each["nodes"]:
            here = rows.pop(node["node"])
            if "value" in node:
                margins[here] += node["value"]
                continue
            left = _goes_left(node, X[here, node["column"]])
            rows |= {node["left"]: here[left], node["right"]: here[~left]}
    return margins


def _goes_left(node: Mapping[str, Any], x: NDArray[np.float32]) -> NDArray[np.bool_]:
    if "levels" in node:
        left = np.isin(x, node["levels"])
    else:
        left = x <= (np.inf if node["at_most"] is None else node["at_most"])
    return np.where(np.isnan(x), node["missing"] == "left", left)
