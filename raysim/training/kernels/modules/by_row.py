"""Clipped sums of gradients of any module, computed from the gradient of each row: correct for all layers, but slow.

For a convolution, an embedding table or shared weights, a row's gradient is not an outer product of two vectors, and
must be computed as a whole, by ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from raysim.training.base import Layout, Optimizer, Task, Vector
from raysim.training.kernels.batches import of_private
from raysim.training.kernels.clipped import Clippable, Patients, factors, numbered
from raysim.training.kernels.descent import begin, end, noise_of
from raysim.training.kernels.modules.losses import TORCH_LOSSES

CELLS = 2**24
"""The largest number of scalars in the row gradients that are in memory at once. A single patient's rows may exceed
this number."""


class RowGradients:
    """Computes the gradient of a module's loss for each row separately.

    ``layout`` splits a vector ``[P]`` into the module's parameters, and ``constant`` are the module's buffers.
    """

    def __init__(self, module: nn.Module, layout: Layout, constant: Mapping[str, Tensor], loss: str) -> None:
        row_loss = TORCH_LOSSES[loss]

        def one(theta: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            z = functional_call(module, layout.split(theta) | dict(constant), (x.unsqueeze(0),))
            return row_loss(z, y.unsqueeze(0)).sum() * weight

        self._gradients: Callable[..., Tensor] = vmap(grad(one), in_dims=(None, 0, 0, 0))

    def clipped_sum(
        self, theta: Tensor, X: Tensor, y: Tensor, weights: Tensor, patient: Patients, clip: float
    ) -> NDArray[np.float64]:
        """Return the sum of patients' clipped gradients; see :class:`raysim.training.kernels.clipped.Clippable`.

        All rows of a patient must be in the same call.
        """
        each = np.arange(len(X)) if patient is None else patient
        total = np.zeros(len(theta))
        for low, high in chunks(each, max(1, CELLS // len(theta))):
            part = slice(low, high)
            rows = self._gradients(theta, X[part], y[part], weights[part]).double()
            units = torch.from_numpy(numbered(each[part])).to(rows.device)
            by_unit = rows.new_zeros(int(units[-1]) + 1, len(theta)).index_add_(0, units, rows)
            shorter = factors(by_unit.norm(dim=1).cpu().numpy(), clip, np.dtype(np.float64))
            scale = torch.from_numpy(shorter).to(rows.device)
            by_unit[scale == 0] = 0.0
            total += (scale @ by_unit).cpu().numpy()
        return total


def chunks(patient: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Divide rows into parts, with all rows of a patient in one part; return each part's start and end.

    ``patient [n]`` has the patient of each row, ascending. A part has at most ``most`` rows, unless a single patient
    has more.
    """
    starts = np.flatnonzero(np.diff(patient, prepend=-1))
    cuts = [0] if len(patient) else []
    for start, stop in zip(starts, [*starts[1:], len(patient)], strict=False):
        if stop - cuts[-1] > most and start > cuts[-1]:
            cuts.append(int(start))
    return list(zip(cuts, [*cuts[1:], len(patient)], strict=False))


def descend(model: Clippable, layout: Layout, task: Task, optimizer: Optimizer, theta: Vector) -> None:
    """Make the DP-SGD steps of a task, which change ``theta [P]`` in place."""
    private = task.private
    if private is None:
        raise ValueError("private: is None, but DP-SGD needs private steps; give the task its private steps")
    if task.contrast is not None:
        raise ValueError("the gradient of a contrastive term cannot be clipped row by row; leave the term out")
    update = begin(optimizer, task, theta, layout.unpenalised)
    noise, spared = noise_of(private, update), layout.unpenalised
    for gathered in of_private(private, len(task.y)):
        for step, (low, high) in enumerate(gathered.cuts, gathered.step):
            target = update.target
            lifted = update.lift * target[spared]
            rows = gathered.rows[low:high]
            slope = np.zeros_like(theta)
            if len(rows):
                patient = None if private.patient is None else numbered(private.patient[rows])
                weights = None if task.weights is None else task.weights[rows]
                slope = model.clipped_sum(theta, task.X[rows], task.y[rows], weights, patient, private.clip)
            np.multiply(target, update.keep, target)
            np.add(target, (update.scale / private.divisor) * slope, target, casting="same_kind")
            target[spared] += lifted
            if noise is not None:
                noise(step)
            update.finish()
    end(update, task)
