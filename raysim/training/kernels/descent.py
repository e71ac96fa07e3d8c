"""What the numpy kernels share: the order of batches, proximal pulls and optimisers that BLAS can write into.

A kernel hands each mean gradient to BLAS as ``target <- keep * target + scale * gradient``. For plain SGD the target
is the parameters themselves: the step, the pull's shrinkage and the product that makes the gradient are one call, no
gradient is ever stored, and a hospital's parameters stay in the core's second-level cache from first batch to last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas

from raysim.training.base import Optimizer, Task, Vector

MOMENTUM = 0.9
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam


class Blas(NamedTuple):
    """The BLAS products of one precision. They write into their last array, which must be in Fortran order."""

    gemv: Callable[..., Any]  # (alpha, a, x, beta, y, offx, incx, offy, incy, trans, overwrite_y)
    gemm: Callable[..., Any]  # (alpha, a, b, beta, c, trans_a, trans_b, overwrite_c)
    axpy: Callable[..., Any]  # (x, y, n, a): y <- y + a x


BLAS = {
    np.dtype(np.float32): Blas(blas.sgemv, blas.sgemm, blas.saxpy),
    np.dtype(np.float64): Blas(blas.dgemv, blas.dgemm, blas.daxpy),
}


def rows_per_batch(batch_size: int, n: int) -> int:
    """Rows in a batch of a hospital with ``n`` rows: all of them when ``batch_size`` is 0 or holds them all."""
    return min(batch_size, n) if batch_size else n


def combined_pull(task: Task, dtype: DTypeLike) -> tuple[float, Vector | None]:
    """All pulls and the linear term as one: ``w = sum_j weight_j`` and ``sum_j weight_j * towards_j - linear [P]``.

    Their gradient at ``theta`` is ``w * theta - anchor``. The anchor is None when nothing pulls.
    """
    pulls = [(float(weight), towards) for weight, towards in task.pulls if weight != 0]
    if not pulls and task.linear is None:
        return 0.0, None
    anchor = np.zeros(len(task.start), dtype)
    if task.linear is not None:
        np.negative(task.linear, out=anchor, casting="same_kind")
    axpy = BLAS[anchor.dtype].axpy
    for weight, towards in pulls:
        axpy(towards, anchor, a=weight)
    return sum(weight for weight, _ in pulls), anchor


class StepRule(Protocol):
    """A local optimiser at work on one hospital's ``theta [P]``."""

    target: Vector
    keep: float
    scale: float

    def finish(self) -> None:
        """Complete the step, once the batch's gradient is in ``target``."""
        ...


class Sgd:
    """``theta <- (1 - lr w) theta - lr gradient + lr anchor``."""

    def __init__(self, theta: Vector, rate: float, weight: float, anchor: Vector | None) -> None:
        self.target = theta
        self.keep = 1.0 - rate * weight
        self.scale = -rate
        self._shift = None if anchor is None else np.multiply(anchor, rate, out=anchor)

    def finish(self) -> None:
        """See ``StepRule``."""
        if self._shift is not None:
            np.add(self.target, self._shift, self.target)


class Momentum:
    """``v <- .9 v + gradient + w theta - anchor; theta <- theta - lr v``, ``v = 0`` at the start (torch's form)."""

    def __init__(self, theta: Vector, rate: float, weight: float, anchor: Vector | None) -> None:
        self.target = np.zeros_like(theta)
        self.keep = MOMENTUM
        self.scale = 1.0
        self._theta, self._rate, self._weight, self._anchor = theta, rate, weight, anchor
        self._axpy = BLAS[theta.dtype].axpy

    def finish(self) -> None:
        """See ``StepRule``."""
        if self._anchor is not None:
            self._axpy(self._theta, self.target, a=self._weight)
            np.subtract(self.target, self._anchor, self.target)
        self._axpy(self.target, self._theta, a=-self._rate)


