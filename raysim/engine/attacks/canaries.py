"""Canaries of a privacy audit (artificial hospitals or patients): their hospitals, their updates, and what the server
observes of each canary.

Each canary has its own parameters in the model: those of a feature that is 0 in all rows except the canary's. In these
parameters, the other hospitals' updates contain only noise.
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
    """The id of each canary's hospital, ``[M]``. If canaries are hospitals, it is the canary itself."""
    inside: Mask
    """Whether each canary is in the data, ``[M]``."""
    parameters: Ids
    """The indices of the ``k`` model parameters that belong to each canary's own feature, ``[M, k]``."""
    length: float | None
    """The 2-norm of the update that a canary hospital sends. None means that canaries are patients, whose hospitals
    send their trained updates."""
    single: bool
    """Whether the server receives each hospital's update, or only sums of updates."""

    def update(self, hospital: int, delta: Floats, limit: float) -> Floats:
        """Return what a hospital sends in place of its trained update ``delta [P]``.

        Hospitals that are canaries send the canary's update, or zeros if the canary is left out. Magnitudes are below
        ``limit``, the largest value that sums can store.
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
        """Return the component of a round's ``update`` in the direction of each canary, ``[M]``.

        The direction has equal entries at the canary's own parameters, and 0 elsewhere. If the server receives single
        updates, the component is 0 for a canary whose hospital sent nothing.
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
    """The server's side of a privacy audit: it records what the server observes of each canary."""

    canaries: Canaries
    rounds: list[Floats] = field(default_factory=list)
    """The result of :meth:`Canaries.components` in each round, ``[M]``."""

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        if not self.canaries.single or cohort.problem is None or cohort.problem.sent is None:
            return cohort
        return replace(cohort, problem=uploading(cohort.problem, single=True))

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Canaries:
        return self.canaries

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        self.rounds.append(self.canaries.components(update))
        return update
