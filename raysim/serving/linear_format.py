"""Writes a linear model as plain JSON: a coefficient for each feature, and a constant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from raysim.core.atomic import write_json
from raysim.serving.predictor import Predictor

FORMAT = 1


def writer(predictor: Predictor, owner: str) -> Callable[[Path], None]:
    """Return a function that writes the model of ``owner`` to a path.

    For a row's features ``x [F]`` the output is ``link^-1(intercept + coefficients . x)``. The link is ``logit`` for
    two classes, ``softmax`` for more (a list entry for each class), ``log`` for counts, ``identity`` for other numbers.
    The shift of a recalibrated model is included.
    """
    theta, shift = predictor.served.of(owner)
    fitted, model = predictor.preprocessing, predictor.model
    tensors = model.layout.split(theta.astype(np.float64))
    weight, bias = tensors["weight"], tensors["bias"]
    if shift is not None:
        weight, bias = shift.slope * weight, shift.intercept + shift.slope * bias
    link = "softmax" if len(fitted.classes) > 2 else "logit" if fitted.classes else getattr(model, "link", "identity")
    one = len(bias) == 1
    tree = {
        "format": FORMAT,
        "link": link,
        "classes": list(fitted.classes),
        "intercept": bias[0] if one else bias.tolist(),
        "coefficients": {
            name: (of[0] if one else of.tolist()) for name, of in zip(fitted.features, weight.T, strict=True)
        },
    }
    return lambda path: write_json(path, tree)
