"""Local training of any ``torch.nn.Module``: a plain autograd loop on a CPU, ``vmap`` over hospitals on a GPU.

The loop is also what the hand-written kernels are compared with, so it uses autograd and
``torch.optim`` as anyone would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from raysim.errors import ConfigError
from raysim.training.base import Layout, Model, Optimizer, Task, Vector
from raysim.training.descent import MOMENTUM, combined_pull, rows_per_batch


def bind_module(
    cls: type[nn.Module],
    n_features: int,
    n_classes: int,
    *,
    options: dict[str, Any],
    init: str,
    device: str,
    precision: str,
) -> Model:
    """``cls(n_features, n_classes, **options)`` as a model: ``C`` outputs (two for two classes), cross-entropy.

    Raises ``ConfigError`` where the module cannot be constructed, gives outputs of another shape, or holds what a
    hospital's result must not depend on: buffers (batch statistics) and dropout's own random numbers.
    """
    host = ModuleModel(cls, n_features, n_classes, options, init, device, precision)
    if device == "cpu":
        return host
    from raysim.training.batched import Cohort

    return Cohort(host, Vmapped(host.module, host.layout), device=device, precision=precision)


class ModuleModel:
    """A module's parameters as one vector, in the order of ``named_parameters``."""

    def __init__(
        self,
        cls: type[nn.Module],
        n_features: int,
        n_classes: int,
        options: dict[str, Any],
        init: str,
        device: str,
        precision: str,
    ) -> None:
        self._make: Callable[[], nn.Module] = lambda: cls(n_features, n_classes, **options)
        self._init, self._device = init, torch.device(device)
        self._dtype, self._torch_dtype = np.dtype(precision), getattr(torch, precision)
        try:
            self.module = self._seeded(0).to(self._device, self._torch_dtype)
        except TypeError as error:
            raise ConfigError(f"model.options: {options!r} does not construct {cls.__qualname__}: {error}") from error
        check(self.module, cls.__qualname__, n_features, n_classes)
        named = dict(self.module.named_parameters())
        self.layout = Layout(tuple(named), tuple(tuple(p.shape) for p in named.values()))

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """The module's own initialisation under a torch seed drawn from ``rng``, or zeros; ``[P]``."""
        if self._init == "zeros":
            return np.zeros(self.layout.size)
        fresh = self._seeded(int(rng.integers(2**63 - 1)))
        return torch.cat([p.detach().double().reshape(-1) for p in fresh.parameters()]).numpy()

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """``[n]`` margins ``z_1 - z_0`` for two classes, else ``[n, C]`` logits."""
        with torch.no_grad():
            named = self.layout.split(self._send(theta))
            z = functional_call(self.module, named, (self._send(X),))
            out: NDArray[Any] = (z[:, 1] - z[:, 0] if z.shape[1] == 2 else z).cpu().numpy()
            return out

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """LocalSGD for each task in turn, ``[len(tasks), P]``."""
        thetas = np.empty((len(tasks), self.layout.size), self._dtype)
        for task, theta in zip(tasks, thetas, strict=True):
            theta[:] = task.start
            if len(task.y) and task.epochs:
                self._descend(task, optimizer, theta)
        return thetas

    def _descend(self, task: Task, optimizer: Optimizer, theta: Vector) -> None:
        """LocalSGD on ``theta [P]``, in place: the module's parameters are views of it for the while."""
        parameters = list(self.module.parameters())
        for parameter, view in zip(parameters, self.layout.split(theta).values(), strict=True):
            parameter.data = torch.from_numpy(view)
        weight, anchor = combined_pull(task, self._dtype)
        anchors = [] if anchor is None else [torch.from_numpy(a) for a in self.layout.split(anchor).values()]
        solver = make_solver(optimizer.name, parameters, task.learning_rate)
        n = len(task.y)
        size = rows_per_batch(optimizer.batch_size, n)
        for epoch in range(task.epochs):
            order = np.arange(n) if size == n else task.batches(epoch).permutation(n)
            X, y = self._send(task.X[order]), torch.from_numpy(task.y[order])
            for low in range(0, n, size):
                solver.zero_grad()
                loss = nn.functional.cross_entropy(self.module(X[low : low + size]), y[low : low + size])
                torch.autograd.backward(loss)
                for parameter, towards in zip(parameters, anchors, strict=False):
                    pull = weight * parameter.detach() - towards
                    parameter.grad = pull if parameter.grad is None else parameter.grad + pull
                solver.step()

    def _seeded(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._make()

    def _send(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array, self._dtype)).to(self._device)


class Vmapped:
    """A module's gradient for many hospitals at once (``raysim.training.batched.Gradient``)."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        def loss(theta: Tensor, X: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            z = functional_call(module, layout.split(theta), (X,))
            return (nn.functional.cross_entropy(z, y, reduction="none") * weight).sum()

        self._gradient: Callable[..., Tensor] = vmap(grad(loss))

    def accumulate(self, theta: Tensor, X: Tensor, y: Tensor, weight: Tensor, into: Tensor) -> None:
        """See ``raysim.training.batched.Gradient``."""
        into += self._gradient(theta, X, y, weight)


def make_solver(name: str, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """torch's own optimiser of that name, with its state fresh."""
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM if name == "momentum" else 0.0)


def check(module: nn.Module, name: str, n_features: int, n_classes: int) -> None:
    """Raise ``ConfigError`` for a module whose local training could not be reproduced or would not fit the task."""
    if next(module.buffers(), None) is not None:
        kept = next(iter(dict(module.named_buffers())))
        raise ConfigError(f"model: {name} keeps the buffer {kept!r} beside its parameters; use a layer without one")
    if any(isinstance(part, nn.modules.dropout._DropoutNd) for part in module.modules()):
        raise ConfigError(f"model: {name} draws random numbers in its dropout layers; leave dropout out")
    if next(module.parameters(), None) is None:
        raise ConfigError(f"model: {name} has no parameters to train")
    like = next(module.parameters())
    with torch.no_grad():
        shape = tuple(module(torch.zeros(3, n_features, dtype=like.dtype, device=like.device)).shape)
    if shape != (3, n_classes):
        raise ConfigError(f"model: {name} turns 3 rows into outputs of shape {shape}, not (3, {n_classes})")
