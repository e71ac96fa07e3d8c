"""Derivatives by hand, which have no derivatives themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Results = TypeVar("Results")


def differentiable_once(backward: Callable[..., Results]) -> Callable[..., Results]:
    """``backward`` of a ``torch.autograd.Function``, which raises ``RuntimeError`` if its results are to be derived.

    torch's ``once_differentiable`` takes them for constants, and says nothing, where the gradients that it is given are
    constants, as those of a sum, and in ``torch.autograd.grad``.
    """

    @wraps(backward)
    def once(ctx: Any, *gradients: Tensor) -> Results:
        if torch.is_grad_enabled():
            raise RuntimeError("create_graph: this derivative is written by hand and has none itself")
        return backward(ctx, *gradients)

    return once
