"""Local training of any ``torch.nn.Module``: an autograd loop on a CPU, ``vmap`` over hospitals on a GPU.

The loop is also what the hand-written kernels are compared with, so it uses autograd and ``torch.optim`` as anyone
would; only the optimisers are torch's fused ones.

Batch statistics and dropout depend on more than a row and its parameters, so there the following holds.

- Buffers of real numbers (a batch norm's running means and variances) follow the parameters in the vector. They start
  from the model that a hospital receives, belong to it while it trains, and are averaged as parameters are; no
  gradient, pull or optimiser touches them. Other buffers (a batch norm's count of batches, constants) are not sent:
  every visit begins with those that the module was made with.
- A batch of a single row has no variance: there batch norm uses its running statistics, and leaves them as they are.
- Random numbers (dropout's masks) come from the stream of the hospital's epoch, after the permutation, and so depend
  on seed, round, hospital, epoch and batch alone. Evaluation draws none.
- On a GPU too, such modules are trained one hospital after another: padded rows would count in batch statistics, and
  masks drawn for a whole cohort would depend on who is in it.

A module whose features are all numbers of entries of one of its parameters may name that parameter as its attribute
``lookup``; see ``raysim.training.kernels.modules.lookup``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raysim.training.base import Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.clipped import Patients
from raysim.training.kernels.descent import rows_per_batch
from raysim.training.kernels.modules.batch_norms import running
from raysim.training.kernels.modules.by_row import RowGradients, descend
from raysim.training.kernels.modules.checks import check_autocast
from raysim.training.kernels.modules.contrast import Contrasting
from raysim.training.kernels.modules.exported import Margins, margins
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.lookup import condense
from raysim.training.kernels.modules.losses import TORCH_LOSSES
from raysim.training.kernels.modules.optimizers import make_solver
from raysim.training.kernels.modules.pulls import Pulls
from raysim.training.kernels.modules.vmapped import Vmapped
from raysim.training.losses import LOG_LOSS, choose, row_losses
from raysim.training.networks.dense import by_numpy

EVALUATED = 1024
"""Rows that are evaluated at once: a network's activations may take a hundred times as much memory as its rows."""


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
    """``cls(n_features, n_outputs, **options)`` as a model: ``C`` outputs (two for two classes) and the log loss.

    For a real label (``n_classes`` 0) it has one output. The options ``loss`` (see ``losses.choose``) and ``autocast``
    (see :class:`ModuleModel`) are the engine's.
    Raises ``ConfigError`` where the module cannot be constructed, or gives outputs of another shape.
    """
    options = dict(options)
    loss = choose(options.pop("loss", None), n_classes)
    autocast = options.pop("autocast", None)
    check_autocast(autocast, device, precision)
    flat = FlatModule(cls, n_features, n_classes or 1, options, init, device, precision)
    host = ModuleModel(flat, loss, halves=autocast is not None)
    if device == "cpu" or not host.batches:
        return host
    from raysim.training.kernels.batched import Cohort

    return Cohort(host, Vmapped(host.module, host.layout, loss), device=device, precision=precision)


