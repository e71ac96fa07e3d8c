"""A model's predictions for rows: the probability of the event or of each class, or a prediction of a real label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def predictions(outputs: NDArray[Any], classes: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return columns ``[n]`` by name, from a model's ``outputs``, ``[n]`` or ``[n, C]``.

    - two classes: ``probability``, the probability of the second class, the event;
    - more classes: ``prediction``, the name of the most probable class (the first of equal ones), ``probability``, the
      probability of this class, and ``probability_<class>`` for each class, which sum to 1;
    - no classes (a real label): ``prediction``, in the label's unit.

    Outputs that are NaN give empty cells.
    """
    values = outputs.astype(np.float64)
    if not len(classes):
        return {"prediction": values}
    if values.ndim == 1:
        with np.errstate(over="ignore"):
            return {"probability": 1.0 / (1.0 + np.exp(-values))}
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    shares = raised / raised.sum(axis=1, keepdims=True)
    named = {f"probability_{name}": share for name, share in zip(classes, shares.T, strict=True)}
    most = np.where(np.isnan(shares).any(axis=1), None, np.array(classes, dtype=object)[shares.argmax(axis=1)])
    return {"prediction": most, "probability": shares.max(axis=1), **named}
