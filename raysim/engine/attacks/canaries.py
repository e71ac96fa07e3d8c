"""Canaries of a privacy audit: their hospitals, their updates, and what the server observes of each canary.

Each canary has its own parameters in the model: those of a feature that is 0 in all rows except the canary's. In these
parameters, the other hospitals' updates contain only noise. The canary therefore affects only these parameters in what
the server receives.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from raysim.engine.attacks.own_attacks import Tampering
from raysim.engine.messages.update_sums import uploading
from raysim.engine.pipeline.step import Step
from raysim.strategies.base import Floats, Ids, LocalProblem, Mask, Update
from raysim.virtual_time.scheduling import ScheduledCohort


@dataclass(frozen=True, eq=False)
class Canaries(Tampering):
    """The ``M`` canaries of a privacy audit, which are hospitals or patients. Each canary is either in the data or left
    out.
    """

    hospital: Ids
    """The id of each canary's hospital, ``[M]``: the canary itself if canaries are hospitals, else the canary patient's
    hospital."""
    inside: Mask
    """Whether each canary is in the data, ``[M]``."""
    parameters: Ids
    """The indices of the ``k`` model parameters that belong to each canary's own feature, ``[M, k]``."""
    length: float | None
    """The 2-norm of the update that a canary hospital sends. None means that canaries are patients, and that no update
    is replaced."""
    single: bool
    """Whether the server receives each hospital's update separately; otherwise it receives only sums of updates."""

    def update(self, hospital: int, delta: Floats, limit: float) -> Floats:
        """Return the vector that replaces a hospital's trained update ``delta [P]``, before it is clipped and sent.

        A hospital that is a canary sends the canary's update, or zeros if the canary is left out; other hospitals send
        ``delta``. Magnitudes are below ``limit``, the largest value that sums can store.
        """
        which = np.flatnonzero(self.hospital == hospital)
        if self.length is None or not len(which):
            return delta
        crafted = np.zeros_like(delta)
        for k in which[self.inside[which]]:
            parameters = self.parameters[k]
            crafted[parameters] = min(self.length / np.sqrt(len(parameters)), limit / 2.0)
        return crafted

    def components(self, update: Update) -> Floats:
        """Return, for each of the ``M`` canaries, the component of a round's ``update`` along the canary's own
        parameters. It is 0 if the canary's hospital sent nothing.
        """
        root = np.sqrt(self.parameters.shape[1])
        if update.deltas is None or not self.single:
            return np.asarray(update.sums[:, self.parameters].sum(axis=(0, 2)) / root)
        along = np.zeros(len(self.hospital))
        for k, (hospital, parameters) in enumerate(zip(self.hospital, self.parameters, strict=True)):
            along[k] = update.deltas[update.ids == hospital][:, parameters].sum() / root
        return along


@dataclass
class Watch(Step):
    """The server's side of a privacy audit: records what the server observes of each of the ``canaries``."""

    canaries: Canaries
    rounds: list[Floats] = field(default_factory=list)
    """For each round, the component of the round's update along each canary, ``[M]``; see :meth:`Canaries.components`.
    """

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        if not self.canaries.single or cohort.problem is None or cohort.problem.sent is None:
            return cohort
        return replace(cohort, problem=uploading(cohort.problem, single=True))

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Canaries:
        return self.canaries

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        self.rounds.append(self.canaries.components(update))
        return update
