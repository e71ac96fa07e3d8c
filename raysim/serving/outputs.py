"""What a run's model says of prepared rows, as an exported one has to say it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.fitted import Preprocessing
from raysim.metrics.predictions import predictions
from raysim.serving.predictor import Predictor


def output_names(fitted: Preprocessing) -> list[str]:
    """The names of the outputs in the table of ``raysim predict``, in order."""
    if not fitted.classes:
        return ["prediction"]
    if len(fitted.classes) == 2:
        return ["probability"]
    return [f"probability_{name}" for name in fitted.classes]


def said(predictor: Predictor, owner: str, X: NDArray[np.float32]) -> NDArray[Any]:
    """The outputs of the model of ``owner`` for rows ``X [n, F]``: ``[n]``, of more than two classes ``[n, C]``."""
    theta, shift = predictor.served.of(owner)
    logits = predictor.model.logits(theta, X)
    columns = predictions(logits if shift is None else shift.applied(logits), predictor.preprocessing.classes)
    outputs = [columns[name] for name in output_names(predictor.preprocessing)]
    return outputs[0] if len(outputs) == 1 else np.column_stack(outputs)
