"""The tasks of a round's local updates: rows, start model, terms of the objective, optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from raysim.core.early_stopping import Held, Stop
from raysim.core.streams import Streams
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.client.failure_context import named
from raysim.engine.client.initial_model import Parameters, parameters
from raysim.engine.measuring.divisions import Groups
from raysim.engine.messages.memory import FIRST, MODEL, SECOND, STEPS, HospitalStates
from raysim.engine.messages.plan import RoundPlan
from raysim.engine.messages.update_sums import of_entry
from raysim.strategies.base import LAST, POOLED, LocalProblem, LocalTraining
from raysim.training.base import ContrastTerm, Moments, Optimizer, Task
from raysim.training.class_weights import row_weights


class Tasks:
    """The training task of each local update of a round. A local update uses all training rows of a hospital, or one
    group of them.

    ``states`` has what hospitals store between rounds; it may change between calls. ``open(pooled)`` returns the
    federation, with the training rows of all hospitals if ``pooled`` is true.
    """

    def __init__(
        self,
        plan: RoundPlan,
        problem: LocalProblem,
        open: Callable[[bool], Federation],
        states: HospitalStates,
        groups: Groups,
    ) -> None:
        self._plan, self._problem, self._open, self._states, self._groups = plan, problem, open, states, groups
        self._streams = dict[str, Streams]()

    def task(self, phase: LocalProblem, step: int, j: int, last: Parameters | None) -> Task:
        """Return the training task of local update ``j``.

        A strategy may define a sequence of local problems; ``phase`` is the problem at position ``step``. ``last [P]``
        is the result of the previous problem; None for the first problem.
        """
        plan, hospital = self._plan, int(self._plan.ids[j])
        X, y = self.rows(hospital, j)
        row = int(phase.start[j])  # comparing numpy integers with an enumeration is ten times slower
        start = last if row == LAST and last is not None else parameters(plan, row, hospital, self._states)
        objective = phase.objective
        weights = [(float(of_entry(term.weight, j)), term.towards[j]) for term in objective.proximal]
        contrast = None
        if objective.contrast is not None:
            previous = self._states.get(hospital, {}).get(MODEL, start)
            contrast = ContrastTerm(*objective.contrast, start, previous)
        return Task(
            X=X,
            y=y,
            start=start,
            proximal=[(weight, plan.models[row]) for weight, row in weights if weight],
            epochs=plan.work.epochs if phase.training.epochs is None else int(of_entry(phase.training.epochs, j)),
            learning_rate=self.rate(phase.training),
            batches=partial(self._stream(self._purpose(step, j)).at, hospital),
            frozen=objective.frozen,
            contrast=contrast,
            weights=row_weights(plan.work.class_weights, y),
            moments=self._moments(hospital) if phase.training.carry else None,
            held=None if plan.stop is None else self._held(hospital, plan.stop),
        )

    def _held(self, hospital: int, stop: Stop) -> Held:
        federation = self._open(False)
        rows = federation.rows(hospital, "validation")
        return Held(federation.X[rows], federation.y[rows], stop)

    def _moments(self, hospital: int) -> Moments:
        """Return the state of the hospital's optimiser, which training may overwrite."""
        memory = self._states.get(hospital, {})
        steps = memory.get(STEPS)
        return Moments(memory.get(FIRST), memory.get(SECOND), 0 if steps is None else int(steps[0]))

    def rows(self, hospital: int, j: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the features and labels on which local update ``j`` trains at ``hospital``. At a Byzantine hospital,
        an attack may have changed them.
        """
        X, y = self._true_rows(hospital, j)
        for step in self._plan.steps:
            X, y = step.rows(hospital, X, y)
        return X, y

    def _true_rows(self, hospital: int, j: int) -> tuple[NDArray[Any], NDArray[Any]]:
        federation, groups = self._open(hospital == POOLED), self._problem.groups
        if groups is not None:
            with named(federation, hospital, f"dividing its rows in round {self._plan.round}"):
                rows = self._groups.rows(federation, self._plan.division, hospital, "train", int(groups.group[j]))
            return federation.X[rows], federation.y[rows]
        if hospital == POOLED:
            everything = pooled_rows(federation)
            return federation.X[everything], federation.y[everything]
        training = federation.rows(hospital, "train")
        return federation.X[training], federation.y[training]

    def _stream(self, purpose: str) -> Streams:
        if purpose not in self._streams:
            self._streams[purpose] = Streams(self._plan.work.seed, purpose, self._plan.round)
        return self._streams[purpose]

    def _purpose(self, step: int, j: int) -> str:
        """Return the name of the random stream of batches. It differs between the local problems of a sequence and
        between groups of rows.
        """
        group = 0 if self._problem.groups is None else int(self._problem.groups.group[j])
        return "batch" + (f" {step}" if step else "") + (f" of group {group}" if group else "")

    def rate(self, training: LocalTraining) -> float:
        """Return the learning rate of a local update, by default that of the run."""
        return self._plan.work.optimizer.learning_rate if training.learning_rate is None else training.learning_rate

    def optimizer(self, training: LocalTraining) -> Optimizer:
        """Return the optimiser of the run, with the changes that the strategy requests for a local update."""
        usual = self._plan.work.optimizer
        return replace(
            usual,
            name=usual.name if training.optimizer is None else training.optimizer,
            batch_size=usual.batch_size if training.batch_size is None else training.batch_size,
        )
