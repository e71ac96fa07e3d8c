"""DP-SGD at one hospital: patients drawn by coins, their gradients clipped, and noise in every step.

M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar, L. Zhang: *Deep Learning with Differential
Privacy*, CCS 2016, Algorithm 1. The divisor is the expected number of patients in a batch and never the number drawn,
which would tell who is there; a batch of nobody makes a step of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Layout, Optimizer, Task, Vector
from raysim.training.kernels.clipped import Traced, clipped_sum
from raysim.training.kernels.descent import begin, end


class PrivateModel(Protocol):
    """A model whose gradients can be clipped by patient; see :class:`raysim.training.kernels.clipped.Traceable`."""

    layout: Layout

    def traced(self, theta: Vector, X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None) -> list[Traced]:
        """Each layer's trace."""
        ...


@dataclass(frozen=True, eq=False)
class PrivateSteps:
    """How a hospital descends under a guarantee for its patients."""

    patient: NDArray[np.int64] | None
    """The patient of each of the task's rows, ascending ``[n]``, out of ``0..patients-1``; None: each row is one."""
    patients: int
    """How many there are, known to all."""
    rate: float
    """The chance of each patient to be in a batch."""
    steps: int
    """How many steps are made, whoever is drawn."""
    clip: float
    """The longest gradient of a patient."""
    multiplier: float
    """The deviation of the noise in clips."""
    coins: Callable[[int], np.random.Generator]
    """``coins(step)``: a fresh generator of a step's draw."""
    noise: Callable[[int, int], NDArray[np.float64]]
    """``noise(step, P)``: a step's standard normal numbers ``[P]``."""


def numbered(patient: NDArray[np.int64]) -> NDArray[np.int64]:
    """The patients of rows ``[n]``, ascending, by the numbers 0, 1, ... of those that there are."""
    return np.concatenate([[0], np.cumsum(np.diff(patient) != 0)])


def descend(model: PrivateModel, task: Task, optimizer: Optimizer, private: PrivateSteps, dtype: Any) -> Vector:
    """The parameters after a visit, ``[P]``; a hospital without patients stays at its start."""
    theta = task.start.astype(dtype, copy=True)
    if not private.patients or not private.steps:
        return theta
    update = begin(optimizer, task, theta, model.layout.unpenalised)
    spared, divisor = model.layout.unpenalised, private.rate * private.patients
    with np.errstate(all="ignore"):
        for step in range(private.steps):
            drawn = private.coins(step).random(private.patients) < private.rate
            rows = np.flatnonzero(drawn if private.patient is None else drawn[private.patient])
            gradient = np.zeros(len(theta), dtype)
            if len(rows):
                patient = None if private.patient is None else numbered(private.patient[rows])
                weights = None if task.weights is None else task.weights[rows]
                layers = model.traced(theta, task.X[rows], task.y[rows], weights)
                gradient = clipped_sum(layers, patient, private.clip)
            if private.multiplier:
                noise = private.noise(step, len(theta))
                gradient = gradient + (private.multiplier * private.clip * noise).astype(dtype)
            target = update.target
            lifted = update.lift * target[spared] if update.lift else None
            np.multiply(target, update.keep, target)
            np.add(target, (update.scale / divisor) * gradient, target, casting="same_kind")
            if lifted is not None:
                target[spared] += lifted
            update.finish()
    end(update, task)
    return theta
