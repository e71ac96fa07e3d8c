"""A hospital's local update: LocalSGD of a module by autograd.

For the contrastive term of MOON, the representation of a row is the input of the module's last ``nn.Linear``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from raysim.training.base import Layout, Optimizer, Task, Vector
from raysim.training.kernels.contrast import SMALLEST
from raysim.training.kernels.descent import combined_proximal, rows_per_batch
from raysim.training.kernels.modules.batch_norms import running
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.losses import TORCH_LOSSES
from raysim.training.kernels.modules.optimizers import make_solver
from raysim.training.losses import LOG_LOSS


class Batch(NamedTuple):
    """The rows of one step's batch, their labels, and the factors of their losses."""

    X: Tensor
    """The rows, ``[b, F]``."""
    y: Tensor
    """The labels, ``[b]``."""
    shares: Tensor
    """The factor of each row's loss, ``[b]``: the row's weight divided by ``b``."""


class ProximalTerms:
    """The gradient of a task's proximal term, linear term and weight decay."""

    def __init__(self, task: Task, optimizer: Optimizer, parameters: Sequence[nn.Parameter], layout: Layout) -> None:
        like = parameters[0].detach()
        weight, anchor = combined_proximal(task, str(like.dtype).removeprefix("torch."))
        towards: list[Tensor | None] = [None] * len(parameters)
        if anchor is not None:
            towards = list(layout.split(torch.from_numpy(anchor).to(like.device)).values())[: len(parameters)]
        decays = (optimizer.weight_decay if layout.penalised(name) else 0.0 for name in layout.names)
        self._terms = [
            (parameter, weight + decay, place)
            for parameter, decay, place in zip(parameters, decays, towards, strict=False)
            if weight + decay or place is not None
        ]

    def add_gradient(self) -> None:
        """Add the gradient of these terms to the parameters' gradients."""
        for parameter, factor, towards in self._terms:
            term = factor * parameter.detach()
            if towards is not None:
                term = term - towards
            parameter.grad = term if parameter.grad is None else parameter.grad.add_(term)


def train(flat: FlatModule, task: Task, into: Vector, optimizer: Optimizer, loss: str, halves: bool) -> None:
    """Run LocalSGD of ``task`` with the module of ``flat``.

    ``into [P]`` has the initial parameters, and is overwritten by the result. ``halves``: whether matrix products are
    computed in bfloat16.
    """
    layout, on_cpu = flat.layout, flat.device.type == "cpu"
    theta = torch.from_numpy(into) if on_cpu else flat.send(task.start)
    contrast = _contrasting(flat, task)
    flat.become(layout.split(theta))  # parameters and buffers are now views of theta
    flat.module.train()
    proximal = ProximalTerms(task, optimizer, flat.parameters, layout)
    frozen = None if task.frozen is None else flat.send(np.flatnonzero(task.frozen), np.int64)
    values = None if frozen is None else theta[frozen]
    solver = make_solver(optimizer.name, flat.parameters, task.learning_rate)
    if task.moments is not None:
        solver.resume(layout, task.moments)
    with nullcontext() if contrast is None else contrast:
        for batch in _batches(flat, task, optimizer, loss):
            for parameter in flat.parameters:
                parameter.grad = None
            with (
                running(flat.normed) if len(batch.X) == 1 else nullcontext(),
                torch.autocast("cpu", torch.bfloat16) if halves else nullcontext(),
            ):
                outputs = flat.module(batch.X)
            # The objective, the sum of the terms times their factors, is not computed, only its gradient.
            terms, factors = [TORCH_LOSSES[loss](outputs.to(flat.torch_dtype), batch.y)], [batch.shares]
            if contrast is not None:
                terms.append(contrast.term(batch.X))
                factors.append(torch.ones_like(terms[1]))
            torch.autograd.backward(terms, factors)
            proximal.add_gradient()
            solver.step()
            if frozen is not None and values is not None:
                theta[frozen] = values
    if task.moments is not None:
        solver.leave(layout, task.moments)
    if not on_cpu:
        into[:] = theta.cpu().numpy()


def _batches(flat: FlatModule, task: Task, optimizer: Optimizer, loss: str) -> Iterator[Batch]:
    """Yield the batches of all epochs."""
    n = len(task.y)
    size = rows_per_batch(optimizer.batch_size, n)
    rows = flat.send(task.X)
    labels = flat.send(task.y, np.int64 if loss == LOG_LOSS else None)
    weights = flat.send(np.ones(n) if task.weights is None else task.weights)
    for epoch in range(task.epochs):
        X, y, factors, order = rows, labels, weights, None
        if size < n or flat.draws:
            rng = task.batches(epoch)
            if size < n:
                order = flat.send(rng.permutation(n), np.int64)
            if flat.draws:
                seed(flat.device.type, int(rng.integers(2**63 - 1)))
        if order is not None and flat.device.type == "cpu":  # on a GPU this would be a second copy of all rows
            X, y, factors, order = rows[order], labels[order], weights[order], None
        for low in range(0, n, size):
            part: slice | Tensor = slice(low, low + size) if order is None else order[low : low + size]
            yield Batch(X[part], y[part], factors[part] * (1.0 / min(size, n - low)))


def seed(kind: str, value: int) -> None:
    """Seed torch's random generator for the device type ``kind``; for ``cpu`` faster than ``torch.manual_seed``."""
    if kind == "cpu":
        torch.default_generator.manual_seed(value)
    else:
        torch.manual_seed(value)


def _contrasting(flat: FlatModule, task: Task) -> Contrasting | None:
    term = task.contrast
    if term is None:
        return None
    previous, received = (flat.views(vector) | flat.constant for vector in (term.previous, term.received))
    return Contrasting(flat.module, term.weight, term.temperature, previous, received)


class Contrasting:
    """MOON's contrastive term, for the rows of the module's latest forward pass.

    ``previous`` and ``received`` are the parameters and buffers of the hospital's previous model and of the received
    model. Forward passes must be made within this context, which records representations. Raises ``ValueError`` for a
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
        """Return the mean of the contrastive term over rows ``X [b, F]``, times its weight."""
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
