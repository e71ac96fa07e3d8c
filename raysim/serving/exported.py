"""A model that left raysim, or that never was in it: a folder of ``raysim export``, or an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError, DataError
from raysim.core.extras import need
from raysim.data.fitted import Preprocessing
from raysim.data.new_rows import read_new_rows
from raysim.serving.export import FILES
from raysim.serving.folder import read_preprocessing
from raysim.serving.from_json import outputs_of
from raysim.storage.served import PREPROCESSING

if TYPE_CHECKING:
    import pandas as pd

REMEDY = "name a folder of raysim export, an ONNX file, or a column of the table"

Outputs = Callable[[NDArray[np.float32]], NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Exported:
    """A model with what prepares its features."""

    name: str
    outputs: Outputs
    """Its outputs for features ``[n, F]``: ``[n]``, ``[n, 1]``, or ``[n, 2]`` for both classes."""
    preprocessing: Preprocessing | None
    """None: its features are the source's columns, which are numbers, as they are."""
    trained_on: Mapping[str, Any] | None = None
    """As :func:`raysim.serving.trained_on.trained_on`; None: not an export of raysim."""

    @staticmethod
    def open(path: Path) -> Exported:
        """The model at ``path``. Raises ``ConfigError`` where there is none."""
        if path.is_dir():
            described = path / "export.json"
            if not described.is_file():
                raise ConfigError(f"{path}: holds no exported model; {REMEDY}")
            told = json.loads(described.read_text())
            file = path / str(told["file"])
            return Exported(path.name, _outputs(file), read_preprocessing(path), told.get("trained_on", {}))
        beside = path.with_name(PREPROCESSING)
        fitted = read_preprocessing(path.parent) if beside.is_file() else None
        described = path.with_name("export.json")
        told = json.loads(described.read_text()).get("trained_on", {}) if described.is_file() else None
        return Exported(path.stem, _outputs(path), fitted, told)

    def risks(self, columns: pd.DataFrame) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """The probability of the event of each of ``n`` rows, ``[n]``, and how the rows differ from those of training.

        ``columns`` are the source's. Raises ``DataError`` for columns that do not fit, and for outputs that are no
        probabilities.
        """
        notes: tuple[str, ...] = ()
        if self.preprocessing is None:
            texts = [str(name) for name, of in columns.items() if of.dtype.kind not in "fiub"]
            if texts:
                raise DataError(
                    f"MODEL: column '{texts[0]}' is no number, and no {PREPROCESSING} says what to make of it"
                )
            X = columns.to_numpy(np.float32)
        else:
            rows = read_new_rows(columns, self.preprocessing)
            notes, (X, _) = rows.notes, self.preprocessing.transform(rows.columns)
        try:
            outputs = np.asarray(self.outputs(X), np.float64)
        except Exception as error:  # of a runtime, which has no exception of its own for rows that do not fit
            reason = " ".join(str(error).split())[:160]
            raise DataError(f"MODEL: cannot score these {X.shape[1]} features ({reason})") from None
        risks = outputs if outputs.ndim == 1 else outputs[:, -1]
        if outputs.ndim > 2 or (outputs.ndim == 2 and outputs.shape[1] > 2) or len(risks) != len(columns):
            raise DataError(f"MODEL: gives outputs of shape {outputs.shape}, not one probability a row")
        known = risks[np.isfinite(risks)]
        if len(known) and (known.min() < 0 or known.max() > 1):
            raise DataError(
                f"MODEL: gives {known.min():.4g} to {known.max():.4g}, no probabilities; add a last sigmoid"
            )
        return risks, notes


def _outputs(file: Path) -> Outputs:
    if file.suffix == ".onnx":
        return _of_onnx(file)
    if file.suffix == ".pt2":
        return _of_torch(file)
    if file.name == FILES["xgboost"]:
        raise ConfigError(f"{file}: is a model of xgboost; export it as json or onnx")
    if file.name == FILES["json"]:
        return outputs_of(file)
    raise ConfigError(f"{file}: is no model; {REMEDY}")


def _of_onnx(file: Path) -> Outputs:
    need("onnxruntime", "onnx", "MODEL")
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions have no common class
        raise ConfigError(f"{file}: cannot be read as ONNX ({type(error).__name__}); {REMEDY}") from None
    # A classifier of other tools has its classes first, and its probabilities last.
    real = [each.name for each in session.get_outputs() if each.type in ("tensor(float)", "tensor(double)")]
    if not real or len(session.get_inputs()) != 1:
        raise ConfigError(f"{file}: takes no single matrix of features to numbers; {REMEDY}")
    name = session.get_inputs()[0].name

    def outputs(X: NDArray[np.float32]) -> NDArray[Any]:
        return np.asarray(session.run(real[-1:], {name: X})[0])

    return outputs


def _of_torch(file: Path) -> Outputs:
    import torch

    program = torch.export.load(str(file)).module()

    def outputs(X: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad():
            scores: NDArray[Any] = program(torch.from_numpy(X)).numpy()
        return scores

    return outputs
