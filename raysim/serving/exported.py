"""A model outside raysim's runs: a folder of ``raysim export``, or an ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core import bounded
from raysim.core.arrays import Floats
from raysim.core.errors import ConfigError, DataError
from raysim.core.installed import need
from raysim.data.fitted import Preprocessing
from raysim.data.new_rows import read_new_rows
from raysim.serving.export import FILES
from raysim.serving.folder import read_preprocessing
from raysim.storage.manifest import check_plain
from raysim.storage.served import PREPROCESSING

REMEDY = "name a folder of raysim export, an ONNX file, or a column of the table"

DESCRIBED = "export.json"

Outputs = Callable[[NDArray[np.float32]], NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Exported:
    """A trained model for prediction, with the preprocessing of its features."""

    name: str
    outputs: Outputs
    """The function from features ``[n, F]`` to predictions: ``[n]``, ``[n, 1]``, or ``[n, 2]`` with one column per
    class.
    """
    preprocessing: Preprocessing | None
    """The preprocessing of the source's columns; None if these columns are the features; they must then be numbers."""
    trained_on: Mapping[str, Any] | None = None
    """Digests of the training data, from :func:`raysim.serving.trained_on.trained_on`; empty or None if
    they are unknown."""

    @staticmethod
    def open(path: Path) -> Exported:
        """Open the model at ``path``. Raises ``ConfigError`` if there is no usable model."""
        if path.is_dir():
            check_plain(path)
            if not (path / DESCRIBED).is_file():
                raise ConfigError(f"{path}: holds no exported model; {REMEDY}")
            content = _description(path / DESCRIBED)
            file = path / str(content.get("file"))
            if file.parent != path:
                raise ConfigError(
                    f"{path / DESCRIBED}: names {file}, which is not a file of the same folder; export the model again"
                )
            return Exported(path.name, _outputs(file), read_preprocessing(path), content.get("trained_on", {}))
        fitted = read_preprocessing(path.parent) if path.with_name(PREPROCESSING).is_file() else None
        described = path.with_name(DESCRIBED)
        trained_on = _description(described).get("trained_on", {}) if described.is_file() else None
        return Exported(path.stem, _outputs(path), fitted, trained_on)

    def risks(self, columns: pd.DataFrame) -> tuple[Floats, tuple[str, ...]]:
        """Return the probability of the event for each row, ``[n]``, and remarks on differences from the training data.

        ``columns`` has the columns of the data source. Raises ``DataError`` for columns that do not fit the model, and
        for outputs that are not probabilities.
        """
        notes: tuple[str, ...] = ()
        if self.preprocessing is None:
            texts = [str(name) for name, of in columns.items() if of.dtype.kind not in "fiub"]
            if texts:
                raise DataError(
                    f"MODEL: column '{texts[0]}' has no numbers, and no {PREPROCESSING} says how to encode it; write "
                    "numbers in this column"
                )
            X = columns.to_numpy(np.float32)
        else:
            rows = read_new_rows(columns, self.preprocessing)
            notes, (X, _) = rows.notes, self.preprocessing.transform(rows.columns)
        try:
            outputs = np.asarray(self.outputs(X), np.float64)
        except Exception as error:  # runtimes have no specific exception for rows that do not fit
            reason = " ".join(str(error).split())[:160]
            raise DataError(
                f"MODEL: cannot score {X.shape[1]} features ({reason}); give the columns that the model was trained on"
            ) from None
        risks = outputs if outputs.ndim == 1 else outputs[:, -1]
        if outputs.ndim > 2 or (outputs.ndim == 2 and outputs.shape[1] > 2) or len(risks) != len(columns):
            raise DataError(
                f"MODEL: gives outputs of shape {outputs.shape}, not one probability for each row; name a model of two "
                "classes"
            )
        known = risks[np.isfinite(risks)]
        if len(known) and (known.min() < 0 or known.max() > 1):
            raise DataError(
                f"MODEL: gives {known.min():.4g} to {known.max():.4g}, which are not probabilities; add a final sigmoid"
            )
        return risks, notes


def _description(described: Path) -> dict[str, Any]:
    try:
        content = bounded.read_json(described)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{described}: cannot be read ({error}); export the model again") from None
    if not isinstance(content, dict) or not isinstance(content.get("trained_on", {}), dict):
        raise ConfigError(f"{described}: does not describe an exported model; export the model again")
    return content


def _outputs(file: Path) -> Outputs:
    if not file.is_file():
        raise ConfigError(f"{file}: is not a file; {REMEDY}")
    if file.suffix == ".onnx":
        return _of_onnx(file)
    if file.suffix == ".pt2":
        raise ConfigError(
            f"{file}: is a program, which can execute any code of its author when it is loaded; export the model "
            "again with --format onnx, or json for a regression or trees"
        )
    if file.name == FILES["xgboost"]:
        raise ConfigError(f"{file}: is a model of xgboost; export it as json or onnx")
    if file.name == FILES["json"]:
        return outputs_of(file)
    raise ConfigError(f"{file}: is not a model; {REMEDY}")


def _of_onnx(file: Path) -> Outputs:
    need("onnxruntime", "onnx", "MODEL")
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions have no common base class
        raise ConfigError(f"{file}: cannot be read as ONNX ({type(error).__name__}); {REMEDY}") from None
    # Classifiers of other tools output classes first, and probabilities last.
    real = [each.name for each in session.get_outputs() if each.type in ("tensor(float)", "tensor(double)")]
    if not real or len(session.get_inputs()) != 1:
        raise ConfigError(f"{file}: does not turn one matrix of features into numbers; {REMEDY}")
    name = session.get_inputs()[0].name

    def outputs(X: NDArray[np.float32]) -> NDArray[Any]:
        return np.asarray(session.run(real[-1:], {name: X})[0])

    return outputs


def outputs_of(file: Path) -> Callable[[NDArray[np.float32]], NDArray[Any]]:
    """Return the model in ``file`` as a function from features ``[n, F]`` to probabilities of the event, ``[n]``.

    Raises ``ConfigError`` unless ``file`` is the JSON of an exported linear model or of exported trees, for two
    classes.
    """
    try:
        tree = bounded.read_json(file)
        known = tree.get("link", tree.get("loss"))
    except (OSError, ValueError, AttributeError):
        raise ConfigError(f"{file}: is not a model of raysim export; export the model again") from None
    if known not in ("logit", "logistic"):
        raise ConfigError(f"{file}: is not a model of two classes; name a model of two classes")
    margins = _of_trees if "trees" in tree else _of_coefficients

    def outputs(X: NDArray[np.float32]) -> NDArray[Any]:
        return 0.5 * (1 + np.tanh(0.5 * margins(tree, X)))

    return outputs


def _of_coefficients(tree: Mapping[str, Any], X: NDArray[np.float32]) -> Floats:
    return np.asarray(float(tree["intercept"]) + X.astype(np.float64) @ np.array(list(tree["coefficients"].values())))


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
