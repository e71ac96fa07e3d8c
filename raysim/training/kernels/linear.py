"""Linear models in numpy: one output for a real label or the log-odds of class 1, a softmax for more classes.

One hospital at a time: its rows are gathered once an epoch, so that batches are slices, and each step is four calls.
Measured on one core, that is several times faster than any product batched over hospitals: so few operations are left
that memory traffic decides, and one hospital's rows fit the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.batches import Gathered, visits
from raysim.training.kernels.clipped import DenseLayers, Traced
from raysim.training.kernels.descent import BLAS, begin, end, largest, noise_of, one_by_one, softmax_residual
from raysim.training.kernels.linear_clip import LinearClip
from raysim.training.losses import LOG_LOSS, REGRESSION, choose, residual, row_losses

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LinearRegression:
    """The family ``linear_regression``. ``loss``: ``squared`` (half the squared error) or ``absolute``."""

    labels: ClassVar[tuple[str, ...]] = ("regression",)
    loss: str = REGRESSION[0]
    """``squared`` (half the squared error) or ``absolute``."""

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """The model for ``F`` features. ``init`` ``default`` is zeros: both losses are convex."""
        loss = choose(self.loss, n_classes)
        host = LinearModel(n_features, 1, precision, loss)
        if device == "cpu":
            return host
        from raysim.training.kernels.batched import Cohort, Dense

        return Cohort(host, Dense((n_features, 1), loss), device=device, precision=precision)


class LinearModel(DenseLayers):
    """``weight [outputs, F]`` and ``bias [outputs]`` as ``torch.nn.Linear`` keeps them, under ``loss``."""

    def __init__(self, n_features: int, outputs: int, precision: str, loss: str) -> None:
        self.outputs = outputs
        self.layout = Layout(("weight", "bias"), ((outputs, n_features), (outputs,)))
        self.row_by_row = outputs == 1
        self._features, self._loss = n_features, loss
        self._dtype = np.dtype(precision)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Zeros ``[P]``."""
        return np.zeros(self.layout.size)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """``[n]`` predictions of a real label or log-odds of class 1, else ``[n, C]`` logits."""
        theta, X = theta.astype(self._dtype, copy=False), X.astype(self._dtype, copy=False)
        cut = self.outputs * self._features
        with np.errstate(all="ignore"):
            if self.outputs == 1:
                # Unlike a matrix product, a row's result is the same bits whichever rows are beside it; and as fast.
                z: NDArray[Any] = np.vecdot(X, theta[:cut])
                z += theta[cut]
                return z
            z = X @ theta[:cut].reshape(self.outputs, self._features).T
            z += theta[cut:]
            return z

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        from raysim.training.kernels.modules.exported import dense

        tensors = self.layout.split(theta.astype(self._dtype, copy=False))
        return dense([(tensors["weight"], tensors["bias"])])

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """The loss of each row ``[n]``."""
        return row_losses(self._loss, outputs, y)

    def traced(self, theta: Vector, X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None) -> list[Traced]:
        """See :class:`raysim.training.kernels.clipped.Traceable`."""
        rows, cut = X.astype(theta.dtype, copy=False), self.outputs * self._features
        z = rows @ theta[:cut].reshape(self.outputs, self._features).T + theta[cut:]
        if self._loss != LOG_LOSS:
            residual(self._loss, z[:, 0], y.astype(theta.dtype))
        elif self.outputs == 1:
            z = (np.tanh(z / 2) - (2 * y - 1)[:, None].astype(theta.dtype)) / 2
        else:
            softmax_residual(z, y)
        return [Traced(rows, z if weights is None else z * weights[:, None].astype(theta.dtype))]

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """LocalSGD for each task in turn, ``[len(tasks), P]``."""
        if any(task.contrast is not None for task in tasks):
            raise ValueError("a contrastive term needs a model with a layer below the last; a linear model has none")
        n, batch = largest(tasks, optimizer.batch_size)
        buffers = _Buffers(n, batch, self.layout, self._dtype, self._loss)
        descend = buffers.descend_single if self.outputs == 1 else buffers.descend_softmax
        return one_by_one(tasks, self.layout.size, self._dtype, lambda task, theta: descend(task, optimizer, theta))


