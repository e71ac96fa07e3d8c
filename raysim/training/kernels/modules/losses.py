"""The losses of ``raysim.training.losses`` for autograd; each function returns the loss of each row, ``[b]``.

The arguments are a module's outputs for ``b`` rows, ``[b, C]``, and the rows' labels, ``[b]``. For a real-valued label
``C`` is 1.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

RowLosses = Callable[[Tensor, Tensor], Tensor]


def log_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the log loss of each row, ``-log softmax(outputs)[y]``, ``[b]``."""
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def squared(outputs: Tensor, y: Tensor) -> Tensor:
    """Return half the squared error of each row, ``(z - y)^2 / 2``, ``[b]``; ``z`` is the row's output."""
    return 0.5 * (outputs.squeeze(-1) - y).square()


def absolute(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the absolute error of each row, ``|z - y|``, ``[b]``; ``z`` is the row's output."""
    return (outputs.squeeze(-1) - y).abs()


TORCH_LOSSES: dict[str, RowLosses] = {"log_loss": log_loss, "squared": squared, "absolute": absolute}