class ModuleModel:
    """The loss of the module of ``flat``, minimised over its parameters by autograd.

    ``loss``: one of ``raysim.training.losses``.
    ``batches``: whether hospitals may train at once, for it has no buffers, draws no random numbers, looks up no table.
    ``halves``: whether the products of a visit's steps are taken in bfloat16, as ``torch.autocast`` chooses them.
    Parameters, losses and the optimiser keep the precision; evaluation and private steps know nothing of it.
    """

    def __init__(self, flat: FlatModule, loss: str = LOG_LOSS, halves: bool = False) -> None:
        self._flat, self._loss, self._halves = flat, loss, halves
        self.layout, self.module = self._flat.layout, self._flat.module
        self._on_cpu = flat.device.type == "cpu"
        self._gpus = [] if self._on_cpu else [flat.device]
        self.batches = not (self.layout.buffers or self._flat.constant or self._flat.draws or self._flat.lookup)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """See :meth:`FlatModule.initial`; ``[P]``."""
        return self._flat.initial(rng)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """``[n]`` margins ``z_1 - z_0`` for two classes or predictions of a real label, else ``[n, C]`` logits."""
        with torch.no_grad():
            self._flat.become(self._flat.views(theta))
            self.module.eval()
            with by_numpy(self.module, self._on_cpu):
                outputs = [self.module(part) for part in torch.split(self._flat.send(X), EVALUATED)]
            z = margins(torch.cat(outputs), self._loss)
            out: NDArray[Any] = z.cpu().numpy()
            return out

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        return Margins(self._flat.copy(theta), self._loss).eval()

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """The loss of each row ``[n]``."""
        return row_losses(self._loss, outputs, y)

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """LocalSGD for each task in turn, ``[len(tasks), P]``."""
        thetas = np.empty((len(tasks), self.layout.size), self._flat.dtype)
        for task, theta in zip(tasks, thetas, strict=True):
            theta[:] = task.start
            if not task.works:
                continue
            if task.private is not None:
                with np.errstate(all="ignore"):
                    descend(self, self.layout, task, optimizer, theta)
            else:
                small = condense(task, self.layout, self._flat.lookup, optimizer) if self._flat.lookup else None
                if small is None:
                    theta[:] = self._visit(task, optimizer, self.layout)
                else:
                    theta[small.index] = self._visit(small.task, optimizer, small.layout)
        return thetas

    @property
    def unclippable(self) -> str | None:
        """See :class:`raysim.training.kernels.clipped.Clippable`."""
        if self._flat.normed:
            return "normalises by the rows of a batch"
        if self.layout.buffers:
            return "measures rows as it trains"
        return "draws random numbers when it trains" if self._flat.draws else None

    def clipped_sum(
        self,
        theta: Vector,
        X: NDArray[Any],
        y: NDArray[Any],
        weights: NDArray[Any] | None,
        patient: Patients,
        clip: float,
    ) -> Vector:
        """See :class:`raysim.training.kernels.clipped.Clippable`. Computed in the run's precision."""
        self.module.train()
        labels = self._flat.indices(y) if self._loss == LOG_LOSS else self._flat.send(y)
        counts = self._flat.send(np.ones(len(y)) if weights is None else weights)
        total = RowGradients(self.module, self.layout, self._flat.constant, self._loss).clipped_sum(
            self._flat.send(theta), self._flat.send(X), labels, counts, patient, clip
        )
        return total.astype(theta.dtype)

    def _visit(self, task: Task, optimizer: Optimizer, layout: Layout) -> NDArray[Any]:
        """LocalSGD, ``[P]`` in the terms of ``layout``."""
        theta = self._flat.send(task.start)
        with (
            torch.random.fork_rng(devices=self._gpus, enabled=self._flat.draws),
            self._contrasting(task) or nullcontext() as contrast,
            by_numpy(self.module, self._on_cpu),
        ):
            self._descend(task, optimizer, layout, theta, contrast)
        result: NDArray[Any] = theta.cpu().numpy()
        return result

    def _contrasting(self, task: Task) -> Contrasting | None:
        term = task.contrast
        if term is None:
            return None
        previous, received = (
            self._flat.views(vector) | self._flat.constant for vector in (term.previous, term.received)
        )
        return Contrasting(self.module, term.weight, term.temperature, previous, received)

    def _descend(
        self, task: Task, optimizer: Optimizer, layout: Layout, theta: Tensor, contrast: Contrasting | None
    ) -> None:
        """LocalSGD on ``theta [P]``, in place: the module's parameters and buffers are views of it for the while."""
        self._flat.become(layout.split(theta))
        self.module.train()
        parameters = self._flat.parameters
        pulls = Pulls(task, optimizer, parameters, layout)
        held = None if task.frozen is None else self._flat.indices(np.flatnonzero(task.frozen))
        kept = None if held is None else theta[held]
        solver = make_solver(optimizer.name, parameters, task.learning_rate)
        if task.moments is not None:
            solver.resume(layout, task.moments)
        row_loss, n = TORCH_LOSSES[self._loss], len(task.y)
        size = rows_per_batch(optimizer.batch_size, n)
        for epoch in range(task.epochs):
            X, y, weights = self._ordered(task, epoch, size)
            for low in range(0, n, size):
                for parameter in parameters:
                    parameter.grad = None
                with (
                    running(self._flat.normed) if min(size, n - low) == 1 else nullcontext(),
                    torch.autocast("cpu", torch.bfloat16) if self._halves else nullcontext(),
                ):
                    outputs = self.module(X[low : low + size])
                losses = row_loss(outputs.to(self._flat.torch_dtype), y[low : low + size])
                loss = (losses if weights is None else losses * weights[low : low + size]).mean()
                if contrast is not None:
                    loss = loss + contrast.term(X[low : low + size])
                torch.autograd.backward(loss)
                pulls.add_gradient()
                solver.step()
                if held is not None and kept is not None:
                    theta[held] = kept
        if task.moments is not None:
            solver.leave(layout, task.moments)

    def _ordered(self, task: Task, epoch: int, size: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """The task's rows, labels and rows' weights in the order of an epoch; seeds what the epoch draws.

        Its batches have ``size`` rows.
        """
        X, y, weights = task.X, task.y, task.weights
        if size < len(y) or self._flat.draws:
            rng = task.batches(epoch)
            if size < len(y):
                order = rng.permutation(len(y))
                X, y, weights = X[order], y[order], None if weights is None else weights[order]
            if self._flat.draws:
                self._seed(int(rng.integers(2**63 - 1)))
        labels = self._flat.indices(y) if self._loss == LOG_LOSS else self._flat.send(y)
        return self._flat.send(X), labels, None if weights is None else self._flat.send(weights)

    def _seed(self, seed: int) -> None:
        """Seed what the module draws from. ``torch.manual_seed`` takes 2 ms where there is no GPU."""
        seeded = torch.default_generator.manual_seed if self._on_cpu else torch.manual_seed
        seeded(seed)
