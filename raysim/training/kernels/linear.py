"""Linear models in numpy.

A model has one output for a real-valued label (the prediction) and for two classes (the log-odds of class 1). For more
classes it has one output per class, with a softmax.

Hospitals are trained one at a time. A hospital's rows are copied into the order of its batches before each epoch, or
only once if batches are full. On one core this is several times faster than products batched over hospitals, because
the rows of one hospital fit the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.batches import Gathered, batches
from raysim.training.kernels.clipped import DenseLayers, Traced
from raysim.training.kernels.descent import BLAS, begin, end, largest, noise_of, one_by_one, softmax_residual
from raysim.training.kernels.linear_clip import LinearClip
from raysim.training.losses import LOG_LOSS, REGRESSION, choose, residual, row_losses

if TYPE_CHECKING:
    from torch import nn

REMEMBERED = 4096
"""The largest number of batches whose views are cached for later epochs."""


@dataclass(frozen=True)
class LinearRegression:
    """The family ``linear_regression``."""

    labels: ClassVar[tuple[str, ...]] = ("regression",)
    linear: ClassVar[bool] = True
    """Whether models are linear: with one coefficient for each feature, and a constant."""
    loss: str = REGRESSION[0]
    """The loss: ``squared`` (half the squared error) or ``absolute``."""

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """Return the model for ``F`` features; initial parameters are always zero."""
        loss = choose(self.loss, n_classes)
        host = LinearModel(n_features, 1, precision, loss)
        if device == "cpu":
            return host
        from raysim.training.kernels.batched import Cohort, Dense

        return Cohort(host, Dense((n_features, 1), loss), device=device, precision=precision)


class LinearModel(DenseLayers):
    """A linear model with the parameters ``weight [outputs, F]`` and ``bias [outputs]``, trained with ``loss``."""

    def __init__(self, n_features: int, outputs: int, precision: str, loss: str) -> None:
        self.outputs = outputs
        self.layout = Layout(("weight", "bias"), ((outputs, n_features), (outputs,)))
        self._features, self._loss = n_features, loss
        self._dtype = np.dtype(precision)
        self._idle: list[_Buffers] = []

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return zeros ``[P]``."""
        return np.zeros(self.layout.size)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the model's outputs for rows ``X [n, F]``; see :meth:`raysim.training.base.Model.logits`."""
        theta, X = theta.astype(self._dtype, copy=False), X.astype(self._dtype, copy=False)
        cut = self.outputs * self._features
        with np.errstate(all="ignore"):
            if self.outputs == 1:
                # As fast as a matrix product, but a row's bits do not depend on the other rows.
                z: NDArray[Any] = np.vecdot(X, theta[:cut])
                z += theta[cut]
                return z
            z = X @ theta[:cut].reshape(self.outputs, self._features).T
            z += theta[cut:]
            return z

    @property
    def logits_of_many(self) -> Callable[[Vector, NDArray[Any]], NDArray[Any]] | None:
        """Return a function that computes outputs for rows of many hospitals in one call; None for several outputs.

        See :class:`raysim.training.base.Model`.
        """
        return self.logits if self.outputs == 1 else None

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        from raysim.training.kernels.modules.exported import dense

        tensors = self.layout.split(theta.astype(self._dtype, copy=False))
        return dense([(tensors["weight"], tensors["bias"])])

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of each row ``[n]``."""
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
        """Run LocalSGD for each task in turn, and return the trained parameters, ``[len(tasks), P]``."""
        if any(task.contrast is not None for task in tasks):
            raise ValueError("a contrastive term needs a model with a layer below the last; a linear model has none")
        n, batch = largest(tasks, optimizer.batch_size)
        buffers = self._idle.pop() if self._idle else None
        if buffers is None or not buffers.hold(n, batch):
            buffers = _Buffers(n, batch, self.layout, self._dtype, self._loss)
        descend = buffers.descend_single if self.outputs == 1 else buffers.descend_softmax
        thetas = one_by_one(tasks, self.layout.size, self._dtype, lambda task, theta: descend(task, optimizer, theta))
        self._idle.append(buffers)
        return thetas

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_idle": []}


class _Batch(NamedTuple):
    """Views of the buffers for one batch of ``b`` rows."""

    rows: NDArray[Any]
    """The rows with a constant last column, ``[b, F+1]``."""
    turned: NDArray[Any]
    """The same rows transposed, ``[F+1, b]``."""
    labels: NDArray[Any]
    z: NDArray[Any]
    """Memory for outputs and then residuals: ``[b, outputs]``, or ``[b]`` for one output."""
    b: int


class _Buffers:
    """Memory in which hospitals are trained one after another, for up to ``n`` rows and batches of up to ``batch``
    rows.

    ``rows [n, F+1]`` are the gathered rows with a constant last column for the bias. For a model with one logit ``z``,
    all columns are divided by 2, so that products with the parameters are ``z/2``. The residual
    ``sigmoid(z) - y = (tanh(z/2) - (2y-1))/2`` then needs no multiplication and cannot overflow.

    Rows are first copied in order, and then gathered from the copy in the cache, which is faster than random access to
    the original memory.
    """

    def __init__(self, n: int, batch: int, layout: Layout, dtype: np.dtype[Any], loss: str) -> None:
        outputs, features = layout.shapes[0]
        self._unpenalised = layout.unpenalised
        self._logistic = loss == LOG_LOSS and outputs == 1
        self._loss = loss
        self._unit = 0.5 if self._logistic else 1.0
        self._outputs, self._dtype, self._blas = outputs, dtype, BLAS[dtype]
        self._n, self._most = n, batch
        self._copied, self._rows = np.ones((n, features + 1), dtype), np.empty((n, features + 1), dtype)
        classes = loss == LOG_LOSS and outputs > 1
        self._targets, self._labels = (np.empty(n, np.int64 if classes else dtype) for _ in range(2))
        self._z = np.empty(batch if outputs == 1 else (batch, outputs), dtype)
        self._signs = np.array([-1, 1], dtype)
        self._batches: dict[tuple[int, int], _Batch] = {}

    def hold(self, n: int, batch: int) -> bool:
        """Return whether the buffers are large enough for ``n`` rows and batches of ``batch`` rows."""
        return n <= self._n and batch <= self._most

    def _batch(self, cut: tuple[int, int]) -> _Batch:
        batch = self._batches.get(cut)
        if batch is None:
            low, high = cut
            rows = self._rows[low:high]
            batch = _Batch(rows, rows.T, self._labels[low:high], self._z[: high - low], high - low)
            if len(self._batches) >= REMEMBERED:
                self._batches.clear()
            self._batches[cut] = batch
        return batch

    def _fill(self, gathered: Gathered, columns: Sequence[tuple[NDArray[Any], NDArray[Any]]], unit: float) -> None:
        """Gather the rows of some steps, multiplied by ``unit``, together with other values of the same rows.

        ``columns`` are pairs ``(values, into)``, each ``[n]``, for labels, loss weights and bounds of clipping.
        ``into`` receives the values in the order of the gathered rows.
        """
        order, m = gathered.rows, len(gathered.rows)
        rows = self._rows[:m]
        if gathered.whole:
            for values, into in columns:
                into[:] = values
            np.multiply(self._copied[:m], unit, rows)
            return
        # mode="clip" only because "raise" makes numpy copy `out` first; an order is never out of range
        for values, into in columns:
            values.take(order, 0, into[:m], "clip")
        self._copied.take(order, 0, rows, "clip")
        if unit != 1.0:
            np.multiply(rows, unit, rows)

    def _columns(
        self, task: Task, targets: NDArray[Any]
    ) -> tuple[NDArray[Any] | None, list[tuple[NDArray[Any], NDArray[Any]]]]:
        """Return memory ``[n]`` for the loss weights of gathered rows (None without weights), and the ``columns`` of
        :meth:`_fill`.
        """
        labels = self._labels[: len(targets)]
        if task.weights is None:
            return None, [(targets, labels)]
        weights = task.weights.astype(self._dtype, copy=False)
        ordered = np.empty_like(weights)
        return ordered, [(targets, labels), (weights, ordered)]

    def descend_single(self, task: Task, optimizer: Optimizer, theta: Vector) -> None:
        """Train a model with one output by LocalSGD, changing ``theta [F+1]`` in place."""
        n = len(task.y)
        update = begin(optimizer, task, theta, self._unpenalised)
        target, scale, keep, finish = update.target, update.scale, update.keep, update.finish
        gemv, lift = self._blas.gemv, update.lift
        logistic, loss, targets = self._logistic, self._loss, self._targets[:n]
        if logistic:
            self._signs.take(task.y, 0, targets, "clip")
        else:
            targets[:] = task.y
        weights, columns = self._columns(task, targets)
        X = task.X.astype(self._dtype, copy=False)
        clip = noise = None
        if task.private is not None:
            clip, noise = LinearClip(task.private, X, self._unit), noise_of(task.private, update)
            X, columns = clip.X, [*columns, *clip.columns]
        np.copyto(self._copied[:n, :-1], X)
        divisor = None if task.private is None else task.private.divisor
        plain = logistic and weights is None and clip is None and not lift
        for gathered in batches(task, optimizer):
            self._fill(gathered, columns, self._unit)
            if plain:
                for rows, turned, labels, z, b in map(self._batch, gathered.cuts):
                    rows.dot(theta, z)
                    np.tanh(z, z)
                    np.subtract(z, labels, z)
                    gemv(scale / b, turned, z, keep, target, 0, 1, 0, 1, 0, 1)
                    finish()
                continue
            for step, cut in enumerate(gathered.cuts, gathered.step):
                rows, turned, labels, z, b = self._batch(cut)
                rows.dot(theta, z)
                if logistic:
                    np.tanh(z, z)
                    np.subtract(z, labels, z)
                else:
                    residual(loss, z, labels)
                if weights is not None:
                    np.multiply(z, weights[cut[0] : cut[1]], z)
                if clip is not None:
                    clip.shorten(z, rows, *cut, gathered.rows)
                spared = lift * target[-1] if lift else 0.0
                if b:
                    gemv(scale / (divisor or b), turned, z, keep, target, 0, 1, 0, 1, 0, 1)
                else:
                    np.multiply(target, keep, target)
                if lift:
                    target[-1] += spared
                if noise is not None:
                    noise(step)
                finish()
        end(update, task)

    def descend_softmax(self, task: Task, optimizer: Optimizer, theta: Vector) -> None:
        """Train a model with ``C`` outputs by LocalSGD, changing ``theta [P]`` in place."""
        n, C, F = len(task.y), self._outputs, self._rows.shape[1] - 1

        def augmented(vector: Vector) -> Vector:
            return np.hstack([vector[: C * F].reshape(C, F), vector[C * F :, None]]).ravel()

        def flattened(vector: Vector) -> Vector:
            matrix = vector.reshape(C, F + 1)
            return np.concatenate([matrix[:, :F].ravel(), matrix[:, F]])

        flat = augmented(theta)
        weights = flat.reshape(C, F + 1)
        update = begin(optimizer, task, flat, self._unpenalised, augmented)
        target = update.target.reshape(C, F + 1).T
        gemm, lift = self._blas.gemm, update.lift
        row_weights, columns = self._columns(task, task.y)
        X = task.X.astype(self._dtype, copy=False)
        clip = noise = None
        if task.private is not None:
            clip, noise = LinearClip(task.private, X, self._unit), noise_of(task.private, update, augmented)
            X, columns = clip.X, [*columns, *clip.columns]
        np.copyto(self._copied[:n, :-1], X)
        divisor = None if task.private is None else task.private.divisor
        for gathered in batches(task, optimizer):
            self._fill(gathered, columns, self._unit)
            for step, cut in enumerate(gathered.cuts, gathered.step):
                rows, turned, labels, z, b = self._batch(cut)
                if b:
                    np.matmul(rows, weights.T, z)
                    softmax_residual(z, labels)
                    if row_weights is not None:
                        np.multiply(z, row_weights[cut[0] : cut[1], None], z)
                    if clip is not None:
                        clip.shorten_each(z, rows, *cut, gathered.rows)
                spared = lift * target[-1]
                if b:
                    gemm(update.scale / (divisor or b), turned, z.T, update.keep, target, 0, 1, 1)
                else:
                    np.multiply(target, update.keep, target)
                if lift:
                    target[-1] += spared
                if noise is not None:
                    noise(step)
                update.finish()
        theta[:] = flattened(flat)
        end(update, task, flattened)
