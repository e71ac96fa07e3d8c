"""The terms of local training, shared by all models and kernels.

A kernel runs LocalSGD for many hospitals at once or one after another; what it returns for a hospital depends on that
hospital's task alone, never on its neighbours in the call, so that placement changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]  # [P], float32 or float64 by the run's precision


@dataclass(frozen=True)
class Layout:
    """How a flat parameter vector of length ``size`` is cut into named tensors, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """P, the number of scalars of the model."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def split(self, vector: Any) -> dict[str, Any]:
        """Views of ``vector [..., P]``, a numpy array or a torch tensor, by name, each ``[..., *shape]``."""
        views, at = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            n = int(np.prod(shape))
            views[name] = vector[..., at : at + n].reshape(*vector.shape[:-1], *shape)
            at += n
        return views


@dataclass(frozen=True)
class Optimizer:
    """The local optimiser; its state starts fresh every round.

    ``name`` is ``sgd``, ``momentum`` (coefficient .9) or ``adam`` (betas .9 and .999, eps 1e-8, bias-corrected).
    ``batch_size`` 0 is the full batch. ``learning_rate`` may be overridden per task.
    """

    name: str
    learning_rate: float
    batch_size: int


@dataclass(frozen=True, eq=False)
class Task:
    """What one hospital minimises in one round: its mean batch loss plus ``sum_j weight_j/2 * |theta - towards_j|^2``.

    ``X [n, F]`` and ``y [n]`` are its training rows (``n`` may be 0: the result is ``start``), ``start [P]`` the
    parameters it begins from, ``pulls`` the pairs ``(weight_j, towards_j [P])``. ``batches(epoch)`` is a fresh
    generator for that epoch's permutation; kernels call it once an epoch, in order, and not at all for a full batch
    (``batch_size`` 0, or one that holds all ``n`` rows).
    """

    X: NDArray[Any]
    y: NDArray[np.int64]
    start: Vector
    pulls: Sequence[tuple[float, Vector]]
    epochs: int
    learning_rate: float
    batches: Callable[[int], np.random.Generator]


def row_losses(logits: NDArray[Any], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """The log loss of each row ``[n]`` from margins of class 1 ``[n]`` or logits ``[n, C]``, in float64."""
    z = logits.astype(np.float64)
    if z.ndim == 1:
        losses: NDArray[np.float64] = np.logaddexp(0.0, z) - y * z
    else:
        losses = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    return losses


class Model(Protocol):
    """A model family bound to its numbers of features ``F`` and classes ``C``, and to a device and precision."""

    layout: Layout

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """The common starting parameters ``[P]``."""
        ...

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """``[n]`` margins of class 1 for two classes, else ``[n, C]`` logits."""
        ...

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """LocalSGD for each task: the parameters after training, ``[len(tasks), P]`` in the run's precision."""
        ...
