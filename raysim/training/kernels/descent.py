"""Parts that the numpy kernels share: proximal terms and optimisers.

For each mean gradient, a kernel calls BLAS to compute ``target <- keep * target + scale * gradient``. For plain SGD the
target is the parameters themselves, and no gradient is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas

from raysim.training.base import Moments, Optimizer, Task, Vector
from raysim.training.private import PrivateSteps

MOMENTUM = 0.9
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam


class Blas(NamedTuple):
    """The BLAS routines of one precision. They write the result into the last array argument, which must be in Fortran
    order."""

    gemv: Callable[..., Any]  # (alpha, a, x, beta, y, offx, incx, offy, incy, trans, overwrite_y)
    gemm: Callable[..., Any]  # (alpha, a, b, beta, c, trans_a, trans_b, overwrite_c)
    ger: Callable[..., Any]  # (alpha, x, y, incx, incy, a, overwrite_x, overwrite_y, overwrite_a): a <- a + alpha x y^T
    axpy: Callable[..., Any]  # (x, y, n, a): y <- y + a x


BLAS = {
    np.dtype(np.float32): Blas(blas.sgemv, blas.sgemm, blas.sger, blas.saxpy),
    np.dtype(np.float64): Blas(blas.dgemv, blas.dgemm, blas.dger, blas.daxpy),
}


def rows_per_batch(batch_size: int, n: int) -> int:
    """Return the number of rows in a batch at a hospital with ``n`` rows; ``batch_size`` 0 means all."""
    return min(batch_size, n) if batch_size else n


def combined_proximal(task: Task, dtype: DTypeLike) -> tuple[float, Vector | None]:
    """Combine a task's proximal terms and linear term into one weight ``w`` and one vector, the anchor.

    The gradient of these terms at ``theta [P]`` is ``w * theta - anchor``. The anchor is None if the task has no such
    terms.
    """
    proximal = [(float(weight), towards) for weight, towards in task.proximal if weight != 0]
    if not proximal and task.linear is None:
        return 0.0, None
    anchor = np.zeros(len(task.start), dtype)
    if task.linear is not None:
        np.negative(task.linear, out=anchor, casting="same_kind")
    axpy = BLAS[anchor.dtype].axpy
    for weight, towards in proximal:
        axpy(towards, anchor, a=weight)
    return sum(weight for weight, _ in proximal), anchor


class Decay(NamedTuple):
    """Weight decay with coefficient ``rate`` on all parameters but those at the indices ``free`` (mostly biases)."""

    rate: float
    free: NDArray[np.int64]

    def add_gradient(self, theta: Vector, weight: float, into: Vector) -> None:
        """Add the gradients of weight decay and of ``weight/2 * |theta|^2`` to ``into [P]``."""
        BLAS[theta.dtype].axpy(theta, into, a=weight + self.rate)
        into[self.free] -= self.rate * theta[self.free]


class StepRule(Protocol):
    """The local optimiser of one hospital, which changes the parameters ``theta [P]`` in place.

    In each step the kernel computes ``target <- keep * target + scale * gradient`` with the batch's gradient, and then
    calls ``finish``. For parameters without weight decay, the factor is ``keep + lift`` instead of ``keep``.
    """

    target: Vector
    keep: float
    scale: float
    lift: float

    def finish(self) -> None:
        """Complete a step, after the kernel has added the batch's gradient to ``target``."""

    def moments(self) -> Moments:
        """Return the optimiser's state for the hospital's next local update."""


