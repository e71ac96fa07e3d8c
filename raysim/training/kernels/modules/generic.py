"""Local training of any ``torch.nn.Module``: an autograd loop on a CPU, ``vmap`` over hospitals on a GPU.

The loop is also the reference for the hand-written kernels.

Rules for buffers and random numbers:

- Persistent floating-point buffers (a batch norm's running means and variances) come after the parameters in the
  vector, and are averaged over hospitals like parameters. No gradient, proximal term or local optimiser changes them.
  Other buffers are not sent, and have their initial values at the beginning of every local update.
- For a batch of a single row, batch norm uses its running statistics and leaves them unchanged.
- Random numbers (dropout's masks) depend only on seed, round, hospital, epoch and batch. Evaluation draws none.
- Modules with buffers or random numbers are trained one hospital after another even on a GPU. Otherwise padded rows
  would count in batch statistics, and masks would depend on the cohort.

If the features of a module are indices into one of its parameters, such as an embedding, the module's attribute
``lookup`` may name this parameter. Each step of DP-SGD then checks the indices of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from raysim.training.base import Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.clipped import Patients
from raysim.training.kernels.modules.by_row import RowGradients, descend
from raysim.training.kernels.modules.checks import check_autocast, check_entries
from raysim.training.kernels.modules.exported import Margins, margins
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.local_sgd import train
from raysim.training.kernels.modules.losses import TORCH_LOSSES
from raysim.training.losses import LOG_LOSS, choose, row_losses

EVALUATED = 1024
"""The largest number of rows that are evaluated at once, to limit the memory for activations."""

ALIGNED = 16
"""In memory, parameter vectors start at multiples of this number of scalars."""


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
    """Return the module ``cls(n_features, n_outputs, **options)`` as a :class:`raysim.training.base.Model`.

    It has one output per class, or one for a real-valued label (``n_classes`` 0). The options ``loss`` and ``autocast``
    are not passed to ``cls``. Raises ``ConfigError`` if one of these two options is unusable, and the errors of
    :class:`FlatModule`.
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


class Vmapped:
    """A module's gradient for many hospitals at once; see ``raysim.training.kernels.batched.Gradient``."""

    def __init__(self, module: nn.Module, layout: Layout, loss: str = LOG_LOSS) -> None:
        row_loss = TORCH_LOSSES[loss]

        def total(theta: Tensor, X: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            z = functional_call(module, layout.split(theta), (X,))
            return (row_loss(z, y) * weight).sum()

        self._gradient: Callable[..., Tensor] = vmap(grad(total))

    def accumulate(self, theta: Tensor, X: Tensor, y: Tensor, weight: Tensor, into: Tensor) -> None:
        """See ``raysim.training.kernels.batched.Gradient``."""
        into += self._gradient(theta, X, y, weight)


class ModuleModel:
    """A torch module (in ``flat``) as a :class:`raysim.training.base.Model`, trained by autograd.

    - ``loss``: the name of a loss in ``raysim.training.losses``.
    - ``batches``: whether a GPU trains several hospitals at once. The module must then have no buffers, random numbers
      or ``lookup``.
    - ``halves``: whether local updates without DP-SGD use bfloat16 for matrix products, as ``torch.autocast`` does.
    """

    def __init__(self, flat: FlatModule, loss: str = LOG_LOSS, halves: bool = False) -> None:
        self._flat, self._loss, self._halves = flat, loss, halves
        self.layout, self.module = self._flat.layout, self._flat.module
        self.batches = not (self.layout.buffers or self._flat.constant or self._flat.draws or self._flat.lookup)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the initial vector ``[P]``; see :meth:`FlatModule.initial`."""
        return self._flat.initial(rng)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the model's outputs for rows ``X [n, F]``; see :meth:`raysim.training.base.Model.logits`."""
        with torch.no_grad():
            self._flat.become(self._flat.views(theta))
            self.module.eval()
            rows = self._flat.send(X)
            outputs = [self.module(part) for part in torch.split(rows, EVALUATED)]
            z = margins(torch.cat(outputs), self._loss)
            out: NDArray[Any] = z.cpu().numpy()
            return out

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        return Margins(self._flat.copy(theta), self._loss).eval()

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of each row ``[n]``."""
        return row_losses(self._loss, outputs, y)

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Run LocalSGD for each task, and return the trained vectors, ``[len(tasks), P]``."""
        # Every row is aligned like separately allocated memory: the last bits of products may depend on
        # alignment.
        thetas = np.empty((len(tasks), -(-self.layout.size // ALIGNED) * ALIGNED), self._flat.dtype)
        thetas = thetas[:, : self.layout.size]
        flat = self._flat
        gpus = [] if flat.device.type == "cpu" else [flat.device]
        kind = gpus[0].type if gpus else "cuda"
        with np.errstate(all="ignore"), torch.random.fork_rng(devices=gpus, enabled=flat.draws, device_type=kind):
            for task, theta in zip(tasks, thetas, strict=True):
                theta[:] = task.start
                if task.works and task.private is not None:
                    descend(self, self.layout, task, optimizer, theta)
                elif task.works:
                    train(flat, task, theta, optimizer, self._loss, self._halves)
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
        """See :class:`raysim.training.kernels.clipped.Clippable`. Gradients are computed in the run's precision."""
        if self._flat.lookup is not None:
            check_entries(X, self.layout.shapes[self.layout.names.index(self._flat.lookup)][0])
        self.module.train()
        labels = self._flat.send(y, np.int64 if self._loss == LOG_LOSS else None)
        counts = self._flat.send(np.ones(len(y)) if weights is None else weights)
        total = RowGradients(self.module, self.layout, self._flat.constant, self._loss).clipped_sum(
            self._flat.send(theta), self._flat.send(X), labels, counts, patient, clip
        )
        return total.astype(theta.dtype)
