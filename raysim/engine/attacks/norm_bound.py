"""The rule ``norm_bound`` if the server receives only sums: each hospital clips its own update."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.engine.attacks.robust_rule import check_ruled
from raysim.engine.messages.steps import HospitalStep, Leaving
from raysim.engine.messages.update_sums import weighed
from raysim.engine.pipeline.step import Step
from raysim.privacy.clip import clipped
from raysim.strategies.base import Ids, LocalProblem, Update
from raysim.virtual_time.scheduling import ScheduledCohort


@dataclass(frozen=True)
class Clip(HospitalStep):
    """The hospital's side of the rule ``norm_bound``: clip the update to the 2-norm ``bound``."""

    bound: float

    def forward(self, leaving: Leaving) -> None:
        (leaving.update,) = clipped([leaving.checked()], self.bound)


@dataclass(frozen=True)
class NormBound(Step):
    """The server's side of the rule ``norm_bound``: it gives all updates in a sum the same weight, unless
    ``weights_fixed`` is true.
    """

    bound: float
    name: str
    """The strategy's name in errors."""
    weights_fixed: bool
    """Whether a privacy guarantee has fixed the weights of updates, so that the rule leaves them unchanged."""

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        problem = cohort.problem
        if problem is None or problem.sent is None:
            return cohort
        check_ruled(problem, self.name)
        weight = problem.sent.weight
        if weight is None or self.weights_fixed:
            return cohort
        if weight.ndim == 1:
            into = np.zeros(len(weight), dtype=np.int64) if problem.sent.sum_index is None else problem.sent.sum_index
            even = (np.bincount(into, weights=weight) / np.maximum(np.bincount(into), 1))[into]
        else:
            even = np.where(weight != 0, weight.sum(axis=0) / np.maximum((weight != 0).sum(axis=0), 1), 0.0)
        return replace(cohort, problem=weighed(problem, even))

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Clip | None:
        return None if problem.sent is None else Clip(self.bound)

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        return replace(update, problem=problem)
