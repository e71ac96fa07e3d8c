"""Geometric median under secure aggregation: smoothed Weiszfeld iterations, each of which is one secure sum.

K. Pillutla, S. M. Kakade, Z. Harchaoui: *Robust Aggregation for Federated Learning*, IEEE Transactions on Signal
Processing 2022, Algorithm 2 (smoothed Weiszfeld). In each iteration (pass), hospital ``i`` receives the current
estimate ``z`` of the median, at first 0. It sends ``b_i delta_i`` and ``b_i = w_i / max(nu, |delta_i - z|)``, where
``delta_i`` is its update, ``w_i`` its weight in the median, and ``nu`` a small constant. The sum of ``b_i delta_i``
divided by the sum of ``b_i`` is the next estimate. The method does not resist a hospital that sends a false ``b_i``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.config.sections.aggregation import AggregationSection
from raysim.core.errors import ConfigError
from raysim.engine.attacks.robust_rule import check_ruled
from raysim.engine.messages.memory import HELD, HELD_LOSS
from raysim.engine.messages.steps import EXTRAS, HospitalStep, Leaving
from raysim.engine.messages.update_sums import by_sum, weighed
from raysim.engine.pipeline.step import Step
from raysim.strategies.base import Floats, Ids, LocalProblem, Update
from raysim.virtual_time.scheduling import ScheduledCohort

PASSES = 3
"""The number of Weiszfeld iterations (passes) in a round."""

NU = 1e-6
"""The smallest distance from the current estimate that counts: closer updates are weighted as if they were at this
distance."""

SCALE = 0.01
"""The factor by which all weights ``b_i`` are multiplied, so that the largest weight fits the integers that store
sums."""


@dataclass(frozen=True, eq=False)
class Pass(HospitalStep):
    """The hospital's side of one Weiszfeld iteration (pass).

    The hospital trains only in the first pass of a round and stores its update until the last pass. In each pass it
    sends the update times a weight ``b_i``, and a vector ``[G]``: ``b_i`` for the sum that contains the update, 0 for
    the other sums.
    """

    centres: Floats
    """The current estimate of the median for each of the ``G`` sums, ``[G, P]``."""
    trains: bool = True
    last: bool = False
    """Whether this is the last pass, after which hospitals delete the stored update."""
    remembers = True

    def forward(self, leaving: Leaving) -> None:
        delta, group = leaving.checked(), leaving.sum_index
        if self.trains:
            leaving.remember(HELD, leaving.update)
            leaving.remember(HELD_LOSS, np.array([leaving.loss()]))
        elif self.last:
            leaving.forget(HELD, HELD_LOSS)
        weight = SCALE / max(NU, float(np.linalg.norm(delta - self.centres[group])))
        leaving.update = weight * delta
        leaving.vectors[EXTRAS] = weight * (np.arange(len(self.centres)) == group)


class SecureGeometricMedian(Step):
    """The server's side of the geometric median: the Weiszfeld iterations (passes) of each round of one job.

    ``name`` is the strategy's name in errors. ``sizes [N]`` are the hospitals' numbers of training rows.
    """

    def __init__(self, section: AggregationSection, name: str, sizes: Ids) -> None:
        self._section, self._name, self._sizes = section, name, sizes
        self._problem: LocalProblem | None = None
        self._centres: Floats = np.zeros((0, 0))
        self.number = 0
        """The current pass of the round, counted from 0."""

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> Pass | None:
        return None if problem.sent is None else Pass(self._centres, self.number == 0, self.number == PASSES - 1)

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with the local problem of the first pass."""
        problem, ids, size = cohort.problem, cohort.ids, cohort.state.models.shape[1]
        if problem is None or problem.sent is None:
            return cohort
        check_ruled(problem, self._name)
        sent = problem.sent
        section, weight = self._section, by_sum(sent)
        if problem.groups is not None or (sent.weight is not None and sent.weight.ndim > 1):
            raise ConfigError(
                f"aggregation.name: '{section.name}' under secure.mode needs exactly one update of each hospital, but "
                f"strategy '{self._name}' sends more; choose another strategy or leave secure out"
            )
        mass = np.ones(len(ids))
        if section.weights == "capped":
            mass = np.minimum(self._sizes[ids], section.cap).astype(np.float64)
        even = (weight != 0) * mass[:, None]
        each = (even / np.maximum(even.sum(axis=0), 1e-300)).sum(axis=1)
        self.number, self._problem = 0, passing(weighed(problem, each))
        self._centres = np.zeros((sent.sums, size))
        return replace(cohort, problem=self._problem)

    def further(self, update: Update) -> LocalProblem | None:
        self.number += 1
        if update.numbers is None:
            return None
        # Before sums are scaled up for hospitals that were lost: each sum has its own factor, and the numbers another.
        self._centres = points(update)
        return None if self.number >= PASSES else self._problem

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        """Return the update as the strategy receives it: each sum is its total weight times the geometric median of its
        updates.
        """
        sent = problem.sent
        if sent is None or update.numbers is None:
            return update
        sums = self._centres * by_sum(sent).sum(axis=0)[:, None]
        return replace(update, sums=sums, numbers=None, problem=problem)


def points(update: Update) -> Floats:
    """Return the estimate of the median for each sum after a pass, ``[G, P]``; 0 for a sum that was discarded."""
    if update.numbers is None:
        raise ValueError("update.numbers: is None, so the sums of hospitals' weights are missing")
    weights = update.numbers[:, None]
    return np.asarray(np.divide(update.sums, weights, out=np.zeros_like(update.sums), where=weights > 0))


def passing(problem: LocalProblem) -> LocalProblem:
    """Return a copy of ``problem`` in which each hospital also sends its weight ``b_i``, as one number for each sum."""
    if problem.upload is not None:
        return replace(problem, upload=replace(problem.upload, extra_numbers=problem.upload.sums))
    return problem if problem.then is None else replace(problem, then=passing(problem.then))