class Sgd:
    """Plain SGD with proximal terms: ``theta <- (1 - lr w) theta - lr gradient + lr anchor``.

    ``w`` and ``anchor`` are those of :func:`combined_proximal`, and ``lr`` is the learning rate. The coefficient of
    weight decay is added to ``w``, except for parameters without decay.
    """

    def __init__(
        self, theta: Vector, rate: float, weight: float, anchor: Vector | None, decay: Decay | None, moments: Moments
    ) -> None:
        self.target = theta
        self.keep = 1.0 - rate * (weight if decay is None else weight + decay.rate)
        self.scale = -rate
        self.lift = 0.0 if decay is None else rate * decay.rate
        self._shift = None if anchor is None else np.multiply(anchor, rate, out=anchor)

    def finish(self) -> None:
        """See ``StepRule``."""
        if self._shift is not None:
            np.add(self.target, self._shift, self.target)

    def moments(self) -> Moments:
        """See ``StepRule``."""
        return Moments()


class Penalties:
    """The gradient of proximal and linear terms, plus the gradient of weight decay."""

    def __init__(self, theta: Vector, weight: float, anchor: Vector | None, decay: Decay | None) -> None:
        self._theta, self._weight, self._anchor, self._decay = theta, weight, anchor, decay
        self._axpy = BLAS[theta.dtype].axpy

    def add_gradient(self, into: Vector) -> None:
        """Add the gradient of all these terms to ``into [P]``."""
        if self._decay is not None:
            self._decay.add_gradient(self._theta, self._weight, into)
        elif self._anchor is not None:
            self._axpy(self._theta, into, a=self._weight)
        if self._anchor is not None:
            np.subtract(into, self._anchor, into)


class Momentum:
    """SGD with momentum in torch's form, with proximal terms and weight decay.

    A step is ``v <- 0.9 v + gradient + penalties; theta <- theta - lr v``, with the gradient of :class:`Penalties`.
    """

    lift = 0.0

    def __init__(
        self, theta: Vector, rate: float, weight: float, anchor: Vector | None, decay: Decay | None, moments: Moments
    ) -> None:
        self.target = _resumed(moments.first, theta)
        self.keep = MOMENTUM
        self.scale = 1.0
        self._theta, self._rate = theta, rate
        self._penalties = Penalties(theta, weight, anchor, decay)
        self._axpy = BLAS[theta.dtype].axpy

    def finish(self) -> None:
        """See ``StepRule``."""
        self._penalties.add_gradient(self.target)
        self._axpy(self.target, self._theta, a=-self._rate)

    def moments(self) -> Moments:
        """See ``StepRule``."""
        return Moments(first=self.target)