class Adam:
    """Kingma and Ba 2015, Algorithm 1, with bias correction; the pull is part of the gradient."""

    def __init__(self, theta: Vector, rate: float, weight: float, anchor: Vector | None) -> None:
        self.target = np.zeros_like(theta)
        self.keep = 0.0
        self.scale = 1.0
        self._theta, self._rate, self._weight, self._anchor = theta, rate, weight, anchor
        self._first, self._second, self._steps = np.zeros_like(theta), np.zeros_like(theta), 0
        self._axpy = BLAS[theta.dtype].axpy

    def finish(self) -> None:
        """See ``StepRule``."""
        gradient, first, second, axpy = self.target, self._first, self._second, self._axpy
        if self._anchor is not None:
            axpy(self._theta, gradient, a=self._weight)
            np.subtract(gradient, self._anchor, gradient)
        self._steps += 1
        np.multiply(first, BETA1, first)
        axpy(gradient, first, a=1 - BETA1)
        np.multiply(gradient, gradient, gradient)
        np.multiply(second, BETA2, second)
        axpy(gradient, second, a=1 - BETA2)
        np.multiply(second, 1 / (1 - BETA2**self._steps), gradient)
        np.sqrt(gradient, gradient)
        np.add(gradient, EPSILON, gradient)
        np.divide(first, gradient, gradient)
        axpy(gradient, self._theta, a=-self._rate / (1 - BETA1**self._steps))


class Frozen:
    """``update``, after whose every step the parameters ``frozen [P]`` of ``theta`` are put back where they were."""

    def __init__(self, update: StepRule, theta: Vector, frozen: NDArray[np.bool_]) -> None:
        self.target, self.keep, self.scale = update.target, update.keep, update.scale
        self._update, self._theta = update, theta
        self._frozen = np.flatnonzero(frozen)
        self._values = theta[self._frozen]

    def finish(self) -> None:
        """See ``StepRule``."""
        self._update.finish()
        self._theta[self._frozen] = self._values


OPTIMIZERS: dict[str, Callable[[Vector, float, float, Vector | None], StepRule]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
}


def one_by_one(
    tasks: Sequence[Task],
    size: int,
    dtype: DTypeLike,
    descend: Callable[[Task, Vector], None],
) -> NDArray[Any]:
    """Run ``descend(task, theta)`` in place for each task that has rows and epochs; ``[len(tasks), size]``.

    A diverging hospital yields infinities or NaN and no warning: the engine looks at what came out.
    """
    thetas = np.empty((len(tasks), size), dtype)
    with np.errstate(all="ignore"):
        for task, theta in zip(tasks, thetas, strict=True):
            theta[:] = task.start
            if len(task.y) and task.epochs:
                descend(task, theta)
    return thetas


def begin(
    optimizer: Optimizer, task: Task, theta: Vector, arrange: Callable[[Vector], Vector] | None = None
) -> StepRule:
    """A fresh optimiser state for ``task``; ``arrange`` brings a vector ``[P]`` into the order theta is kept in."""
    weight, anchor = combined_pull(task, theta.dtype)
    frozen = task.frozen
    if arrange is not None:
        anchor = None if anchor is None else arrange(anchor)
        frozen = None if frozen is None else arrange(frozen)
    update = OPTIMIZERS[optimizer.name](theta, float(task.learning_rate), weight, anchor)
    return update if frozen is None else Frozen(update, theta, frozen)


def largest(tasks: Sequence[Task], batch_size: int) -> tuple[int, int]:
    """The most rows of any task, and the most rows of any batch: what buffers must hold."""
    sizes = [len(task.y) for task in tasks if task.epochs]
    most = max(sizes, default=0)
    return most, max((rows_per_batch(batch_size, n) for n in sizes), default=0)


def softmax_residual(logits: NDArray[Any], y: NDArray[np.int64]) -> None:
    """Turn logits ``[b, C]`` into the summed cross-entropy's gradient ``softmax(logits) - onehot(y)``, in place."""
    np.subtract(logits, logits.max(axis=1, keepdims=True), logits)
    np.exp(logits, logits)
    np.divide(logits, logits.sum(axis=1, keepdims=True), logits)
    logits[np.arange(len(y)), y] -= 1
