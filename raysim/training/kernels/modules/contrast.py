"""The contrastive term of MOON (:attr:`raysim.strategies.base.Objective.contrast`) for any torch module, by autograd.

The representation of a row is the input of the module's last ``nn.Linear``, in the order of the module's parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from raysim.training.kernels.contrast import SMALLEST


class Contrasting:
    """The term of the module's latest forward pass, compared with two frozen copies of its parameters and buffers.

    It is used as a context, in which the representations of each forward pass are recorded. Raises ``ValueError`` for a
    module without a linear layer.
    """

    def __init__(
        self,
        module: nn.Module,
        weight: float,
        temperature: float,
        previous: Mapping[str, Tensor],
        received: Mapping[str, Tensor],
    ) -> None:
        linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
        if not linear:
            raise ValueError("a contrastive term needs a module with a linear layer, whose input is compared")
        self._module, self._last = module, linear[-1]
        self._weight, self._temperature = weight, temperature
        self._previous, self._received = dict(previous), dict(received)
        self._noted: Tensor

    def __enter__(self) -> Contrasting:
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._noted = inputs[0]

        self._hook = self._last.register_forward_pre_hook(note)
        return self

    def __exit__(self, *_: Any) -> None:
        self._hook.remove()

    def term(self, X: Tensor) -> Tensor:
        """Return the weighted mean of the term over rows ``X [b, F]``, on which the module has just been called."""
        z = self._noted
        with torch.no_grad():
            self._module.eval()
            functional_call(self._module, self._previous, (X,))
            v = _unit(self._noted)
            functional_call(self._module, self._received, (X,))
            v = v - _unit(self._noted)
            self._module.train()
        difference = (_unit(z) * v).sum(1)
        return self._weight * nn.functional.softplus(difference / self._temperature).mean()


def _unit(rows: Tensor) -> Tensor:
    flat = rows.flatten(1)
    units: Tensor = flat / flat.norm(dim=1, keepdim=True).clamp_min(SMALLEST)
    return units
