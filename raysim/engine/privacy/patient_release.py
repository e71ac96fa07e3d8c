"""A hospital's local update under a guarantee for its patients: DP-SGD, or one sum of clipped gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from raysim.core.streams import stream
from raysim.data.contribution import Contribution
from raysim.privacy.noise import Origin, StepNormals, normals
from raysim.strategies.base import Floats
from raysim.training.base import Model, Task
from raysim.training.kernels.clipped import Clippable, numbered
from raysim.training.private import Coins, PrivateSteps, sampled

if TYPE_CHECKING:
    from raysim.config.sections.privacy import RowUnit


@dataclass(frozen=True, eq=False)
class PatientRelease:
    """How hospitals protect their patients in a round: the parameters of clipping and noise."""

    pooled: bool
    """Whether each hospital sends one sum of clipped gradients with its share of the noise (mode ``pooled``). If not,
    each hospital makes noisy steps (DP-SGD)."""
    unit: RowUnit
    """The unit that the noise protects: a patient or a row (``example``)."""
    clip: float
    """The norm to which the gradient of a patient or row is clipped."""
    rows: int
    """The largest number of rows of one patient that are used."""
    rate: Floats
    """The probability with which a training step samples each patient or row, by hospital, ``[N]``."""
    multiplier: Floats
    """The standard deviation of each hospital's noise, divided by ``clip``, ``[N]``."""
    expected: Floats
    """The expected number of patients or rows in a training step of each hospital, ``[N]``; unused in mode ``pooled``.
    """
    steps: tuple[int, ...]
    """The number of training steps of each hospital in one epoch, ``[N]``; 1 in mode ``pooled``."""
    noise: Origin
    """The source of random numbers for the noise: the seed (``seeded``) or the operating system (``system``)."""


def pooled_gradient(
    model: Model, task: Task, release: PatientRelease, contribution: Contribution, seed: int, round: int, hospital: int
) -> Floats:
    """Return what a hospital sends in a ``round`` of mode ``pooled``: the noisy sum of the clipped gradients of its
    patients or rows, in float64.
    """
    coins, patients = (
        stream(seed, "dp_batch", round, hospital, 0),
        None if contribution.single else contribution.patient,
    )
    chosen = sampled(coins, contribution.patients, float(release.rate[hospital]), patients)
    total: Floats | None = None
    if len(chosen):
        rows = contribution.rows[chosen]
        patient = None if patients is None else numbered(patients[chosen])
        weights = None if task.weights is None else task.weights[rows]
        start = task.start.astype(np.float64)
        total = clippable(model).clipped_sum(start, task.X[rows], task.y[rows], weights, patient, release.clip)
    if not release.multiplier[hospital]:
        return np.zeros(len(task.start)) if total is None else total
    noise = normals(release.noise, task.start.shape, seed, "dp_share", round, hospital)
    noise *= release.multiplier[hospital] * release.clip
    return noise if total is None else np.add(total, noise, noise)


def with_private_steps(
    task: Task, release: PatientRelease, contribution: Contribution, seed: int, round: int, hospital: int
) -> Task:
    """Return the task with privacy noise in each training step (DP-SGD). It trains only on the rows of
    ``contribution``.
    """
    rate, patient = float(release.rate[hospital]), None if contribution.single else contribution.patient
    count = release.steps[hospital] * int(task.epochs)
    steps = PrivateSteps(
        patient=patient,
        divisor=float(release.expected[hospital]),
        steps=count,
        clip=release.clip,
        multiplier=float(release.multiplier[hospital]),
        batch=Coins(stream(seed, "dp_batch", round, hospital), contribution.patients, rate, count, patient),
        noise=StepNormals(release.noise, count, seed, "dp_noise", round, hospital),
    )
    if contribution.everything:
        return replace(task, private=steps)
    weights = None if task.weights is None else task.weights[contribution.rows]
    return replace(task, X=task.X[contribution.rows], y=task.y[contribution.rows], weights=weights, private=steps)


def clippable(model: Model) -> Clippable:
    """Return the model, typed as one that clips gradients for each patient or row. :mod:`raysim.engine.privacy.checks`
    has checked that the model can do this.
    """
    # A call of isinstance would take longer than a small hospital's gradients.
    if getattr(model, "unclippable", "") is not None:
        raise TypeError(f"the gradients of {type(model).__name__} cannot be clipped")
    return cast(Clippable, model)
