"""Class weights: the factor of a row's loss in training, by the row's class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError

ClassWeights = Literal["none", "balanced"] | tuple[float, ...]
"""Class weights: ``none`` (each row has weight 1), ``balanced`` (all classes have equal total weights in the
federation), or the weight of each class's rows."""

FIELD = "training.class_weights"


def check(weights: ClassWeights, classes: int) -> None:
    """Raise ``ConfigError`` for weights that do not fit a label with ``classes`` classes, or that are all 0.

    A real-valued label (``classes`` 0) allows only ``none``.
    """
    if weights == "none":
        return
    if not classes:
        raise ConfigError(f"{FIELD}: {_plain(weights)} is for classes, but this label is a number; set it to none")
    if isinstance(weights, tuple) and len(weights) != classes:
        raise ConfigError(
            f"{FIELD}: {_plain(weights)} has {len(weights)} weights, but this label has {classes} classes; "
            "give one for each"
        )
    if isinstance(weights, tuple) and not any(weights):
        raise ConfigError(
            f"{FIELD}: {_plain(weights)} gives every row the weight 0; give at least one class a weight above 0"
        )


def balanced(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the weight ``n / (k * n_c)`` of each of ``C`` classes, ``[C]``, as in scikit-learn.

    ``counts [C]`` has the number ``n_c`` of training rows of each class over all hospitals, ``n`` is their sum, and
    ``k`` the number of classes that have rows. A class without rows has the weight 1.
    """
    weights = np.ones(len(counts))
    filled = counts > 0
    weights[filled] = counts.sum() / (filled.sum() * counts[filled])
    return weights


def row_weights(weights: ClassWeights, y: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the factor of each row's loss ``[n]``, from the labels ``y [n]``; None means that all factors are 1.

    Raises ``ValueError`` if ``weights`` is ``balanced``; the server must first compute these weights.
    """
    if weights == "none":
        return None
    if weights == "balanced":
        raise ValueError(
            f"{FIELD}: 'balanced' is not a list of weights; replace it by computed weights before training"
        )
    each: NDArray[np.float64] = np.asarray(weights)[y]
    return each


def _plain(weights: ClassWeights) -> Sequence[float] | str:
    return list(weights) if isinstance(weights, tuple) else weights
