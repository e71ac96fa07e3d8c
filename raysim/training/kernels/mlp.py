"""A multi-layer perceptron with ReLU, its gradient by hand in numpy. No torch is imported on a CPU.

One hospital at a time, with each layer's step fused into the product that would have made its gradient
(``descent.py``). Measured on one core with batches of 32, this beats products batched over hospitals: one hospital's
weights fit the second-level cache, several hospitals' do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import ContrastTerm, Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.batches import visits
from raysim.training.kernels.clipped import DenseLayers, RowFactors, Traced
from raysim.training.kernels.contrast import add_gradient, directions
from raysim.training.kernels.descent import BLAS, begin, end, largest, noise_of, one_by_one, softmax_residual
from raysim.training.losses import LOG_LOSS, choose, residual, row_losses

if TYPE_CHECKING:
    from torch import nn

Layers = list[tuple[NDArray[Any], NDArray[Any]]]  # (weight [out, in], bias [out]) for each layer, the first one first


@dataclass(frozen=True)
class MLP:
    """The family ``mlp``. ``hidden``: the widths of the hidden layers, from the input on; empty for none.

    ``loss``: of a real label, ``squared`` (the default) or ``absolute``.
    """

    labels: ClassVar[tuple[str, ...]] = ("classification", "regression")
    hidden: Sequence[int] = (256, 128)
    """Widths of the hidden layers, from the input on; empty for none."""
    loss: str | None = None
    """Of a real label: ``squared`` (the default) or ``absolute``."""

    def __post_init__(self) -> None:
        widths = self.hidden
        if not isinstance(widths, list | tuple) or not all(type(width) is int and width > 0 for width in widths):
            raise ValueError(f"hidden: {widths!r} is not a list of whole numbers of at least 1")
        object.__setattr__(self, "hidden", tuple(widths))

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """The model for ``F`` features and ``C`` classes (``C`` outputs, two for two) or a real label (one output)."""
        loss = choose(self.loss, n_classes)
        widths = (n_features, *self.hidden, n_classes or 1)
        host = MlpModel(widths, init, precision, loss)
        if device == "cpu":
            return host
        from raysim.training.kernels.batched import Cohort, Dense

        return Cohort(host, Dense(widths, loss), device=device, precision=precision)


class MlpModel(DenseLayers):
    """``layers.<k>.weight [out, in]`` and ``layers.<k>.bias [out]``, as ``torch.nn.Linear`` keeps them.

    ``widths``: ``(F, hidden..., C)``; for a real label ``C`` is 1.
    """

    clips_contrast = True
    """Whether private steps clip the gradient of a contrastive term with that of the loss."""

    def __init__(self, widths: Sequence[int], init: str, precision: str, loss: str = LOG_LOSS) -> None:
        pairs = list(pairwise(widths))
        names = [f"layers.{k}.{part}" for k in range(len(pairs)) for part in ("weight", "bias")]
        shapes = [shape for fan_in, fan_out in pairs for shape in ((fan_out, fan_in), (fan_out,))]
        self.layout = Layout(tuple(names), tuple(shapes))
        self._pairs, self._init, self._dtype, self._loss = pairs, init, np.dtype(precision), loss

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Uniform on ``+-1/sqrt(in)`` for weights and biases (torch's default for ``Linear``), or zeros; ``[P]``.

        From zeros only the last bias can move, which is of use to tests alone.
        """
        if self._init == "zeros":
            return np.zeros(self.layout.size)
        bounds = [1 / np.sqrt(fan_in) for fan_in, _ in self._pairs for _ in ("weight", "bias")]
        draws = [rng.uniform(-s, s, int(np.prod(shape))) for s, shape in zip(bounds, self.layout.shapes, strict=True)]
        return np.concatenate(draws)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """``[n]`` margins ``z_1 - z_0`` for two classes or predictions of a real label, else ``[n, C]`` logits."""
        layers = self._layers(theta.astype(self._dtype, copy=False))
        with np.errstate(all="ignore"):
            a = self._below(layers, X)
            weight, bias = layers[-1]
            if len(bias) == 2:
                z: NDArray[Any] = a @ (weight[1] - weight[0]) + (bias[1] - bias[0])
                return z
            outputs: NDArray[Any] = a @ weight.T + bias
            return outputs if self._loss == LOG_LOSS else outputs[:, 0]

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        from raysim.training.kernels.modules.exported import dense

        *hidden, (weight, bias) = self._layers(theta.astype(self._dtype, copy=False))
        if len(bias) == 2:
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
        return dense([*hidden, (weight, bias)])

    def _below(self, layers: Layers, X: NDArray[Any]) -> NDArray[Any]:
        """What the last layer receives, ``[n, width]``."""
        a = X.astype(self._dtype, copy=False)
        for weight, bias in layers[:-1]:
            a = a @ weight.T
            a += bias
            np.maximum(a, np.zeros_like(bias), out=a)  # a scalar zero takes numpy longer
        return a

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """The loss of each row ``[n]``."""
        return row_losses(self._loss, outputs, y)

    def traced(self, theta: Vector, X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None) -> list[Traced]:
        """See :class:`raysim.training.kernels.clipped.Traceable`."""
        layers = self._layers(theta)
        received = [X.astype(theta.dtype, copy=False)]
        for weight, bias in layers[:-1]:
            received.append(np.maximum(received[-1] @ weight.T + bias, 0))
        weight, bias = layers[-1]
        returned = received[-1] @ weight.T + bias
        if self._loss == LOG_LOSS:
            softmax_residual(returned, y)
        else:
            residual(self._loss, returned[:, 0], y.astype(theta.dtype))
        if weights is not None:
            returned *= weights[:, None].astype(theta.dtype)
        traces = [Traced(received[-1], returned)]
        for k in range(len(layers) - 1, 0, -1):
            returned = (returned @ layers[k][0]) * (received[k] > 0)
            traces.insert(0, Traced(received[k - 1], returned))
        return traces

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """LocalSGD for each task in turn, ``[len(tasks), P]``."""
        n, batch = largest(tasks, optimizer.batch_size)
        buffer = np.empty((n, self._pairs[0][0]), self._dtype)
        passes = _Passes([fan_out for _, fan_out in self._pairs], batch, self._dtype, self._loss)

        def descend(task: Task, theta: Vector) -> None:
            self._descend(task, optimizer, theta, buffer, passes)

        return one_by_one(tasks, self.layout.size, self._dtype, descend)

    def _descend(self, task: Task, optimizer: Optimizer, theta: Vector, buffer: NDArray[Any], passes: _Passes) -> None:
        X = np.ascontiguousarray(task.X, self._dtype)
        y = task.y if self._loss == LOG_LOSS else task.y.astype(self._dtype)
        if self._pairs[-1][1] == 2:
            y = (2 * y - 1).astype(self._dtype)
        update = begin(optimizer, task, theta, self.layout.unpenalised)
        layers, targets = self._layers(theta), self._layers(update.target)
        rows, labels = X, y
        weights = None if task.weights is None else task.weights.astype(self._dtype, copy=False)
        ordered = weights
        apart = None if task.contrast is None else self._apart(task.contrast, X)
        v, private, factors, noise = apart, task.private, None, None
        if private is not None:
            factors, noise = RowFactors(private, self._dtype), noise_of(private, update)
        keep = update.keep, update.keep + update.lift
        for gathered in visits(task, optimizer):
            order = gathered.rows
            if not gathered.whole:
                # mode="clip" only because "raise" makes numpy copy `out` first; an order is never out of range
                rows, labels = X.take(order, 0, buffer[: len(order)], "clip"), y.take(order)
                ordered = None if weights is None else weights.take(order)
                v = None if apart is None else apart.take(order, 0)
            for step, (low, high) in enumerate(gathered.cuts, gathered.step):
                batch = rows[low:high]
                row_weights = None if ordered is None else ordered[low:high]
                contrast = None
                if task.contrast is not None and v is not None:
                    contrast = task.contrast, v[low:high]
                if high > low:
                    passes.forward(layers, batch, labels[low:high], row_weights)
                    passes.backward(layers, contrast, high - low)
                if factors is not None and high > low:
                    passes.shorten(batch, factors, order[low:high])
                passes.step(batch, targets, update.scale / (private.divisor if private else high - low), keep)
                if noise is not None:
                    noise(step)
                update.finish()
        end(update, task)

    def _apart(self, term: ContrastTerm, X: NDArray[Any]) -> NDArray[Any] | None:
        """The rows' directions of a contrastive term, ``[n, width]``; None where both its models are one."""
        if len(self._pairs) < 2:
            raise ValueError("a contrastive term needs a hidden layer, whose output is compared")
        if term.previous is term.received:
            return None
        previous, received = (
            self._below(self._layers(theta.astype(self._dtype, copy=False)), X)
            for theta in (term.previous, term.received)
        )
        return directions(previous, received)

    def _layers(self, vector: Vector) -> Layers:
        """Views of ``vector [P]``; ``Layout.split`` would do, at ten times the cost for each hospital."""
        views, at = [], 0
        for fan_in, fan_out in self._pairs:
            cut = at + fan_in * fan_out
            views.append((vector[at:cut].reshape(fan_out, fan_in), vector[cut : cut + fan_out]))
            at = cut + fan_out
        return views


