"""torch's fused optimisers for the autograd loop, with a state that can be restored and stored.

The optimisers are called as functions, because the checks in the classes of ``torch.optim`` take as long as the step of
a small network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from raysim.training.base import Layout, Moments
from raysim.training.kernels.descent import BETA1, BETA2, EPSILON, MOMENTUM


class Solver(Protocol):
    """An optimiser of a module's parameters. A step changes only the parameters that have a gradient."""

    def step(self) -> None:
        """Make one step with the parameters' gradients."""

    def resume(self, layout: Layout, moments: Moments) -> None:
        """Continue from the state ``moments``; to be called before the first step."""

    def leave(self, layout: Layout, moments: Moments) -> None:
        """Store the optimiser's state in ``moments``; plain SGD has none.

        Buffers, and parameters that never had a gradient, get zeros.
        """


def make_solver(name: str, parameters: Sequence[nn.Parameter], rate: float) -> Solver:
    """Return the optimiser called ``name`` with a fresh state."""
    if name == "adam":
        return Adam(parameters, rate)
    return Sgd(parameters, rate, MOMENTUM if name == "momentum" else 0.0)


class Sgd:
    """The optimiser SGD, with the update of ``torch.optim.SGD`` and the coefficient ``momentum``; 0 means plain SGD."""

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float, momentum: float) -> None:
        self._parameters, self._rate, self._momentum = parameters, rate, momentum
        self._first: list[Tensor | None] = [None] * len(parameters)

    def step(self) -> None:
        """See :class:`Solver`."""
        # Moments are created with the first gradient, in a separate step for parameters without moments.
        begun = [k for k, moment in enumerate(self._first) if moment is not None]
        fresh = [k for k, moment in enumerate(self._first) if moment is None]
        for members in (begun, fresh):
            places = [k for k in members if self._parameters[k].grad is not None]
            if not places:
                continue
            moments = [self._first[k] for k in places]
            with torch.no_grad():
                sgd(
                    [self._parameters[k] for k in places],
                    _gradients(self._parameters, places),
                    moments,
                    fused=True,
                    weight_decay=0.0,
                    momentum=self._momentum,
                    lr=self._rate,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                )
            for k, moment in zip(places, moments, strict=True):
                self._first[k] = moment

    def resume(self, layout: Layout, moments: Moments) -> None:
        """See :class:`Solver`."""
        if moments.first is not None:
            self._first = [*_split(moments.first, self._parameters, layout)]

    def leave(self, layout: Layout, moments: Moments) -> None:
        """See :class:`Solver`."""
        if any(moment is not None for moment in self._first):
            moments.first, moments.second, moments.steps = _joined(self._first, self._parameters, layout), None, 0


class Adam:
    """The optimiser Adam, with the update of ``torch.optim.Adam``."""

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        self._parameters, self._rate = parameters, rate
        self._first, self._second = ([torch.zeros_like(p.detach()) for p in parameters] for _ in range(2))
        self._steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in parameters]

    def step(self) -> None:
        """See :class:`Solver`."""
        places = [k for k, parameter in enumerate(self._parameters) if parameter.grad is not None]
        with torch.no_grad():
            adam(
                [self._parameters[k] for k in places],
                _gradients(self._parameters, places),
                [self._first[k] for k in places],
                [self._second[k] for k in places],
                [],
                [self._steps[k] for k in places],
                fused=True,
                amsgrad=False,
                beta1=BETA1,
                beta2=BETA2,
                lr=self._rate,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )

    def resume(self, layout: Layout, moments: Moments) -> None:
        """See :class:`Solver`."""
        if moments.first is not None:
            self._first = _split(moments.first, self._parameters, layout)
        if moments.second is not None:
            self._second = _split(moments.second, self._parameters, layout)
        for steps in self._steps:
            steps.fill_(float(moments.steps))

    def leave(self, layout: Layout, moments: Moments) -> None:
        """See :class:`Solver`."""
        moments.first = _joined(self._first, self._parameters, layout)
        moments.second = _joined(self._second, self._parameters, layout)
        moments.steps = max((int(steps) for steps in self._steps), default=0)


def _gradients(parameters: Sequence[nn.Parameter], places: Sequence[int]) -> list[Tensor]:
    gradients = (parameters[k].grad for k in places)
    return [gradient for gradient in gradients if gradient is not None]


def _split(vector: NDArray[np.floating], parameters: Sequence[nn.Parameter], layout: Layout) -> list[Tensor]:
    views = layout.split(vector).values()
    return [torch.from_numpy(view.copy()).to(p.detach()) for p, view in zip(parameters, views, strict=False)]


def _joined(
    tensors: Sequence[Tensor | None], parameters: Sequence[nn.Parameter], layout: Layout
) -> NDArray[np.floating]:
    """Concatenate the parameters' tensors to a vector ``[P]``, with zeros for missing tensors and for buffers."""
    vector = np.zeros(layout.size, parameters[0].detach().cpu().numpy().dtype)
    for tensor, view in zip(tensors, layout.split(vector).values(), strict=False):
        if tensor is not None:
            view[...] = tensor.cpu().numpy()
    return vector
