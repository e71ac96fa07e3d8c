"""The losses of a row; local training minimises their mean over a batch.

For a row with label ``y`` and the model's output ``z``:

- ``log_loss``: ``-log softmax(z)[y]``; the only loss for classes;
- ``squared``: ``(z - y)^2 / 2``, for a real-valued label;
- ``absolute``: ``|z - y|``, for a real-valued label, with the subgradient ``sign(z - y)``, which is 0 if ``z = y``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError, nearest

LOG_LOSS = "log_loss"
REGRESSION = ("squared", "absolute")

RATE, RATE_OF_SQUARES = 0.1, 0.005
"""Default learning rates: ``RATE_OF_SQUARES`` for the squared loss, whose gradient is unbounded, and ``RATE`` for all
other losses."""


def row_losses(loss: str, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ``loss`` of each row ``[n]``, in float64.

    ``outputs`` are predictions ``[n]`` of a real-valued label, log-odds ``[n]`` of class 1, or logits ``[n, C]``.
    """
    z = outputs.astype(np.float64)
    losses: NDArray[np.float64]
    if loss == "squared":
        losses = 0.5 * np.square(z - y)
    elif loss == "absolute":
        losses = np.abs(z - y)
    elif z.ndim == 1:
        with np.errstate(invalid="ignore"):  # a model that has diverged
            # logaddexp(0, z) - y z, but many rows at a time
            losses = np.exp(-np.abs(z))
            np.log1p(losses, losses)
            losses += np.maximum(z, 0.0)
            losses -= y * z
    else:
        with np.errstate(invalid="ignore"):
            losses = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    return losses


def residual(loss: str, z: NDArray[Any], y: NDArray[Any]) -> None:
    """Replace predictions ``z [b]`` in place by the derivatives of their rows' losses.

    ``loss`` is a loss for real-valued labels.
    """
    np.subtract(z, y, z)
    if loss == "absolute":
        np.sign(z, z)


def default_rate(loss: str | None, *, real_label: bool) -> float:
    """Return the learning rate that is used if the configuration sets none."""
    return RATE_OF_SQUARES if real_label and loss in (None, "squared") else RATE


def choose(loss: str | None, n_classes: int) -> str:
    """Return the name of the loss for a label with ``n_classes`` classes (0: a real-valued label).

    If ``loss`` is None, the result is the log loss for classes, and the squared loss for a real-valued label. Raises
    ``ConfigError`` for a loss that does not fit the label.
    """
    if n_classes:
        if loss not in (None, LOG_LOSS):
            raise ConfigError(
                f"model.loss: '{loss}' is for a real-valued label, but this label has classes; remove the key"
            )
        return LOG_LOSS
    if loss is None:
        return REGRESSION[0]
    if loss not in REGRESSION:
        raise ConfigError(f"model.loss: {loss!r} is no loss of a real-valued label; {nearest(str(loss), REGRESSION)}")
    return loss
