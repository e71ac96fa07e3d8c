"""The interface of local training, shared by all models and kernels.

A kernel runs LocalSGD (gradient descent on a hospital's own rows) for many hospitals. On a CPU, the result for a
hospital depends on that hospital's task alone. Results are therefore the same, bit for bit, however hospitals are
distributed over processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from raysim.core.early_stopping import Held
from raysim.core.words import as_yaml
from raysim.training.private import PrivateSteps

if TYPE_CHECKING:
    from torch import nn

    from raysim.trees.forest import Forest

Vector = NDArray[Any]  # [P], float32 or float64 by the run's precision


@dataclass(frozen=True)
class Layout:
    """The names and shapes of the tensors that are concatenated in a model's flat vector of ``P`` scalars.

    The last ``buffers`` tensors are statistics that a module measures as it trains, such as the running means of batch
    norm. Gradients do not change them.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    buffers: int = 0

    @property
    def size(self) -> int:
        """Return the number of scalars in the flat vector, ``P``."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def slices(self) -> dict[str, slice]:
        """Return each tensor's slice of the flat vector, by name."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        return {name: slice(a, b) for name, a, b in zip(self.names, [0, *ends], ends, strict=False)}

    @property
    def measured(self) -> frozenset[str]:
        """Return the names of the buffers."""
        return frozenset(self.names[len(self.names) - self.buffers :])

    @property
    def trained(self) -> int:
        """Return the number of scalars that gradients change; they come first in the flat vector."""
        return self.size - sum(math.prod(shape) for shape in self.shapes[len(self.shapes) - self.buffers :])

    def penalised(self, name: str) -> bool:
        """Return whether weight decay applies to a tensor. It applies to a tensor of two or more dimensions that is no
        buffer.
        """
        return name not in self.measured and len(self.shapes[self.names.index(name)]) > 1

    @cached_property
    def unpenalised(self) -> NDArray[np.bool_]:
        """Return a mask ``[P]`` that marks the scalars without weight decay."""
        mask = np.ones(self.size, np.bool_)
        for name, part in self.slices.items():
            mask[part] = not self.penalised(name)
        return mask

    def split(self, vector: Any) -> dict[str, Any]:
        """Split a flat ``vector [..., P]`` into one view ``[..., *shape]`` for each tensor, by name.

        The vector is a numpy array or a torch tensor.
        """
        views, at = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            n = math.prod(shape)
            views[name] = vector[..., at : at + n].reshape(*vector.shape[:-1], *shape)
            at += n
        return views


@dataclass(frozen=True)
class Optimizer:
    """The local optimiser. Each task starts with a fresh state, unless ``Task.moments`` is set.

    ``name`` is ``sgd``, ``momentum`` (coefficient 0.9) or ``adam`` (betas 0.9 and 0.999, eps 1e-8, bias-corrected).
    With ``batch_size`` 0 a batch consists of all rows of the hospital. ``Task.learning_rate`` has precedence over
    ``learning_rate``. ``weight_decay`` adds ``weight_decay/2 * |theta|^2`` to the loss, where ``theta`` are the
    parameters for which :meth:`Layout.penalised` is true. For Adam, the decay is not decoupled as in AdamW.
    """

    name: str
    learning_rate: float
    batch_size: int
    weight_decay: float = 0.0


@dataclass(eq=False)
class Moments:
    """The state that a hospital's optimiser keeps between two local updates.

    ``first [P]`` and ``second [P]`` are Adam's averages of gradients and of squared gradients. Momentum stores its
    velocity in ``first``. A vector is None if it is unused, and before the first local update. ``steps`` is the number
    of Adam's steps so far.
    """

    first: Vector | None = None
    second: Vector | None = None
    steps: int = 0


