"""Canaries in a run that is audited: where they are, what they send, and what the server sees of each of them.

Each canary has parameters of its own, those of a feature that is 0 in all other rows: in them, updates of others are
nothing but noise. What the server receives in these parameters, round by round, is all that the run reveals of the
canary.
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
    """``M`` canaries, hospitals or patients, each of them in the data or not."""

    hospital: Ids
    """The hospital that each one is, or is a patient of, ``[M]``."""
    inside: Mask
    """Which of them are in the data, ``[M]``."""
    parameters: Ids
    """The parameters of each canary's own feature, ``[M, k]``."""
    length: float | None
    """The 2-norm of the update that a canary hospital sends; None: canaries are patients, and their rows are there."""
    single: bool
    """Whether the server sees each hospital's update by itself; else it sees sums."""

    def update(self, hospital: int, delta: Floats, limit: float) -> Floats:
        """What ``hospital`` sends in place of ``delta [P]``, before clipping: zeros for a canary that is left out.

        All entries are below the ``limit`` of what sums can hold.
        """
        which = np.flatnonzero(self.hospital == hospital)
        if self.length is None or not len(which):
            return delta
        crafted = np.zeros_like(delta)
        for k in which[self.inside[which]]:
            parameters = self.parameters[k]
            crafted[parameters] = min(self.length / np.sqrt(len(parameters)), limit / 2.0)
        return crafted

    def seen(self, update: Update) -> Floats:
        """The component of a round's ``update`` along each canary, ``[M]``; 0 where its hospital sent nothing."""
        root = np.sqrt(self.parameters.shape[1])
        if update.deltas is None or not self.single:
            along: Floats = update.sums[:, self.parameters].sum(axis=(0, 2)) / root
            return along
        along = np.zeros(len(self.hospital))
        for k, (hospital, parameters) in enumerate(zip(self.hospital, self.parameters, strict=True)):
            along[k] = update.deltas[update.ids == hospital][:, parameters].sum() / root
        return along


@dataclass
class Watch(Step):
    """The server's half: what it has seen of ``canaries``."""

    canaries: Canaries
    rounds: list[Floats] = field(default_factory=list)
    """By round, ``[M]`` each; see :meth:`Canaries.seen`."""

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        if not self.canaries.single or cohort.problem is None or cohort.problem.sent is None:
            return cohort
        return replace(cohort, problem=uploading(cohort.problem, single=True))

    def half(self, round: int, problem: LocalProblem, ids: Ids) -> Canaries:
        return self.canaries

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        self.rounds.append(self.canaries.seen(update))
        return update
