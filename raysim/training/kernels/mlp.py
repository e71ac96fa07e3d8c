"""A multi-layer perceptron with ReLU and a manual gradient in numpy.

Hospitals are trained one at a time. On one core this is faster than products batched over hospitals, because the cache
has room for the weights of one hospital, but not of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.core.words import as_yaml
from raysim.training.base import ContrastTerm, Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.batches import batches
from raysim.training.kernels.clipped import DenseLayers, Traced
from raysim.training.kernels.contrast import directions
from raysim.training.kernels.descent import begin, end, largest, noise_of, one_by_one, softmax_residual
from raysim.training.kernels.mlp_passes import Layers, MlpClip, Passes, filled
from raysim.training.losses import LOG_LOSS, choose, residual, row_losses

if TYPE_CHECKING:
    from torch import nn


BLOCK = 128
"""The number of rows whose outputs are computed at once when many hospitals are evaluated together."""
BLOCKS = 8
"""The number of blocks, each of ``BLOCK`` rows, that are converted to the model's precision at once."""


@dataclass(frozen=True)
class MLP:
    """The family ``mlp``: multi-layer perceptrons."""

    labels: ClassVar[tuple[str, ...]] = ("classification", "regression")
    hidden: Sequence[int] = (256, 128)
    """The widths of the hidden layers, from the input on; empty for no hidden layer."""
    loss: str | None = None
    """The loss for a real-valued label: ``squared`` (also if None) or ``absolute``."""

    def __post_init__(self) -> None:
        widths = self.hidden
        if not isinstance(widths, list | tuple) or not all(type(width) is int and width > 0 for width in widths):
            raise ValueError(f"hidden: {as_yaml(widths)} is not a list of whole numbers of at least 1")
        object.__setattr__(self, "hidden", tuple(widths))

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """Return the model for ``F`` features and ``C`` classes; 0 classes mean a real-valued label."""
        loss = choose(self.loss, n_classes)
        widths = (n_features, *self.hidden, n_classes or 1)
        host = MlpModel(widths, init, precision, loss)
        if device == "cpu":
            return host
        from raysim.training.kernels.batched import Cohort, Dense

        return Cohort(host, Dense(widths, loss), device=device, precision=precision)


