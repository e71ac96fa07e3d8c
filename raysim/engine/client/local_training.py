"""A round's training at the hospitals of one process: each local update's chain of problems, and what it sends.

The problem has been checked (:mod:`raysim.strategies.checks`): its rows are those of the server's models, and its
entries fit the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import RaysimError
from raysim.data.contribution import Contribution
from raysim.data.federation import Federation
from raysim.engine.client.failure_context import named
from raysim.engine.client.initial_model import Parameters, parameters
from raysim.engine.client.sending import Sending
from raysim.engine.client.tasks import Tasks
from raysim.engine.measuring.divisions import Groups
from raysim.engine.measuring.losses import weighted_losses
from raysim.engine.messages.memory import FIRST, HELD, HELD_LOSS, MODEL, SECOND, STEPS, HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.engine.messages.steps import CHANGE
from raysim.engine.privacy.contributions import Contributions
from raysim.engine.privacy.patient_release import PatientRelease, pooled_gradient, with_private_steps
from raysim.engine.privacy.release import release_of
from raysim.strategies.base import Floats, LocalProblem
from raysim.training.base import DeviceFull, Model, Moments, Optimizer, Task


class CohortTraining:
    """The entries ``mine`` of ``plan``'s cohort, trained with ``model``.

    ``open(pooled)`` gives the federation. ``kept`` is what hospitals remember, and is not changed. ``groups`` knows
    which rows are in which group of patients, ``contributions`` which rows stand for which patient.
    """

    def __init__(
        self,
        plan: RoundPlan,
        mine: Sequence[int],
        model: Model,
        open: Callable[[bool], Federation],
        kept: HospitalStates,
        groups: Groups,
        contributions: Contributions,
    ) -> None:
        if plan.problem is None:
            raise ValueError("the plan has no problem")
        self._plan, self._mine, self._model, self._open = plan, mine, model, open
        self._problem, self._contributions = plan.problem, contributions
        self._kept = {hospital: dict(vectors) for hospital, vectors in kept.items()}
        self._tasks = Tasks(plan, plan.problem, open, self._kept, groups)
        self._sending = Sending(plan, plan.problem, self._tasks, self._kept, open)
        self._release = release_of(plan)
        self._losses: list[float] = []

    def train(self, chunk: int, result: PartialResult) -> HospitalStates:
        """Make all local updates, ``chunk`` of them in a call of the kernel, and enter what is sent into the
        ``result``. Returns what hospitals now remember.

        Raises :class:`TrainingDiverged` or :class:`HospitalFailed` naming the hospital and the round.
        """
        again = next((k for k, step in enumerate(self._plan.steps) if not step.trains), None)
        if again is not None:
            self._send_again(again)
        for first in range(0, len(self._mine) if again is None else 0, chunk):
            some = self._mine[first : first + chunk]
            ends: Sequence[Parameters | None] = [None] * len(some)
            if self._problem.chosen:
                self._tasks.chosen.update({j: self._nearest(j) for j in some})
            for step, phase in enumerate(self._problem.chain):
                tasks = [self._tasks.task(phase, step, j, last) for j, last in zip(some, ends, strict=True)]
                if step == 0 and self._plan.losses:
                    self._losses += [self._loss(task) for task in tasks]
                trained = self._trained(phase, self._private(phase, tasks, some), some)
                renewed = self._renewed(phase, tasks, trained, some)
                if self._is_plain(phase):
                    self._sending.send_together(phase, some, tasks, trained)
                else:
                    for i, j in enumerate(some):
                        self._send(phase, j, tasks[i], trained[i], None if renewed is None else renewed[i])
                ends = list(trained)
            if self._plan.private is not None:
                for j, end in zip(some, ends, strict=True):
                    self._sending.remember(j, MODEL, end)
        result.ids, result.units = self._plan.ids[list(self._mine)], self._sending.units
        result.deltas, result.bits = self._sending.deltas, self._sending.bits
        result.losses = np.array(self._losses) if self._losses else None
        return self._kept

    def _send_again(self, first: int) -> None:
        """Walk the steps from the ``first`` on again, from the updates that hospitals hold."""
        phase = next(phase for phase in self._problem.chain if phase.upload is not None)
        if phase.upload is None:
            return
        for j in self._mine:
            memory = self._kept[int(self._plan.ids[j])]
            loss = float(memory[HELD_LOSS][0])
            if self._plan.losses:
                self._losses.append(loss)
            rate = self._tasks.rate(phase.training)
            leaving = self._sending.leaving(phase, phase.upload, j, memory[HELD], rate, partial(float, loss))
            self._sending.send(leaving, self._plan.steps[first:])

    def _nearest(self, j: int) -> int:
        """The model row whose model has the least loss on the rows of entry ``j``; of equal ones the first."""
        hospital, sent = int(self._plan.ids[j]), self._problem.sent
        X, y = self._tasks.rows(hospital, j)
        losses = []
        for row in range(1, 1 + (0 if sent is None else sent.sums)):
            outputs = self._model.logits(parameters(self._plan, row, hospital, self._kept), X)
            losses.append(weighted_losses(self._model, self._plan.work.class_weights, outputs, y).sum())
        return 1 + int(np.argmin(losses))

    def _loss(self, task: Task) -> float:
        outputs = self._model.logits(task.start, task.X)
        return float(weighted_losses(self._model, self._plan.work.class_weights, outputs, task.y).mean())

    def _private(self, phase: LocalProblem, tasks: Sequence[Task], some: Sequence[int]) -> Sequence[Task]:
        """The ``tasks`` of the entries ``some`` with noisy steps, where a guarantee asks for these."""
        release = None if self._release is None or phase.upload is None else self._release.patients
        if release is None or release.pooled:
            return tasks
        seed, round, private = self._plan.work.seed, self._plan.round, []
        for task, j in zip(tasks, some, strict=True):
            hospital = int(self._plan.ids[j])
            contribution = self._contribution(release, hospital)
            private.append(with_private_steps(task, release, contribution, seed, round, hospital))
        return private

    def _trained(
        self, phase: LocalProblem, tasks: Sequence[Task], some: Sequence[int], optimizer: Optimizer | None = None
    ) -> NDArray[Any]:
        """What the kernel makes of ``tasks``, the entries ``some``; an error names the hospital that it comes from.

        Where gradients are pooled, hospitals stay at their starts.
        """
        release = None if self._release is None or phase.upload is None else self._release.patients
        if release is not None and release.pooled and optimizer is None:
            return np.stack([task.start for task in tasks])
        optimizer = optimizer or self._tasks.optimizer(phase.training)
        try:
            return self._sized(self._model.train(tasks, optimizer), len(tasks))
        except RaysimError:
            raise
        except DeviceFull as error:
            with self._named(some[error.task]):
                raise
        except Exception:
            for task, j in zip(tasks, some, strict=True):
                with self._named(j):
                    self._sized(self._model.train([task], optimizer), 1)
            raise

    def _sized(self, trained: NDArray[Any], tasks: int) -> NDArray[Any]:
        """``trained``, which is ``[tasks, P]``. Raises ``ValueError`` where a user's own model gives something else."""
        wanted = tasks, self._plan.models.shape[1]
        if trained.shape != wanted:
            raise ValueError(f"the model has trained an array {trained.shape}, not {wanted}")
        return trained

    def _named(self, j: int) -> named:
        return named(self._open(False), int(self._plan.ids[j]), f"training in round {self._plan.round}")

    def _contribution(self, release: PatientRelease, hospital: int) -> Contribution:
        federation, seed = self._open(False), self._plan.work.seed
        return self._contributions.of(federation, hospital, release.unit, release.rows, seed)

    def _renewed(
        self, phase: LocalProblem, tasks: Sequence[Task], trained: NDArray[Any], some: Sequence[int]
    ) -> list[Parameters] | None:
        """The hospitals' control variates after the round (SCAFFOLD, options I and II); those without rows keep 0."""
        variates = phase.objective.variates
        if variates is None:
            return None
        moved = self._model.layout.trained
        if variates.renew == "gradient":
            whole = [replace(task, proximal=(), linear=None, epochs=1, learning_rate=1.0) for task in tasks]
            decay = self._plan.work.optimizer.weight_decay
            trained = self._trained(phase, whole, some, Optimizer("sgd", 1.0, 0, decay))
        batch, renewed = self._tasks.optimizer(phase.training).batch_size, []
        for task, end, j in zip(tasks, trained, some, strict=True):
            variate = self._tasks.variate(int(self._plan.ids[j])).copy()
            steps = task.epochs * (-(-len(task.y) // batch) if batch else 1)
            if variates.renew == "gradient":
                variate[:moved] = (task.start - end)[:moved]
            elif steps and len(task.y):
                slope = (task.start - end) / (steps * task.learning_rate)
                variate[:moved] += (slope - variates.server)[:moved]
            renewed.append(variate)
        return renewed

    def _is_plain(self, phase: LocalProblem) -> bool:
        """Whether a delta is added to one sum unchanged, and the hospital remembers nothing of it."""
        plan, upload = self._plan, phase.upload
        if upload is None or upload.single or upload.what != "delta" or upload.weight is None or upload.weight.ndim > 1:
            return False
        as_it_is = plan.private is None and not any(step.changes for step in plan.steps)
        forgets = not phase.training.keep and not phase.training.carry and phase.objective.variates is None
        return as_it_is and forgets and upload.message is None and not phase.chosen

    def _send(self, phase: LocalProblem, j: int, task: Task, theta: Parameters, variate: Parameters | None) -> None:
        """Send what entry ``j`` sends after its local update, and note what its hospital remembers."""
        private, upload, variates, release = self._plan.private, phase.upload, phase.objective.variates, self._release
        delta, change, rate = np.subtract(theta, task.start, dtype=np.float64), None, task.learning_rate
        if private is not None:
            # Nobody else receives it. Where a guarantee hides the hospital, there are no errors about its updates.
            if release is None or not release.hides:
                self._sending.check(delta[private], np.inf, j, rate)
            delta[private] = 0.0
        if variate is not None and variates is not None:
            change = np.subtract(variate, self._tasks.variate(int(self._plan.ids[j])), dtype=np.float64)
        if upload is None:
            self._sending.check(delta, np.inf, j, rate)
        else:
            if release is not None and release.patients is not None and release.patients.pooled:
                delta = self._pooled_gradient(release.patients, task, j)
            leaving = self._sending.leaving(phase, upload, j, delta, rate, partial(self._loss, task))
            if change is not None:
                leaving.vectors[CHANGE] = change
            self._sending.send(leaving, self._plan.steps, theta)
            change = leaving.vectors.get(CHANGE)
        if phase.training.keep:
            self._sending.remember(j, MODEL, theta)
        if task.moments is not None:
            self._carry(j, task.moments)
        if change is not None and variate is not None and variates is not None:
            self._sending.vary(variates, j, variate, change, task)

    def _pooled_gradient(self, release: PatientRelease, task: Task, j: int) -> Floats:
        """What entry ``j`` sends in the place of an update: clipped gradients at its start, and its share of noise."""
        hospital, seed = int(self._plan.ids[j]), self._plan.work.seed
        contribution = self._contribution(release, hospital)
        return pooled_gradient(self._model, task, release, contribution, seed, self._plan.round, hospital)

    def _carry(self, j: int, moments: Moments) -> None:
        for what, vector in ((FIRST, moments.first), (SECOND, moments.second)):
            if vector is not None:
                self._sending.remember(j, what, vector)
        if moments.steps:
            self._sending.remember(j, STEPS, np.array([moments.steps]))
