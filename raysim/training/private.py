"""How a hospital descends under a guarantee for its patients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PrivateSteps:
    """DP-SGD: patients drawn by coins, their gradients clipped, noise in every step.

    M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar, L. Zhang: *Deep Learning with Differential
    Privacy*, CCS 2016, Algorithm 1. The divisor is the expected number of patients in a batch and never the number
    drawn, which would tell who is there; a batch of nobody makes a step of noise.
    """

    patient: NDArray[np.int64] | None
    """The patient of each of the task's rows, ascending ``[n]``; None: each row is one."""
    divisor: float
    """The expected number of patients in a batch."""
    steps: int
    """How many steps are made, whoever is drawn."""
    clip: float
    """The longest gradient of a patient."""
    multiplier: float
    """The deviation of the noise in clips."""
    batch: Callable[[int], NDArray[np.int64]]
    """``batch(step)``: the rows of the patients that a step has drawn, ascending."""
    noise: Callable[[int, int], NDArray[np.float64]]
    """``noise(step, P)``: a step's standard normal numbers ``[P]``."""
    planted: NDArray[np.bool_] | None = None
    """An auditor's rows ``[n]``: what comes back to the first layer of them is a unit vector, and to others 0."""


def drawn(
    coins: np.random.Generator, patients: int, rate: float, patient: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The rows of those of so many patients whose coins fall by ``rate``, ascending; ``patient`` as above."""
    heads = coins.random(patients) < rate
    return (heads if patient is None else heads[patient]).nonzero()[0]
