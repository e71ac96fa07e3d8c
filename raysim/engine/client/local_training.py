"""The local updates of a round at the hospitals of one process, and the messages that hospitals then send.

A strategy may define a chain of local problems, which a hospital minimises one after the other. The problems have been
checked by :mod:`raysim.strategies.checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import RaysimError
from raysim.data.contribution import Contribution
from raysim.data.federation import Federation
from raysim.engine.client.failure_context import named
from raysim.engine.client.initial_model import Parameters
from raysim.engine.client.program_context import MadeOfRows, ProgramRun, checked_at, contexts_of
from raysim.engine.client.programs import remembered
from raysim.engine.client.sending import Sending
from raysim.engine.client.tasks import Tasks
from raysim.engine.measuring.divisions import Groups
from raysim.engine.measuring.losses import weighted_losses
from raysim.engine.messages.memory import FIRST, HELD, HELD_LOSS, MODEL, SECOND, STEPS, HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.engine.messages.steps import EXTRAS
from raysim.engine.privacy.contributions import Contributions
from raysim.engine.privacy.patient_release import PatientRelease, pooled_gradient, with_private_steps
from raysim.engine.privacy.release import release_of
from raysim.strategies.base import DELTA, POOLED, Floats, LocalProblem
from raysim.strategies.checks.calls import check_sent
from raysim.training.base import DeviceFull, Model, Moments, Optimizer, Task


class CohortTraining:
    """Makes the local updates of this process's hospitals in one round.

    - ``mine`` has the positions of the local updates in ``plan.ids``.
    - ``open(pooled)`` returns the federation, with the training rows of all hospitals if ``pooled`` is true.
    - ``states`` has what hospitals store between rounds; it is not changed.
    """

    def __init__(
        self,
        plan: RoundPlan,
        mine: Sequence[int],
        model: Model,
        open: Callable[[bool], Federation],
        states: HospitalStates,
        groups: Groups,
        contributions: Contributions,
        made: MadeOfRows,
    ) -> None:
        if plan.problem is None:
            raise ValueError("the plan lacks the problem of local training")
        self._plan, self._mine, self._model, self._open = plan, mine, model, open
        self._problem, self._contributions, self._made = plan.problem, contributions, made
        self._states = {hospital: dict(vectors) for hospital, vectors in states.items()}
        self._tasks = Tasks(plan, plan.problem, open, self._states, groups)
        self._sending = Sending(plan, plan.problem, self._tasks, self._states, open)
        self._release = release_of(plan)
        self._losses: list[float] = []

    def train(self, chunk: int, result: PartialResult) -> HospitalStates:
        """Make all local updates, add the messages to ``result``, and return what hospitals store until the next round.

        ``chunk`` is the largest number of updates that are trained together in one call. Raises
        :class:`TrainingDiverged`, :class:`HospitalFailed`, :class:`ResourceError` or :class:`StrategyError`.
        """
        again = next((k for k, step in enumerate(self._plan.steps) if not step.trains), None)
        if again is not None:
            self._send_again(again)
        for first in range(0, len(self._mine) if again is None else 0, chunk):
            some = self._mine[first : first + chunk]
            ends: Sequence[Parameters | None] = [None] * len(some)
            for step, phase in enumerate(self._problem.chain):
                tasks = [self._tasks.task(phase, step, j, last) for j, last in zip(some, ends, strict=True)]
                if step == 0 and self._plan.losses:
                    self._losses += [self._loss(task) for task in tasks]
                if phase.program is not None:
                    for j, task in zip(some, tasks, strict=True):
                        self._run(phase, j, task)
                    break
                trained = self._trained(phase, self._private(phase, tasks, some), some)
                for j, task, theta in zip(some, tasks, trained, strict=True):
                    self._send(phase, j, task, theta)
                ends = list(trained)
            if self._plan.private is not None:
                for j, end in zip(some, ends, strict=True):
                    self._sending.remember(j, MODEL, end)
        result.ids, result.units = self._plan.ids[list(self._mine)], self._sending.units
        result.deltas, result.bits = self._sending.deltas, self._sending.bits
        result.losses = np.array(self._losses) if self._losses else None
        return self._states

    def _send_again(self, first: int) -> None:
        """Send again, without training, the updates that hospitals have stored. Apply only the steps from index
        ``first`` on.
        """
        phase = next(phase for phase in self._problem.chain if phase.upload is not None)
        if phase.upload is None:
            return
        for j in self._mine:
            memory = self._states[int(self._plan.ids[j])]
            loss = float(memory[HELD_LOSS][0])
            if self._plan.losses:
                self._losses.append(loss)
            rate = self._tasks.rate(phase.training)
            leaving = self._sending.leaving(phase, phase.upload, j, memory[HELD], rate, partial(float, loss))
            self._sending.send(leaving, self._plan.steps[first:])

    def _run(self, phase: LocalProblem, j: int, task: Task) -> None:
        if self._plan.call is None or phase.upload is None:
            raise ValueError("the plan has no program")
        here = ProgramRun(self._plan, self._plan.call, self._open, lambda: self._model, self._made)
        program, (context,) = here.call.program, contexts_of(here, [j], self._states)
        context.received = {**context.received, "theta": task.start}
        hospital, hidden = context.hospital, self._release is not None and self._release.hides
        with named(self._open(hospital == POOLED), hospital, f"running {here.call.name}"):
            reply = program.run(context)
        checked_at(here, hospital, partial(check_sent, reply, program, context.count, finite=not hidden))
        sent = {name: np.asarray(reply.sent[name], np.float64) for name in program.sends}
        rate, extras = self._tasks.rate(phase.training), list(phase.extras)
        leaving = self._sending.leaving(phase, phase.upload, j, sent[DELTA].ravel(), rate, partial(self._loss, task))
        if extras:
            leaving.vectors[EXTRAS] = np.concatenate([sent[name].ravel() for name in extras])
        self._sending.send(leaving, self._plan.steps)
        # A hospital that a guarantee hides raises no error for values that are not finite: its memory keeps the earlier
        # values.
        memory = {name: value for name, value in reply.memory.items() if not hidden or np.isfinite(value).all()}
        if hidden and extras:
            # Hospitals store the noisy change that was sent, so that the server's total stays the sum
            # over hospitals.
            ends = np.cumsum([sent[name].size for name in extras])[:-1]
            for name, left in zip(extras, np.split(leaving.vectors[EXTRAS], ends), strict=True):
                if name in reply.memory:
                    memory[name] = context.memory.get(name, 0.0) + left.reshape(sent[name].shape)
        self._states[hospital] = self._states.get(hospital, {}) | remembered(memory, program, task.start.dtype)

    def _loss(self, task: Task) -> float:
        outputs = self._model.logits(task.start, task.X)
        return float(weighted_losses(self._model, self._plan.work.class_weights, outputs, task.y).mean())

    def _private(self, phase: LocalProblem, tasks: Sequence[Task], some: Sequence[int]) -> Sequence[Task]:
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
        """Return the trained parameters for ``tasks``, one row each. In privacy mode ``pooled``, hospitals do not
        train, and the start models are returned.
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
        wanted = tasks, self._plan.models.shape[1]
        if trained.shape != wanted:
            raise ValueError(f"the model's training returned an array of shape {trained.shape}; return shape {wanted}")
        return trained

    def _named(self, j: int) -> named:
        return named(self._open(False), int(self._plan.ids[j]), f"training in round {self._plan.round}")

    def _contribution(self, release: PatientRelease, hospital: int) -> Contribution:
        federation, seed = self._open(False), self._plan.work.seed
        return self._contributions.of(federation, hospital, release.unit, release.rows, seed)

    def _send(self, phase: LocalProblem, j: int, task: Task, theta: Parameters) -> None:
        private, upload, release = self._plan.private, phase.upload, self._release
        delta, rate = np.subtract(theta, task.start, dtype=np.float64), task.learning_rate
        if private is not None:
            # This part is not sent. If a guarantee hides the hospital, its updates raise no errors.
            if release is None or not release.hides:
                self._sending.check(delta[private], np.inf, j, rate)
            delta[private] = 0.0
        if upload is None:
            self._sending.check(delta, np.inf, j, rate)
        else:
            if release is not None and release.patients is not None and release.patients.pooled:
                delta = self._pooled_gradient(release.patients, task, j)
            leaving = self._sending.leaving(phase, upload, j, delta, rate, partial(self._loss, task))
            self._sending.send(leaving, self._plan.steps, theta)
        if phase.training.keep:
            self._sending.remember(j, MODEL, theta)
        if task.moments is not None:
            self._carry(j, task.moments)

    def _pooled_gradient(self, release: PatientRelease, task: Task, j: int) -> Floats:
        """Return what a hospital sends in privacy mode ``pooled``: a noisy sum of clipped gradients at the start
        model.
        """
        hospital, seed = int(self._plan.ids[j]), self._plan.work.seed
        contribution = self._contribution(release, hospital)
        return pooled_gradient(self._model, task, release, contribution, seed, self._plan.round, hospital)

    def _carry(self, j: int, moments: Moments) -> None:
        for what, vector in ((FIRST, moments.first), (SECOND, moments.second)):
            if vector is not None:
                self._sending.remember(j, what, vector)
        if moments.steps:
            self._sending.remember(j, STEPS, np.array([moments.steps]))
