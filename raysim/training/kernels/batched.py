"""Local training of a whole cohort at once in torch, for GPUs.

On a CPU only tests use this module, because the numpy kernels were faster in all measurements.

A hospital's result agrees with that of the numpy kernels up to rounding. The number of hospitals in a call may change a
result's last bits.

A call that runs out of GPU memory is repeated with half as many hospitals.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raysim.training.base import DeviceFull, Layout, Model, Moments, Optimizer, Task
from raysim.training.kernels.batch_schedule import groups, schedule
from raysim.training.kernels.clipped import Clippable
from raysim.training.kernels.descent import BETA1, BETA2, EPSILON, MOMENTUM, combined_proximal
from raysim.training.losses import LOG_LOSS


class Gradient(Protocol):
    """A model's gradient for many hospitals at once."""

    def accumulate(self, theta: Tensor, X: Tensor, y: Tensor, weight: Tensor, into: Tensor) -> None:
        """Add the weighted sum of the gradients of each hospital's rows to ``into [H, P]``.

        For hospital ``h`` this sum is ``sum_b weight[h, b] * gradient of loss(theta[h]; X[h, b], y[h, b])``. With ``H``
        hospitals and batches of ``B`` rows, the shapes are ``theta [H, P]``, ``X [H, B, F]``, ``y [H, B]`` and ``weight
        [H, B]``. ``into`` may be the same tensor as ``theta``.
        """