class MlpModel(DenseLayers):
    """A multi-layer perceptron. Its parameters are ``layers.<k>.weight [out, in]`` and ``layers.<k>.bias [out]``.

    ``widths`` is ``(F, hidden..., C)``, with the number ``C`` of outputs. For a real-valued label there is one output.
    """

    clips_contrast = True
    """Whether steps of DP-SGD clip the gradient of a contrastive term together with the gradient of the loss."""

    def __init__(self, widths: Sequence[int], init: str, precision: str, loss: str = LOG_LOSS) -> None:
        pairs = list(pairwise(widths))
        names = [f"layers.{k}.{part}" for k in range(len(pairs)) for part in ("weight", "bias")]
        shapes = [shape for fan_in, fan_out in pairs for shape in ((fan_out, fan_in), (fan_out,))]
        self.layout = Layout(tuple(names), tuple(shapes))
        self._widths, self._pairs = tuple(widths), pairs
        self._init, self._dtype, self._loss = init, np.dtype(precision), loss

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the initial parameters ``[P]``: uniform numbers of magnitude up to ``1/sqrt(in)`` as in torch, or
        zeros.

        ``in`` is the number of a layer's inputs. With hidden layers, gradient descent from zeros changes only the last
        layer's bias.
        """
        if self._init == "zeros":
            return np.zeros(self.layout.size)
        bounds = [1 / np.sqrt(fan_in) for fan_in, _ in self._pairs for _ in ("weight", "bias")]
        draws = [rng.uniform(-s, s, int(np.prod(shape))) for s, shape in zip(bounds, self.layout.shapes, strict=True)]
        return np.concatenate(draws)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the model's outputs for rows ``X [n, F]``; see :meth:`raysim.training.base.Model.logits`."""
        layers = self._layers(theta.astype(self._dtype, copy=False))
        with np.errstate(all="ignore"):
            a = self._below(layers, X)
            weight, bias = layers[-1]
            if len(bias) == 2:
                z: NDArray[Any] = a @ (weight[1] - weight[0]) + (bias[1] - bias[0])
                return z
            outputs: NDArray[Any] = a @ weight.T + bias
            return outputs if self._loss == LOG_LOSS else outputs[:, 0]

    @property
    def logits_of_many(self) -> Callable[[Vector, NDArray[Any]], NDArray[Any]] | None:
        """Return a function that computes outputs for rows of many hospitals in one call, or None.

        It is None for more than two classes, and if the rounding of a matrix product depends on a row's position. See
        :class:`raysim.training.base.Model`.
        """
        one_output = self._widths[-1] == (2 if self._loss == LOG_LOSS else 1)
        return self._logits_in_blocks if one_output and rows_may_move(self._widths, self._dtype) else None

    def _logits_in_blocks(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        layers, logits = self._layers(np.ascontiguousarray(theta, self._dtype)), np.empty(len(X), self._dtype)
        passes = Passes(self._widths, self._dtype, self._loss)
        with np.errstate(all="ignore"):
            for low in range(0, len(X), BLOCKS * BLOCK):
                rows = np.ascontiguousarray(X[low : low + BLOCKS * BLOCK], self._dtype)
                n = len(rows)
                if n % BLOCK:
                    rows = np.concatenate([rows, np.zeros((-n % BLOCK, X.shape[1]), self._dtype)])
                of_rows = np.empty(len(rows), self._dtype)
                for begin in range(0, len(rows), BLOCK):
                    block = slice(begin, begin + BLOCK)
                    outputs = passes.outputs(layers, rows[block])
                    of_rows[block] = outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
                logits[low : low + n] = of_rows[:n]
        return logits

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        from raysim.training.kernels.modules.exported import dense

        *hidden, (weight, bias) = self._layers(theta.astype(self._dtype, copy=False))
        if len(bias) == 2:
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
        return dense([*hidden, (weight, bias)])

    def _below(self, layers: Layers, X: NDArray[Any]) -> NDArray[Any]:
        """Return the inputs of the last layer for rows ``X``, ``[n, width]``."""
        a = X.astype(self._dtype, copy=False)
        for weight, bias in layers[:-1]:
            a = a @ weight.T
            a += bias
            np.maximum(a, np.zeros_like(bias), out=a)  # a scalar zero takes numpy longer
        return a

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of each row ``[n]``."""
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
        """Run LocalSGD for each task in turn, and return the trained parameters, ``[len(tasks), P]``."""
        n, _ = largest(tasks, optimizer.batch_size)
        buffer = np.empty((filled(n), self._pairs[0][0]), self._dtype)
        passes = Passes(self._widths, self._dtype, self._loss)

        def descend(task: Task, theta: Vector) -> None:
            self._descend(task, optimizer, theta, buffer, passes)

        return one_by_one(tasks, self.layout.size, self._dtype, descend)

    def _descend(self, task: Task, optimizer: Optimizer, theta: Vector, buffer: NDArray[Any], passes: Passes) -> None:
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
        v, private, clip, noise = apart, task.private, None, None
        if private is not None:
            clip, noise = MlpClip(private, X, buffer, passes), noise_of(private, update)
        keep = update.keep, update.keep + update.lift
        for gathered in batches(task, optimizer):
            order = gathered.rows
            if not gathered.whole:
                if clip is None:
                    # mode="clip" only because "raise" makes numpy copy `out` first; an order is never out of range
                    rows = X.take(order, 0, buffer[: len(order)], "clip")
                labels = y.take(order)
                ordered = None if weights is None else weights.take(order)
                v = None if apart is None else apart.take(order, 0)
            for step, (low, high) in enumerate(gathered.cuts, gathered.step):
                if high > low:
                    row_weights = None if ordered is None else ordered[low:high]
                    batch = rows[low:high] if clip is None else clip.gather(order[low:high])
                    contrast = None if task.contrast is None or v is None else (task.contrast, v[low:high])
                    passes.forward(layers, batch, labels[low:high], row_weights)
                    passes.backward(layers, contrast, len(batch))
                    if clip is not None:
                        clip.shorten(batch, order[low:high])
                    passes.step(batch, targets, update.scale / (private.divisor if private else high - low), keep)
                else:
                    for weight, bias in targets:
                        np.multiply(weight, keep[0], weight)
                        np.multiply(bias, keep[1], bias)
                if noise is not None:
                    noise(step)
                update.finish()
        end(update, task)

    def _apart(self, term: ContrastTerm, X: NDArray[Any]) -> NDArray[Any] | None:
        """Return the directions of the rows for MOON's contrastive term (:func:`.contrast.directions`),
        ``[n, width]``.

        Return None if the received model and the hospital's previous model are the same array.
        """
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
        views, at = [], 0
        for fan_in, fan_out in self._pairs:
            cut = at + fan_in * fan_out
            views.append((vector[at:cut].reshape(fan_out, fan_in), vector[cut : cut + fan_out]))
            at = cut + fan_out
        return views


@lru_cache
def rows_may_move(widths: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether a row has the same output, to the last bit, at every position in a block of rows.

    ``widths`` is as in :class:`MlpModel`.
    """
    rng = np.random.default_rng(0)
    model = MlpModel(widths, "default", dtype.name)
    theta, X = model.initial(rng).astype(dtype), rng.standard_normal((BLOCK, widths[0])).astype(dtype)
    outputs = model._logits_in_blocks(theta, X)
    moves = [2**k for k in range(BLOCK.bit_length() - 1)]
    return all(
        np.array_equal(np.roll(outputs, by, 0), model._logits_in_blocks(theta, np.roll(X, by, 0))) for by in moves
    )