@dataclass(eq=False)  # not frozen: each local update makes one, and a frozen one takes three times as long to make
class Task:
    """One hospital's local training in one round.

    Training minimises the mean loss of batches over the parameters ``theta``. The loss includes the proximal terms
    ``sum_j weight_j/2 * |theta - towards_j|^2`` and the other terms below.

    - ``X [n, F]``, ``y [n]`` (class indices, or real-valued labels): the hospital's training rows. Without rows the
      result is ``start``.
    - ``start [P]``: the initial parameters.
    - ``proximal``: the pairs ``(weight_j, towards_j [P])`` of the proximal terms.
    - ``batches(epoch)``: a function that returns a random generator at the beginning of that epoch's stream. From this
      generator kernels draw the order of the epoch's rows, and then the model's random numbers (dropout). Kernels call
      ``batches`` once for each epoch, in order. If a batch consists of all rows, they call it only if the model draws
      random numbers.
    - ``linear [P]``: the coefficients of the additional term ``linear . theta``.
    - ``frozen [P]``: a mask of the parameters that do not change.
    - ``contrast``: a contrastive term, which few models support.
    - ``weights [n]``: factors of the rows' losses; None: all are 1. A batch of ``b`` rows has the loss
      ``1/b * sum weights[row] * loss[row]``.
    - ``moments``: the optimiser's state to continue from; None: a fresh state.
    - ``private``: steps of DP-SGD, which replace ``epochs`` and ``batches``. Only models that are
      :class:`raysim.training.kernels.clipped.Clippable` support them.
    - ``held``: validation rows for early stopping of trees; None for other models.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    start: Vector
    proximal: Sequence[tuple[float, Vector]]
    epochs: int
    learning_rate: float
    batches: Callable[[int], np.random.Generator]
    linear: Vector | None = None
    frozen: NDArray[np.bool_] | None = None
    contrast: ContrastTerm | None = None
    weights: NDArray[Any] | None = None
    moments: Moments | None = None
    private: PrivateSteps | None = None
    held: Held | None = None

    @property
    def works(self) -> bool:
        """Whether the task has at least one row and at least one step."""
        return bool(len(self.y) and (self.epochs if self.private is None else self.private.steps))


@dataclass(frozen=True, eq=False)
class ContrastTerm:
    """A task's contrastive term (MOON: Li et al., CVPR 2021, eq. 3).

    It draws the trained model's representation of a row towards the received model's representation, and away from the
    representation by the hospital's previous local model.
    """

    weight: float
    """The weight of the term in the objective (mu)."""
    temperature: float
    """The number by which similarities are divided (tau)."""
    received: Vector
    """The parameters ``[P]`` of the received model."""
    previous: Vector
    """The parameters ``[P]`` of the hospital's previous local model."""


class DeviceFull(Exception):
    """Raised if the device has too little memory to train the task with index ``task``."""

    def __init__(self, task: int, text: str) -> None:
        super().__init__(text)
        self.task = task


class Model(Protocol):
    """A model for ``F`` features, and for ``C`` classes or a real-valued label, on one device and in one precision.

    A model may have ``logits_of_many(theta [P], X [n, F]) -> [n]`` for rows of many hospitals in one call. A row's
    output and loss must then be the same, bit for bit, at any position and among any other rows. If the method is
    missing or None, ``logits`` is called for each hospital.
    """

    layout: Layout

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the initial parameters ``[P]``, with which all hospitals start."""

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the model's outputs for rows ``X [n, F]``, with the parameters ``theta [P]``.

        For two classes they are the log-odds of class 1, ``[n]``. For more classes they are logits ``[n, C]``, and for
        a real-valued label predictions ``[n]``.
        """

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the losses of rows, ``[n]``, from ``outputs`` of ``logits``."""

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Run LocalSGD for each task and return the parameters, ``[len(tasks), P]``.

        A model on a GPU may raise :class:`DeviceFull`.
        """


@runtime_checkable
class Exportable(Protocol):
    """The additional method of a :class:`Model` that can be exported as a plain ``torch`` module."""

    def as_module(self, theta: Vector) -> nn.Module:
        """Return a module with the parameters ``theta [P]`` that has the same outputs as ``logits``, in the run's
        precision."""


@runtime_checkable
class Grows(Protocol):
    """The additional method of a :class:`Model` that consists of decision trees."""

    def forest(self, theta: Vector) -> Forest:
        """Return the trees stored in ``theta [P]``."""


def whole(option: str, value: object, least: int) -> None:
    """Raise ``ValueError`` unless a model option's ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{option}: {as_yaml(value)} is not a whole number of at least {least}")
