"""The losses of ``raysim.training.losses`` for autograd, for each row ``[b]``.

Outputs are ``[b, C]``, labels ``[b]``; a real label has one output, ``C = 1``.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

RowLosses = Callable[[Tensor, Tensor], Tensor]


def log_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Return ``-log softmax(outputs)[y]``."""
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def squared(outputs: Tensor, y: Tensor) -> Tensor:
    """Return ``(z - y)^2 / 2``."""
    return 0.5 * (outputs.squeeze(-1) - y).square()


def absolute(outputs: Tensor, y: Tensor) -> Tensor:
    """Return ``|z - y|``. Its derivative at 0 is 0, as in autograd."""
    return (outputs.squeeze(-1) - y).abs()


TORCH_LOSSES: dict[str, RowLosses] = {"log_loss": log_loss, "squared": squared, "absolute": absolute}