class _Buffers:
    """Memory that one call's hospitals use in turn, for up to ``n`` rows and batches of up to ``batch`` rows.

    ``rows [n, F+1]`` are the gathered rows with a constant last column, which makes the bias a weight like the others.
    With one logit they are halved (which is exact): ``sigmoid(z) - y = (tanh(z/2) - (2y-1))/2`` then needs no
    multiplication, cannot overflow, and the residual's half is made up for by the half in the rows.
    """

    def __init__(self, n: int, batch: int, layout: Layout, dtype: np.dtype[Any], loss: str) -> None:
        outputs, features = layout.shapes[0]
        self._unpenalised = layout.unpenalised
        self._logistic = loss == LOG_LOSS and outputs == 1
        self._loss = loss
        self._unit = 0.5 if self._logistic else 1.0
        self._outputs, self._dtype, self._blas = outputs, dtype, BLAS[dtype]
        self._rows = np.full((n, features + 1), self._unit, dtype)
        self._gathered = np.empty((n, features), dtype)
        self._z = np.empty((batch, outputs), dtype)

    def _fill(
        self,
        X: NDArray[Any],
        gathered: Gathered,
        rows: NDArray[Any],
        columns: Sequence[tuple[NDArray[Any], Any]],
        units: NDArray[Any] | None = None,
    ) -> None:
        """Put some steps' rows into the first of ``rows [n, F+1]``, and into each second of ``columns`` its first.

        Those are pairs ``[n]``: of labels, and of rows' weights and bounds where they have some. ``units [n]``, one of
        the second ones, are what rows are multiplied by; None: all by the same.
        """
        if gathered.whole:
            if gathered.step == 0:
                np.multiply(X, self._unit, rows[:, :-1])
                for values, into in columns:
                    into[:] = values
            return
        order, m = gathered.rows, len(gathered.rows)
        # mode="clip" only because "raise" makes numpy copy `out` first; an order is never out of range
        X.take(order, 0, self._gathered[:m], "clip")
        for values, into in columns:
            values.take(order, 0, into[:m], "clip")
        np.multiply(self._gathered[:m], self._unit if units is None else units[:m, None], rows[:m, :-1])
        if units is not None:
            rows[:m, -1] = units[:m]

    def _columns(
        self, task: Task, targets: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | None, list[tuple[NDArray[Any], NDArray[Any]]]]:
        """Memory ``[n]`` for some steps' labels and rows' weights (None without), and what to fill it from."""
        labels = np.empty_like(targets)
        if task.weights is None:
            return labels, None, [(targets, labels)]
        weights = task.weights.astype(self._dtype, copy=False)
        ordered = np.empty_like(weights)
        return labels, ordered, [(targets, labels), (weights, ordered)]

    def descend_single(self, task: Task, optimizer: Optimizer, theta: Vector) -> None:
        """LocalSGD on ``theta [F+1]``, in place."""
        n = len(task.y)
        update = begin(optimizer, task, theta, self._unpenalised)
        target, scale, keep, finish = update.target, update.scale, update.keep, update.finish
        gemv, z_all, lift = self._blas.gemv, self._z[:, 0], update.lift
        logistic, loss, rows = self._logistic, self._loss, self._rows[:n]
        targets = (2 * task.y - 1 if logistic else task.y).astype(self._dtype)
        labels, weights, columns = self._columns(task, targets)
        X = task.X.astype(self._dtype, copy=False)
        clip = noise = None
        if task.private is not None:
            signed = logistic and weights is None
            clip, noise = LinearClip(task.private, X, self._unit, signed=signed), noise_of(task.private, update)
            X, columns = clip.X, [*columns, *clip.columns]
        units = labels if clip is not None and clip.signed else None
        if units is not None:
            # Rows turned by their labels' signs are all of class 1; products of two signs change no bit.
            targets *= self._unit
        one = np.ones((), self._dtype)
        divisor = None if task.private is None else task.private.divisor
        for gathered in visits(task, optimizer):
            self._fill(X, gathered, rows, columns, units)
            for step, (low, high) in enumerate(gathered.cuts, gathered.step):
                batch, z = rows[low:high], z_all[: high - low]
                batch.dot(theta, z)
                if logistic:
                    np.tanh(z, z)
                    np.subtract(z, labels[low:high] if units is None else one, z)
                else:
                    residual(loss, z, labels[low:high])
                if weights is not None:
                    np.multiply(z, weights[low:high], z)
                if clip is not None:
                    clip.shorten(z, batch, low, high, gathered.rows)
                spared = lift * target[-1] if lift else 0.0
                if high > low:
                    gemv(scale / (divisor or high - low), batch.T, z, keep, target, 0, 1, 0, 1, 0, 1)
                else:
                    np.multiply(target, keep, target)
                if lift:
                    target[-1] += spared
                if noise is not None:
                    noise(step)
                finish()
        rows[:, -1] = self._unit
        end(update, task)

    def descend_softmax(self, task: Task, optimizer: Optimizer, theta: Vector) -> None:
        """LocalSGD on ``theta [P]``, in place, through an augmented ``[C, F+1]`` copy."""
        n, C, F = len(task.y), self._outputs, self._gathered.shape[1]

        def augmented(vector: Vector) -> Vector:
            return np.hstack([vector[: C * F].reshape(C, F), vector[C * F :, None]]).ravel()

        def flattened(vector: Vector) -> Vector:
            matrix = vector.reshape(C, F + 1)
            return np.concatenate([matrix[:, :F].ravel(), matrix[:, F]])

        flat = augmented(theta)
        weights = flat.reshape(C, F + 1)
        update = begin(optimizer, task, flat, self._unpenalised, augmented)
        target = update.target.reshape(C, F + 1).T
        gemm, rows, lift = self._blas.gemm, self._rows[:n], update.lift
        labels, row_weights, columns = self._columns(task, task.y)
        X = task.X.astype(self._dtype, copy=False)
        clip = noise = None
        if task.private is not None:
            clip, noise = LinearClip(task.private, X, self._unit), noise_of(task.private, update, augmented)
            X, columns = clip.X, [*columns, *clip.columns]
        divisor = None if task.private is None else task.private.divisor
        for gathered in visits(task, optimizer):
            self._fill(X, gathered, rows, columns)
            for step, (low, high) in enumerate(gathered.cuts, gathered.step):
                batch, z = rows[low:high], self._z[: high - low]
                if high > low:
                    np.matmul(batch, weights.T, z)
                    softmax_residual(z, labels[low:high])
                    if row_weights is not None:
                        np.multiply(z, row_weights[low:high, None], z)
                    if clip is not None:
                        clip.shorten_each(z, batch, low, high, gathered.rows)
                spared = lift * target[-1]
                if high > low:
                    gemm(update.scale / (divisor or high - low), batch.T, z.T, update.keep, target, 0, 1, 1)
                else:
                    np.multiply(target, update.keep, target)
                if lift:
                    target[-1] += spared
                if noise is not None:
                    noise(step)
                update.finish()
        theta[:] = flattened(flat)
        end(update, task, flattened)
