"""The release of updates under a privacy guarantee: updates are clipped, and their weights reveal nothing.

The weights of federated averaging depend on which other hospitals take part. Here, each sum is divided by the total
weight of all its hospitals times their probability of taking part. A hospital's weight then does not depend on whether
another hospital takes part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raysim.core.errors import ConfigError
from raysim.engine.messages.steps import HospitalStep, Leaving
from raysim.engine.privacy.patient_release import PatientRelease
from raysim.privacy.clip import clipped, norm
from raysim.privacy.noise import Origin, normals
from raysim.strategies.base import Floats, Ids, LocalProblem

if TYPE_CHECKING:
    from raysim.config.sections.privacy import PrivacySection
    from raysim.engine.messages.plan import RoundPlan


@dataclass(frozen=True, eq=False)
class Release(HospitalStep):
    """The clipping and noise that a hospital applies to its update before sending it."""

    clip: float = math.inf
    """The norm to which all vectors that a hospital sends are clipped jointly."""
    own_noise: float = 0.0
    """The standard deviation of the noise that each hospital adds to its message. If ``among`` is given, it is the
    standard deviation of the noise on the whole sum."""
    among: Floats | None = None
    """The number by which ``own_noise`` is divided at each hospital, so that the hospital adds only a share, ``[N]``.
    None means that each hospital adds the full noise."""
    noise: Origin = "seeded"
    """The source of random numbers for the noise: the seed (``seeded``) or the operating system (``system``)."""
    bit: bool = False
    """Whether each hospital also sends one bit that says whether its update was within the clipping bound. The bits are
    added in a separate last sum."""
    own_bit: float = 0.0
    """The standard deviation of the noise that each hospital adds to its bit."""
    patients: PatientRelease | None = None
    """How a hospital's patients are protected; None means that the hospital itself is protected."""
    seed: int = 0
    round: int = 0

    @property
    def hides(self) -> bool:
        """Whether the noise hides the whole hospital, and not only its patients."""
        return self.patients is None

    def forward(self, leaving: Leaving) -> None:
        if not self.hides:
            return  # training has hidden patients
        hospital, names, vectors = leaving.hospital, list(leaving.vectors), list(leaving.vectors.values())
        if self.bit:
            leaving.bit = self.short(vectors, self.seed, self.round, hospital)
        noisy = self.leaving(vectors, self.seed, self.round, hospital)
        leaving.vectors = dict(zip(names, noisy, strict=True))
        leaving.keep_private()

    def short(self, vectors: Sequence[Floats], seed: int, round: int, hospital: int) -> float:
        """Return the noisy bit that a ``hospital`` sends. Before noise it is 1/2 if the joint norm of ``vectors`` is at
        most the clipping bound, else -1/2.
        """
        bit = 0.5 if norm(vectors) <= self.clip else -0.5
        if not self.own_bit:
            return bit
        return bit + self.own_bit * float(normals(self.noise, (1,), seed, "dp_local_bit", round, hospital)[0])

    def leaving(self, vectors: Sequence[Floats], seed: int, round: int, hospital: int) -> list[Floats]:
        """Clip a hospital's ``vectors`` jointly, add the hospital's noise, and return them. If any value is not
        finite, all vectors become zeros before the noise is added.
        """
        short = clipped(vectors, self.clip)
        if not self.own_noise:
            return short
        key = (seed, "dp_local", round, hospital)
        scale = self.own_noise if self.among is None else self.own_noise / float(self.among[hospital])
        return [each + scale * normals(self.noise, each.shape, *key, k) for k, each in enumerate(short)]


def release_of(plan: RoundPlan) -> Release | None:
    """Return the clipping and noise that hospitals apply to updates in the round of a ``plan``; None without a privacy
    guarantee.
    """
    return next((step for step in plan.steps if isinstance(step, Release)), None)


@dataclass(frozen=True, eq=False)
class FixedWeights:
    """Weights of updates that do not depend on which hospitals take part."""

    weight: Floats
    """The weight of each hospital's update, ``[N]``."""
    shares: Floats
    """The largest possible weight of an update in each of the ``G`` sums, ``[G]``; 0 for a sum without hospitals."""
    extra: float
    """The largest possible weight of the further numbers that hospitals send together with each update."""
    members: Ids
    """The number of hospitals in each hospital's sum, including itself, ``[N]``; 0 for a hospital in no sum."""