class _Batch(NamedTuple):
    """Memory for a batch of ``b`` rows: views ``[b, width]``, a column of which is one piece."""

    outputs: list[NDArray[Any]]
    residuals: list[NDArray[Any]]
    zeros: list[NDArray[Any]]
    masks: list[NDArray[Any]]
    ones: NDArray[Any]


class _Passes:
    """Forward and backward over one batch, in memory that all batches of a call use in turn.

    ``widths``: the outputs of each layer; ``batch``: the most rows of a batch. Rows are the last axis in memory: each
    product is then one whose left factor is a layer's matrix as it lies, which OpenBLAS's code for AVX-512 does at up
    to twice the pace of the others.
    """

    def __init__(self, widths: Sequence[int], batch: int, dtype: np.dtype[Any], loss: str) -> None:
        self._loss, self._widths = loss, tuple(widths)
        self._bits = np.dtype(f"i{dtype.itemsize}")
        self._sign_bit = np.array(8 * dtype.itemsize - 1, self._bits)
        hidden = self._widths[:-1]
        self._outputs, self._residuals = ([np.empty(batch * n, dtype) for n in widths] for _ in range(2))
        self._zeros = [np.zeros(batch * n, dtype) for n in hidden]
        self._masks = [np.empty(batch * n, self._bits) for n in hidden]
        self._ones, self._blas = np.ones(batch, dtype), BLAS[dtype]
        self._batches: dict[int, _Batch] = {}

    def _batch(self, b: int) -> _Batch:
        if b not in self._batches:
            outputs, residuals, zeros, masks = (
                [flat[: b * n].reshape(n, b).T for flat, n in zip(some, self._widths, strict=False)]
                for some in (self._outputs, self._residuals, self._zeros, self._masks)
            )
            self._batches[b] = _Batch(outputs, residuals, zeros, masks, self._ones[:b])
        return self._batches[b]

    def forward(
        self, layers: Layers, rows: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None
    ) -> None:
        """Fill the activations and the last residual, the gradient of the summed loss by the outputs ``[b, C]``.

        Each row's loss counts ``weights [b]`` times; once where None.
        """
        a, memory = rows, self._batch(len(rows))
        for k, (weight, bias) in enumerate(layers):
            z = memory.outputs[k]
            np.matmul(a, weight.T, z)
            self._blas.ger(1.0, memory.ones, bias, 1, 1, z, 1, 1, 1)
            if k < len(memory.zeros):
                a = np.maximum(z, memory.zeros[k], out=z)  # with a scalar zero numpy is three times slower
        last = memory.residuals[-1]
        if self._loss != LOG_LOSS:
            last[:] = z
            residual(self._loss, last[:, 0], labels)
        elif z.shape[1] == 2:
            margin = z[:, 1] - z[:, 0]
            np.multiply(margin, 0.5, margin)
            np.tanh(margin, margin)  # sigmoid(m) = (1 + tanh(m/2))/2, which cannot overflow
            np.subtract(margin, labels, margin)
            np.multiply(margin, 0.5, last[:, 1])
            np.multiply(margin, -0.5, last[:, 0])
        else:
            last[:] = z
            softmax_residual(last, labels)
        if weights is not None:
            np.multiply(last, weights[:, None], last)

    def backward(self, layers: Layers, contrast: tuple[ContrastTerm, NDArray[Any]] | None, b: int) -> None:
        """Fill the residuals of all layers below the last, for a batch of ``b`` rows.

        ``contrast``: a further term of the loss, and its rows' directions ``[b, width]``.
        """
        memory = self._batch(b)
        for k in range(len(layers) - 1, 0, -1):
            a, below, mask = memory.outputs[k - 1], memory.residuals[k - 1], memory.masks[k - 1]
            np.matmul(memory.residuals[k], layers[k][0], below)
            if contrast is not None and k == len(layers) - 1:
                add_gradient(a, contrast[1], contrast[0].weight, contrast[0].temperature, below)
            # a >= 0 after ReLU, so the sign of -a as an integer is all ones where a > 0: a mask without booleans,
            # which numpy would convert to floats at twice the price
            np.negative(a.view(self._bits), mask)
            np.right_shift(mask, self._sign_bit, mask)
            bits = below.view(self._bits)
            np.bitwise_and(bits, mask, bits)

    def shorten(self, rows: NDArray[Any], factors: RowFactors, places: NDArray[np.int64]) -> None:
        """Shorten the gradient of each of a batch's ``rows``, which are the kernel's own copies.

        ``places``: where they are among the task's.
        """
        memory = self._batch(len(rows))
        received = [rows, *memory.outputs[:-1]]
        traces = [Traced(a, residuals) for a, residuals in zip(received, memory.residuals, strict=True)]
        each = factors(traces, places)
        lost = np.flatnonzero(each == 0)
        for a, residuals in traces:
            np.multiply(residuals, each[:, None], residuals)
            if len(lost):  # zero times what is not finite is not zero
                residuals[lost] = 0
                a[lost] = 0

    def step(self, rows: NDArray[Any], targets: Layers, scale: float, keep: tuple[float, float]) -> None:
        """``target <- keep * target + scale * gradient`` of the summed loss; ``keep`` of weights, and of biases."""
        b = len(rows)
        memory = self._batch(b)
        for k in range(len(targets) - 1, -1, -1):
            weight, bias = targets[k]
            if not b:
                np.multiply(weight, keep[0], weight)
                np.multiply(bias, keep[1], bias)
                continue
            residuals = memory.residuals[k]
            a, transposed = (memory.outputs[k - 1], 1) if k else (rows.T, 0)
            self._blas.gemm(scale, a, residuals, keep[0], weight.T, transposed, 0, 1)
            self._blas.gemv(scale, residuals, memory.ones, keep[1], bias, 0, 1, 0, 1, 1, 1)
