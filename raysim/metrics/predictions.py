"""A model's predictions for rows: the probability of the event or of each class, or a real-valued label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def predictions(outputs: NDArray[Any], classes: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the columns of a table of predictions by name, from a model's ``outputs``, ``[n]`` or ``[n, C]``.

    - Two classes: ``probability`` is the probability of the second class, the event.
    - More classes: ``prediction`` is the name of the most probable class (the first of equal ones), ``probability`` its
      probability, and ``probability_<class>`` the probability of each class.
    - No classes (a real-valued label): ``prediction`` is in the label's unit.

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