def fixed_weights(everyone: LocalProblem, ids: Ids, sizes: Ids, rate: float, section: PrivacySection) -> FixedWeights:
    """Return the weights of a round in which each of the hospitals ``ids`` takes part with probability ``rate``.

    ``everyone`` is the local problem of a round in which all hospitals take part. ``sizes [N]`` are the hospitals'
    numbers of training rows. The members of a sum are the hospitals whose updates belong to it.

    Uniform weights are ``1 / (rate * number of members)``. Capped weights are ``min(size / cap, 1) / (rate * total)``,
    where ``cap`` is configured and ``total`` is the sum of ``min(size / cap, 1)`` over the members.
    """
    sent = everyone.sent
    if sent is None:
        raise ValueError("the problem declares no update that hospitals send")
    counts = np.ones(len(sizes)) if section.cap is None else np.minimum(sizes / section.cap, 1.0)
    into = np.zeros_like(ids) if sent.sum_index is None else sent.sum_index
    totals = rate * np.bincount(into, weights=counts[ids], minlength=sent.sums)
    if everyone.spread:  # a hospital's choice of sum is hidden, so every hospital is in all sums
        totals[:] = totals[0]
    shares = np.divide(1.0, totals, out=np.zeros(sent.sums), where=totals > 0)
    weight = np.zeros(len(sizes))
    weight[ids] = counts[ids] * shares[into]
    members, extra = np.zeros(len(sizes), dtype=np.int64), sent.extra_weight
    members[ids] = len(ids) if everyone.spread else np.bincount(into, minlength=sent.sums)[into]
    return FixedWeights(weight, shares, float((shares if extra is None else extra).max(initial=0.0)), members)


def check_sent(problem: LocalProblem, name: str) -> None:
    """Raise ``ConfigError`` if hospitals send anything besides the clipped updates, which are visible only as a sum."""
    sent = problem.sent
    if sent is None:
        return
    reasons = {
        "sends each update separately": sent.single,
        "sends hospitals' losses": sent.losses,
        "sends whole models": sent.what == "parameters",
        "adds an update to several sums": sent.weight is not None and sent.weight.ndim > 1,
        "trains on groups of patients": problem.groups is not None,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigError(
                f"privacy.unit: strategy '{name}' {reason}, which a clipped sum does not hide; choose another strategy"
            )


def check_patient_problem(
    problem: LocalProblem, name: str, unit: str, *, pooled: bool, contrasts: bool, epochs: int
) -> None:
    """Raise ``ConfigError`` for a local problem whose training steps cannot protect the privacy ``unit`` by noise.

    ``name`` is the strategy's name in errors. ``pooled`` says whether gradients are pooled, and ``contrasts`` whether
    the model also clips the gradient of a contrastive term. ``epochs`` is the number of epochs for which the noise was
    chosen. Local training after the update has been sent is not checked, because its result stays at the hospital.
    """
    sent, objective = problem.sent, problem.objective
    if sent is None:
        return
    reasons = {
        "trains other models before those that it sends": problem.upload is None,
        "sends hospitals' losses": sent.losses,
        "trains on groups of patients": problem.groups is not None,
        # A model made only by noisy steps is as private as the update.
        "starts from models that stay at hospitals": problem.then is not None and bool((problem.start < 0).any()),
        "has a contrastive term": objective.contrast is not None and (pooled or not contrasts),
        "trains with its own client program": problem.program is not None,
        "freezes parameters": objective.frozen is not None,
        "trains for more epochs than training.local_epochs": not pooled
        and bool(np.max(epochs if problem.training.epochs is None else problem.training.epochs, initial=0) > epochs),
        "continues with an earlier optimiser": problem.training.carry,
    }
    if pooled:
        reasons |= {
            "starts from models that stay at hospitals": bool((problem.start < 0).any()),
            "adds an update to several sums": sent.weight is not None and sent.weight.ndim > 1,
            "sends each update separately": sent.single,
            "sends whole models": sent.what == "parameters",
        }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigError(
                f"privacy.unit: {unit} cannot be guaranteed, because strategy '{name}' {reason}; choose another "
                "strategy"
            )