class Dense:
    """Fully connected layers of ``widths (F, ..., outputs)`` with ReLU between them.

    A single output is the log-odds of class 1, or the prediction of a real-valued label.
    """

    def __init__(self, widths: Sequence[int], loss: str = LOG_LOSS) -> None:
        self._pairs = list(pairwise(widths))
        self._loss = loss

    def accumulate(self, theta: Tensor, X: Tensor, y: Tensor, weight: Tensor, into: Tensor) -> None:
        """See :meth:`Gradient.accumulate`."""
        layers, targets = self._layers(theta), self._layers(into)
        activations = [X]
        for k, (matrix, bias) in enumerate(layers):
            z = torch.baddbmm(bias.unsqueeze(1), activations[-1], matrix.mT)
            activations.append(z.relu_() if k + 1 < len(layers) else z)
        z = activations.pop()
        if self._loss != LOG_LOSS:
            error = z.squeeze(2) - y
            residual = (error.sign() if self._loss == "absolute" else error).mul_(weight).unsqueeze(2)
        elif z.shape[2] == 1:
            residual = (z.squeeze(2).sigmoid() - y).mul_(weight).unsqueeze(2)
        else:
            residual = z.softmax(2)
            residual.scatter_add_(2, y.unsqueeze(2), residual.new_full((), -1.0).expand(*y.shape, 1))
            residual *= weight.unsqueeze(2)
        for k in reversed(range(len(layers))):
            a, (matrix, bias) = activations[k], targets[k]
            # Computed before this layer's target is written: the target may be the weights themselves.
            below = torch.bmm(residual, layers[k][0]).mul_(a > 0) if k else residual
            matrix.baddbmm_(residual.mT, a)
            bias += residual.sum(1)
            residual = below

    def _layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return views of ``theta [H, P]``: ``(weight [H, out, in], bias [H, out])`` for each layer."""
        views, at = [], 0
        for fan_in, fan_out in self._pairs:
            cut = at + fan_in * fan_out
            views.append((theta[:, at:cut].view(-1, fan_out, fan_in), theta[:, cut : cut + fan_out]))
            at = cut + fan_out
        return views


class Cohort:
    """The model ``host``, but trained on ``device`` for all hospitals at once.

    Initial parameters and outputs are still computed by ``host``.
    """

    def __init__(self, host: Model, gradient: Gradient, *, device: str, precision: str) -> None:
        self.layout = host.layout
        self.initial, self.logits, self.row_losses = host.initial, host.logits, host.row_losses
        if isinstance(host, Clippable):
            self.clipped_sum, self.unclippable = host.clipped_sum, host.unclippable
        self.logits_of_many = getattr(host, "logits_of_many", None)
        self._one_by_one = host.train
        self._gradient, self._dtype = gradient, np.dtype(precision)
        self._device = torch.device(device)
        self._most = sys.maxsize  # hospitals of a call; fewer after a call that ran out of memory

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Run LocalSGD for all tasks, and return the trained parameters, ``[len(tasks), P]``.

        If any task has a contrastive term or uses DP-SGD, ``host`` trains all tasks. Raises ``DeviceFull`` for a task
        that needs more memory than the device has.
        """
        if any(task.contrast is not None or task.private is not None for task in tasks):
            return self._one_by_one(tasks, optimizer)
        thetas = np.empty((len(tasks), self.layout.size), self._dtype)
        for task, theta in zip(tasks, thetas, strict=True):
            theta[:] = task.start
        for group in groups(tasks, optimizer.batch_size):
            while group:
                some = group[: self._most]
                try:
                    thetas[some] = self._together([tasks[h] for h in some], optimizer)
                    group = group[len(some) :]
                    continue
                except torch.OutOfMemoryError as error:
                    text = str(error).splitlines()[0]
                # After the except clause: inside it, the error keeps the tensors of the call in memory.
                torch.cuda.empty_cache()
                if len(some) == 1:
                    raise DeviceFull(some[0], text)
                self._most = len(some) // 2
        return thetas

    def _together(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Train ``H`` tasks at once and return their parameters, ``[H, P]``.

        The tasks must be sorted by descending number of steps.
        """
        plan = schedule(tasks, optimizer.batch_size)
        X = self._send(np.concatenate([task.X for task in tasks], dtype=self._dtype))
        y = self._send(np.concatenate([task.y for task in tasks], dtype=_label_type(tasks[0].y, self._dtype)))
        rows, counts = self._send(plan.rows), self._send(plan.counts).unsqueeze(2)
        column = torch.arange(rows.shape[2], device=self._device)
        theta = self._send(np.stack([task.start for task in tasks]).astype(self._dtype))
        step = _Step(self._gradient, optimizer, tasks, theta, self.layout)
        weights = self._weights(tasks)
        for t, active in enumerate(plan.active):
            t %= len(rows)
            picked, count = rows[t, :active].long(), counts[t, :active]
            share = (column < count).to(X.dtype) / count
            step(active, X[picked], y[picked], share if weights is None else share * weights[picked])
        step.end(tasks)
        trained: NDArray[Any] = theta.cpu().numpy()
        return trained

    def _weights(self, tasks: Sequence[Task]) -> Tensor | None:
        if all(task.weights is None for task in tasks):
            return None
        each = [np.ones(len(task.y)) if task.weights is None else task.weights for task in tasks]
        return self._send(np.concatenate(each).astype(self._dtype))

    def _send(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _label_type(y: NDArray[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if y.dtype.kind == "f" else np.dtype(np.int64)


class _Step:
    """Steps of the local optimiser for many hospitals. They change ``theta [H, P]`` in place."""

    def __init__(
        self, gradient: Gradient, optimizer: Optimizer, tasks: Sequence[Task], theta: Tensor, layout: Layout
    ) -> None:
        self._gradient, self._name, self._theta = gradient, optimizer.name, theta
        self._rate = theta.new_tensor([task.learning_rate for task in tasks]).unsqueeze(1)
        proximal = [combined_proximal(task, np.float64) for task in tasks]
        self._proximal = theta.new_tensor([weight for weight, _ in proximal]).unsqueeze(1)
        anchors = [np.zeros(theta.shape[1]) if anchor is None else anchor for _, anchor in proximal]
        anchored = any(anchor is not None for _, anchor in proximal)
        self._anchor = theta.new_tensor(np.stack(anchors)) if anchored else None
        self._decays = bool(optimizer.weight_decay)
        if self._decays:
            self._proximal = self._proximal + theta.new_tensor(
                np.where(layout.unpenalised, 0.0, optimizer.weight_decay)
            )
        masks = [np.zeros(theta.shape[1], np.bool_) if task.frozen is None else task.frozen for task in tasks]
        held = any(task.frozen is not None for task in tasks)
        self._frozen = torch.from_numpy(np.stack(masks)).to(theta.device) if held else None
        self._start = theta.clone() if held else theta
        states = [task.moments or Moments() for task in tasks]
        self._first = self._resumed([state.first for state in states]) if self._name != "sgd" else theta
        self._second = self._resumed([state.second for state in states]) if self._name == "adam" else theta
        self._count = torch.tensor([state.steps for state in states], dtype=torch.float64, device=theta.device)

    def __call__(self, active: int, X: Tensor, y: Tensor, weight: Tensor) -> None:
        """Make one step for the first ``active`` hospitals, with batches of ``B`` rows.

        With ``A = active``, the shapes are ``X [A, B, F]``, ``y [A, B]`` and ``weight [A, B]``. Weights are already
        divided by the number of rows in the batch; padding has the weight 0.
        """
        self._move(active, X, y, weight)
        if self._frozen is not None:
            theta = self._theta[:active]
            theta.copy_(torch.where(self._frozen[:active], self._start[:active], theta))

    def end(self, tasks: Sequence[Task]) -> None:
        """Store each hospital's optimiser state in ``Task.moments``, unless this is None."""
        for h, task in enumerate(tasks):
            if task.moments is not None and self._name != "sgd":
                task.moments.first = self._first[h].cpu().numpy()
                if self._name == "adam":
                    task.moments.second = self._second[h].cpu().numpy()
                    task.moments.steps = int(self._count[h])

    def _resumed(self, vectors: Sequence[NDArray[Any] | None]) -> Tensor:
        none = np.zeros(self._theta.shape[1])
        return self._theta.new_tensor(np.stack([none if vector is None else vector for vector in vectors]))

    def _move(self, active: int, X: Tensor, y: Tensor, weight: Tensor) -> None:
        theta, rate, first = self._theta[:active], self._rate[:active], self._first[:active]
        extra = None
        if self._anchor is not None or self._decays:
            extra = theta * self._proximal[:active]
            if self._anchor is not None:
                extra -= self._anchor[:active]
        self._count[:active] += 1
        if self._name == "sgd":
            self._gradient.accumulate(theta, X, y, weight * -rate, theta)
            if extra is not None:
                theta -= extra * rate
            return
        if self._name == "momentum":
            first *= MOMENTUM
            self._gradient.accumulate(theta, X, y, weight, first)
            if extra is not None:
                first += extra
            theta -= first * rate
            return
        gradient = torch.zeros_like(theta) if extra is None else extra
        self._gradient.accumulate(theta, X, y, weight, gradient)
        second = self._second[:active]
        first.mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        count = self._count[:active, None]
        scale = (second / (1 - BETA2**count).to(theta.dtype)).sqrt_().add_(EPSILON)
        theta -= first / scale * (rate / (1 - BETA1**count).to(theta.dtype))
