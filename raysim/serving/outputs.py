"""Computes the outputs of a run's model for prepared rows, and compares them with an exported model's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.data.fitted import Preprocessing
from raysim.metrics.predictions import predictions
from raysim.serving.predictor import Predictor

TRIED = 64
"""Number of random rows on which the outputs of an exported model are compared with those of the run's model."""

TOLERANCE = 1e-5
"""Largest accepted difference between outputs, absolute and relative. Single precision causes small differences."""


def output_names(fitted: Preprocessing) -> list[str]:
    """Return the names of the outputs in the table of ``raysim predict``, in order."""
    if not fitted.classes:
        return ["prediction"]
    if len(fitted.classes) == 2:
        return ["probability"]
    return [f"probability_{name}" for name in fitted.classes]


def outputs_of(predictor: Predictor, owner: str, X: NDArray[np.float32]) -> NDArray[Any]:
    """Return the outputs of a run's model for features ``X [n, F]``; for more than two classes, one column per class.

    The outputs are probabilities, or predictions of a numeric label. ``owner`` names the model's parameters, such as
    ``global``.
    """
    theta, shift = predictor.served.of(owner)
    logits = predictor.model.logits(theta, X)
    columns = predictions(logits if shift is None else shift.applied(logits), predictor.preprocessing.classes)
    outputs = [columns[name] for name in output_names(predictor.preprocessing)]
    return outputs[0] if len(outputs) == 1 else np.column_stack(outputs)


def check_same(predictor: Predictor, owner: str, X: NDArray[np.float32], got: NDArray[Any]) -> None:
    """Raise ``ConfigError`` if an exported model's outputs ``got`` for ``X`` differ from those of the run's model."""
    expected = outputs_of(predictor, owner, X)
    if not np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        apart = float(np.nanmax(np.abs(got - expected)))
        raise ConfigError(
            f"model: {type(predictor.model).__name__} gives other numbers when it is exported (up to {apart:.2g} "
            "apart); use raysim predict"
        )