class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1), bias-corrected, with proximal terms and weight decay."""

    lift = 0.0

    def __init__(
        self, theta: Vector, rate: float, weight: float, anchor: Vector | None, decay: Decay | None, moments: Moments
    ) -> None:
        self.target = np.zeros_like(theta)
        self.keep = 0.0
        self.scale = 1.0
        self._theta, self._rate = theta, rate
        self._penalties = Penalties(theta, weight, anchor, decay)
        self._first, self._second = _resumed(moments.first, theta), _resumed(moments.second, theta)
        self._steps = moments.steps
        self._axpy = BLAS[theta.dtype].axpy

    def finish(self) -> None:
        """See ``StepRule``."""
        gradient, first, second, axpy = self.target, self._first, self._second, self._axpy
        self._penalties.add_gradient(gradient)
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

    def moments(self) -> Moments:
        """See ``StepRule``."""
        return Moments(self._first, self._second, self._steps)


def _resumed(vector: Vector | None, theta: Vector) -> Vector:
    return np.zeros_like(theta) if vector is None else vector.astype(theta.dtype)


class Frozen:
    """The optimiser ``update``, except that parameters in the mask ``frozen [P]`` keep their values."""

    def __init__(self, update: StepRule, theta: Vector, frozen: NDArray[np.bool_]) -> None:
        self.target, self.keep, self.scale, self.lift = update.target, update.keep, update.scale, update.lift
        self._update, self._theta = update, theta
        self._frozen = np.flatnonzero(frozen)
        self._values = theta[self._frozen]

    def finish(self) -> None:
        """See ``StepRule``."""
        self._update.finish()
        self._theta[self._frozen] = self._values

    def moments(self) -> Moments:
        """See ``StepRule``."""
        return self._update.moments()


OPTIMIZERS: dict[str, Callable[[Vector, float, float, Vector | None, Decay | None, Moments], StepRule]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
}


def one_by_one(
    tasks: Sequence[Task], size: int, dtype: DTypeLike, descend: Callable[[Task, Vector], None]
) -> NDArray[Any]:
    """Call ``descend(task, theta)``, which trains ``theta`` in place, for each task that has rows and steps.

    Returns the parameters of all tasks, ``[len(tasks), size]``. If a hospital's training diverges, its parameters are
    infinite or NaN, without a warning.
    """
    thetas = np.empty((len(tasks), size), dtype)
    with np.errstate(all="ignore"):
        for task, theta in zip(tasks, thetas, strict=True):
            theta[:] = task.start
            if task.works:
                descend(task, theta)
    return thetas


def begin(
    optimizer: Optimizer,
    task: Task,
    theta: Vector,
    unpenalised: NDArray[np.bool_],
    arrange: Callable[[Vector], Vector] | None = None,
) -> StepRule:
    """Return the optimiser for ``task``, with weight decay on all parameters except ``unpenalised [P]``.

    ``arrange`` converts a vector ``[P]`` to the memory order of ``theta``.
    """
    weight, anchor = combined_proximal(task, theta.dtype)
    frozen, moments = task.frozen, task.moments or Moments()
    if arrange is not None:
        anchor, frozen, first, second = (
            None if vector is None else arrange(vector) for vector in (anchor, frozen, moments.first, moments.second)
        )
        unpenalised, moments = arrange(unpenalised), Moments(first, second, moments.steps)
    decay = Decay(optimizer.weight_decay, np.flatnonzero(unpenalised)) if optimizer.weight_decay else None
    update = OPTIMIZERS[optimizer.name](theta, float(task.learning_rate), weight, anchor, decay, moments)
    return update if frozen is None else Frozen(update, theta, frozen)


def end(update: StepRule, task: Task, restore: Callable[[Vector], Vector] | None = None) -> None:
    """Store the optimiser's state in the task's ``moments``, unless this field is None.

    ``restore`` is the inverse of ``arrange`` in :func:`begin`.
    """
    if task.moments is not None:
        left = update.moments()
        task.moments.first, task.moments.second = (
            vector if vector is None or restore is None else restore(vector) for vector in (left.first, left.second)
        )
        task.moments.steps = left.steps


def noise_of(
    private: PrivateSteps, update: StepRule, arrange: Callable[[Vector], Vector] | None = None
) -> Callable[[int], None] | None:
    """Return a function that adds the noise of a step of DP-SGD to ``update.target``; None if there is no noise.

    ``arrange`` is as in :func:`begin`.
    """
    if not private.multiplier:
        return None
    target, factor = update.target, update.scale / private.divisor * private.multiplier * private.clip
    axpy = BLAS[target.dtype].axpy

    def add(step: int) -> None:
        noise: Vector = private.noise(step, len(target))
        axpy((noise if arrange is None else arrange(noise)).astype(target.dtype, copy=False), target, a=factor)

    return add


def largest(tasks: Sequence[Task], batch_size: int) -> tuple[int, int]:
    """Return the number of rows of the largest task, and of the largest batch."""
    some = [task for task in tasks if task.works]
    batches = [rows_per_batch(0 if task.private else batch_size, len(task.y)) for task in some]
    return max((len(task.y) for task in some), default=0), max(batches, default=0)


def softmax_residual(logits: NDArray[Any], y: NDArray[np.int64]) -> None:
    """Turn logits ``[b, C]`` in place into the gradient of the summed log loss, ``softmax(logits) - onehot(y)``."""
    np.subtract(logits, logits.max(axis=1, keepdims=True), logits)
    np.exp(logits, logits)
    np.divide(logits, logits.sum(axis=1, keepdims=True), logits)
    logits[np.arange(len(y)), y] -= 1
