"""A hospital's visit under a guarantee for its patients: DP-SGD, or one clipped sum of gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.privacy import RowUnit
from raysim.core.streams import stream
from raysim.engine.updates.contributions import Contribution
from raysim.privacy.noise import Origin, normals
from raysim.strategies.base import Floats
from raysim.training.base import Model, Optimizer, Task
from raysim.training.kernels.clipped import Traceable, clipped_sum
from raysim.training.kernels.private_descent import PrivateSteps, descend, numbered


@dataclass(frozen=True, eq=False)
class PatientRelease:
    """What hospitals do for their patients; it travels with the plan of a round."""

    pooled: bool
    """Whether each sends one clipped sum of gradients with its share of the noise; else each makes noisy steps."""
    unit: RowUnit
    """Who is hidden."""
    clip: float
    """The longest gradient of a unit."""
    rows: int
    """The most rows of a unit."""
    rate: Floats
    """The chance of each unit to be drawn, by hospital ``[N]``."""
    multiplier: Floats
    """The deviation of each hospital's noise in clips, ``[N]``."""
    steps: tuple[int, ...]
    """How many steps each hospital makes in a visit, ``[N]``; one where pooled."""
    noise: Origin
    """Where the noise comes from."""


def pooled_gradient(
    model: Model, task: Task, release: PatientRelease, own: Contribution, seed: int, round: int, hospital: int
) -> Floats:
    """What a hospital sends in a pooled ``round``, ``[P]`` in float64: its units' gradients and its share of noise."""
    coins = stream(seed, "dp_batch", round, hospital, 0).random(own.patients) < release.rate[hospital]
    kept = np.flatnonzero(coins if own.single else coins[own.patient])
    total = np.zeros(len(task.start))
    if len(kept):
        rows = own.rows[kept]
        patient = None if own.single else numbered(own.patient[kept])
        weights = None if task.weights is None else task.weights[rows]
        layers = traceable(model).traced(task.start.astype(np.float64), task.X[rows], task.y[rows], weights)
        total += clipped_sum(layers, patient, release.clip)
    if release.multiplier[hospital]:
        noise = normals(release.noise, total.shape, seed, "dp_share", round, hospital)
        total += release.multiplier[hospital] * release.clip * noise
    return total


def private_visit(
    model: Model,
    task: Task,
    optimizer: Optimizer,
    release: PatientRelease,
    own: Contribution,
    seed: int,
    round: int,
    hospital: int,
) -> NDArray[Any]:
    """The parameters ``[P]`` with which a visit of noisy steps ends."""
    steps = PrivateSteps(
        patient=None if own.single else own.patient,
        patients=own.patients,
        rate=float(release.rate[hospital]),
        steps=release.steps[hospital],
        clip=release.clip,
        multiplier=float(release.multiplier[hospital]),
        coins=lambda step: stream(seed, "dp_batch", round, hospital, step),
        noise=lambda step, size: normals(release.noise, (size,), seed, "dp_noise", round, hospital, step),
    )
    weights = None if task.weights is None else task.weights[own.rows]
    theirs = replace(task, X=task.X[own.rows], y=task.y[own.rows], weights=weights)
    return descend(traceable(model), theirs, optimizer, steps, task.start.dtype)


def traceable(model: Model) -> Any:
    """The model, whose gradients :mod:`raysim.engine.reception.promise_checks` has seen that they can be clipped."""
    if not isinstance(model, Traceable):
        raise TypeError(f"{type(model).__name__} has no layers to clip")
    return model
