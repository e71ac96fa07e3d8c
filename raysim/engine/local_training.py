"""A round's training at the hospitals of one process: each visit's chain of problems, and what it sends.

The problem has been checked (:mod:`raysim.strategies.checks`): its rows are in the bank, its entries fit the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import RaysimError, TrainingDiverged
from raysim.core.exact import ExactSum, largest_entry
from raysim.data.contribution import Contribution
from raysim.data.federation import Federation
from raysim.engine.measuring.divisions import Groups
from raysim.engine.measuring.losses import weighted_losses
from raysim.engine.messages import (
    FIRST,
    HELD,
    HELD_LOSS,
    MODEL,
    SECOND,
    STEPS,
    VARIATE,
    HospitalStates,
    PartialResult,
    RoundPlan,
)
from raysim.engine.updates.contributions import Contributions
from raysim.engine.updates.private_visits import PatientRelease, pooled_gradient, with_private_steps
from raysim.engine.updates.release import Release
from raysim.engine.updates.sums import heaviest, number_rows, sum_count
from raysim.engine.visits.naming import named
from raysim.engine.visits.starts import Parameters, parameters
from raysim.engine.visits.tasks import Tasks
from raysim.privacy.clip import clipped
from raysim.strategies.base import POOLED, Floats, LocalProblem, Upload, Variates
from raysim.training.base import Model, Moments, Optimizer, Task

TOGETHER = 2**15
"""Scalars of deltas that are added up in one go, so that they stay within a core's caches."""

LEAST_COLUMNS = 512
"""Of a large model, in which the deltas of several hospitals are added up in one go."""


class LocalTraining:
    """The entries ``mine`` of ``plan``'s cohort, trained with ``model``.

    ``open(pooled)`` gives the rows, ``kept`` is what hospitals remember and stays as it is, ``groups`` knows which rows
    are in which group of patients, ``contributions`` which stand for a patient.
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
        count = sum_count(plan.problem, plan.bank.shape[1])
        bits = plan.release is not None and plan.release.bit
        self._sums = ExactSum(count + bits, plan.bank.shape[1]) if count else None
        self._variates = count - 1
        self._limit = largest_entry(heaviest(plan.problem))
        self._deltas: list[Parameters] = []
        self._losses: list[float] = []
        self._bits: list[int] = []

    def train(self, chunk: int) -> tuple[PartialResult, HospitalStates]:
        """Everybody's visit, ``chunk`` of them in a call of the kernel: what is sent, and what is remembered now.

        Raises :class:`TrainingDiverged` or :class:`HospitalFailed` naming the hospital and the round.
        """
        if self._plan.repeated is None or self._plan.repeated.first:
            self._train_all(chunk)
        else:
            self._tell_again(last=self._plan.repeated.last)
        sent = PartialResult(
            ids=self._plan.ids[list(self._mine)],
            units=None if self._sums is None else self._sums.units,
            deltas=np.stack(self._deltas) if self._deltas else None,
            losses=np.array(self._losses) if self._losses else None,
            bits=np.array(self._bits) if self._bits else None,
        )
        return sent, self._kept

    def _train_all(self, chunk: int) -> None:
        for first in range(0, len(self._mine), chunk):
            some = self._mine[first : first + chunk]
            ends: Sequence[Parameters | None] = [None] * len(some)
            if self._problem.chosen:
                self._tasks.chosen.update({j: self._nearest(j) for j in some})
            for step, phase in enumerate(self._problem.chain):
                tasks = [self._tasks.task(phase, step, j, last) for j, last in zip(some, ends, strict=True)]
                if step == 0 and self._plan.losses:
                    self._losses += [self._loss(task) for task in tasks]
                trained = self._trained(phase, tasks, some)
                renewed = self._renewed(phase, tasks, trained, some)
                if self._is_plain(phase):
                    self._leave_together(phase, some, tasks, trained)
                else:
                    for i, j in enumerate(some):
                        self._leave(phase, j, tasks[i], trained[i], None if renewed is None else renewed[i])
                ends = list(trained)
            if self._plan.private is not None:
                for j, end in zip(some, ends, strict=True):
                    self._remember(j, MODEL, end)

    def _tell_again(self, *, last: bool) -> None:
        """Tell of the updates that an earlier pass of the round gave, and forget them after the ``last`` one."""
        phase = next(phase for phase in self._problem.chain if phase.upload is not None)
        if phase.upload is None:
            return
        for j in self._mine:
            memory = self._kept[int(self._plan.ids[j])]
            loss = float(memory[HELD_LOSS][0])
            if self._plan.losses:
                self._losses.append(loss)
            self._send_made(phase.upload, j, memory[HELD], loss, self._tasks.rate(phase.visit))
            if last:
                del memory[HELD], memory[HELD_LOSS]

    def _nearest(self, j: int) -> int:
        """The bank row under which the rows of entry ``j`` have the least loss, of several the first."""
        hospital, sent = int(self._plan.ids[j]), self._problem.sent
        X, y = self._tasks.rows(hospital, j)
        losses = []
        for row in range(1, 1 + (0 if sent is None else sent.sums)):
            outputs = self._model.logits(parameters(self._plan, row, hospital, self._kept), X)
            losses.append(weighted_losses(self._model, self._plan.work, outputs, y).sum())
        return 1 + int(np.argmin(losses))

    def _loss(self, task: Task) -> float:
        outputs = self._model.logits(task.start, task.X)
        return float(weighted_losses(self._model, self._plan.work, outputs, task.y).mean())

    def _trained(self, phase: LocalProblem, tasks: Sequence[Task], some: Sequence[int]) -> NDArray[Any]:
        optimizer, release = self._tasks.optimizer(phase.visit), self._plan.release
        if release is not None and release.patients is not None and phase.upload is not None:
            if release.patients.pooled:  # hospitals stay at their starts
                return np.stack([task.start for task in tasks])
            tasks = [self._private(release.patients, task, j) for task, j in zip(tasks, some, strict=True)]
        try:
            return self._model.train(tasks, optimizer)
        except RaysimError:
            raise
        except Exception:
            # Find out whose rows or parameters it was, so that the error can say so.
            for task, j in zip(tasks, some, strict=True):
                with named(self._open(False), int(self._plan.ids[j]), f"training in round {self._plan.round}"):
                    self._model.train([task], optimizer)
            raise

    def _private(self, release: PatientRelease, task: Task, j: int) -> Task:
        """Entry ``j``'s task under a guarantee for its patients."""
        hospital = int(self._plan.ids[j])
        own = self._own(release, hospital)
        return with_private_steps(task, release, own, self._plan.work.seed, self._plan.round, hospital)

    def _own(self, release: PatientRelease, hospital: int) -> Contribution:
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
            whole = [replace(task, pulls=(), linear=None, epochs=1, learning_rate=1.0) for task in tasks]
            decay = self._plan.work.optimizer.weight_decay
            trained = self._model.train(whole, Optimizer("sgd", 1.0, 0, decay))
        batch, renewed = self._tasks.optimizer(phase.visit).batch_size, []
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
        """Whether a delta goes into one sum as it is, and nothing is remembered of it."""
        plan, upload = self._plan, phase.upload
        if upload is None or upload.single or upload.what != "delta" or upload.weight is None or upload.weight.ndim > 1:
            return False
        changes = (plan.private, plan.attack, plan.bound, plan.release, plan.compressing, plan.masking)
        as_it_is = all(change is None for change in changes)
        forgets = not phase.visit.keep and not phase.visit.carry and phase.objective.variates is None
        return as_it_is and forgets and upload.message is None and not phase.chosen

    def _leave_together(
        self, phase: LocalProblem, some: Sequence[int], tasks: Sequence[Task], trained: NDArray[Any]
    ) -> None:
        """What :meth:`_leave` does where the problem :meth:`_is_plain`, many small models at once and large ones in
        pieces; the same bits.
        """
        upload = phase.upload
        if upload is None or upload.weight is None or self._sums is None:
            raise ValueError("nothing is added up")
        size, starts = trained.shape[1], [task.start for task in tasks]
        places = [start.__array_interface__["data"][0] for start in starts]  # alike: views of one row of the bank
        most = _most(trained) + max(_most(start) for start in dict(zip(places, starts, strict=True)).values())
        if not most < self._limit:  # False for NaN
            for theta, j, task in zip(trained, some, tasks, strict=True):
                delta = np.subtract(theta, task.start, dtype=np.float64)
                self._check(delta, self._limit, j, task.learning_rate)
            most = np.inf
        together = max(1, TOGETHER // min(size, LEAST_COLUMNS))
        for first in range(0, len(some), together):
            part = slice(first, first + together)
            entries = list(some[part])
            groups = np.zeros(len(entries), np.int64) if upload.into is None else upload.into[entries]
            weights = upload.weight[entries].astype(np.float64)
            alike = len(set(places[part])) == 1
            width = max(1, TOGETHER // len(entries))
            for low in range(0, size, width):
                columns = slice(low, low + width)
                deltas = trained[part, columns].astype(np.float64)
                deltas -= starts[first][columns] if alike else np.stack([start[columns] for start in starts[part]])
                self._sums.add_rows(groups, weights, deltas, columns, most)

    def _leave(self, phase: LocalProblem, j: int, task: Task, theta: Parameters, variate: Parameters | None) -> None:
        """Add what the hospital sends, and note what it remembers."""
        delta = np.subtract(theta, task.start, dtype=np.float64)
        private, upload, variates = self._plan.private, phase.upload, phase.objective.variates
        if private is not None:
            delta[private] = 0.0
        change = None
        if variate is not None and variates is not None:
            change = np.subtract(variate, self._tasks.variate(int(self._plan.ids[j])), dtype=np.float64)
        release = self._plan.release
        if upload is not None and release is not None and release.patients is not None and release.patients.pooled:
            hospital, seed = int(self._plan.ids[j]), self._plan.work.seed
            own = self._own(release.patients, hospital)
            delta = pooled_gradient(self._model, task, release.patients, own, seed, self._plan.round, hospital)
        summed = upload is not None and upload.weight is not None and upload.what == "delta"
        limit = self._limit if summed else np.inf
        if upload is not None and self._plan.attack is not None:
            delta = self._plan.attack.update(int(self._plan.ids[j]), delta, limit)
            if private is not None:
                delta[private] = 0.0
        # Where a guarantee hides the hospital, what is not finite leaves as zeros, and nobody is told.
        hidden = release is not None and release.patients is None
        if upload is not None and self._plan.bound is not None:
            if not hidden:
                self._check(delta, limit, j, task.learning_rate)
            (delta,) = clipped([delta], self._plan.bound)
        if upload is not None and (upload.message is not None or phase.chosen):
            if not hidden:
                self._check(delta, limit, j, task.learning_rate)
            loss = self._loss(task)
            if self._plan.repeated is not None:
                self._remember(j, HELD, delta)
                self._remember(j, HELD_LOSS, np.array([loss]))
            self._send_made(upload, j, delta, loss, task.learning_rate)
            if phase.visit.keep:
                self._remember(j, MODEL, theta)
            if task.moments is not None:
                self._carry(j, task.moments)
            return
        if upload is not None and release is not None and hidden:
            vectors = [delta] if change is None else [delta, change]
            self._tell_bit(release, vectors, j)
            delta, *changes = release.leaving(vectors, self._plan.work.seed, self._plan.round, int(self._plan.ids[j]))
            if private is not None:
                delta[private] = 0.0
            change = changes[0] if changes else None
        if upload is not None and self._plan.compressing is not None:
            delta = self._compressed(j, delta)
        self._check(delta, limit, j, task.learning_rate)
        if upload is not None:
            self._send(upload, j, delta, theta, task)
        if phase.visit.keep:
            self._remember(j, MODEL, theta)
        if task.moments is not None:
            self._carry(j, task.moments)
        if change is not None and variate is not None and variates is not None:
            self._vary(variates, j, variate, change, task)

    def _tell_bit(self, release: Release, vectors: Sequence[Floats], j: int) -> None:
        """Tell whether entry ``j``'s ``vectors`` were short enough, where that is asked for."""
        if not release.bit or self._sums is None:
            return
        hospital = int(self._plan.ids[j])
        told = release.short(vectors, self._plan.work.seed, self._plan.round, hospital)
        if self._plan.masking is not None:
            self._plan.masking.tell(self._sums, told, hospital)
            return
        bit = np.zeros_like(vectors[0])
        bit[0] = told
        self._sums.add(len(self._sums.units) - 1, 1.0, bit)

    def _send_made(self, upload: Upload, j: int, delta: Floats, loss: float, rate: float) -> None:
        """Add what entry ``j`` itself makes of its ``delta`` to all sums, with the numbers that go with it.

        ``loss`` is its mean loss before training with the learning ``rate``.
        """
        if upload.weight is None or self._sums is None:
            raise ValueError("nothing is added up")
        plan, weight, hospital = self._plan, float(upload.weight[j]), int(self._plan.ids[j])
        group = 0 if upload.into is None else int(upload.into[j])
        group, numbers = self._tasks.chosen.get(j, 1 + group) - 1, np.zeros(0)
        if upload.message is not None:
            delta, numbers = upload.message.made(delta, group, loss)
        counted = numbers if upload.message is not None and upload.message.counts else None
        vectors = [np.zeros_like(delta) for _ in range(upload.sums)] if j in self._tasks.chosen else [delta]
        if j in self._tasks.chosen:
            vectors[group] = delta
        if counted is None:
            vectors.append(numbers)
        if plan.release is not None:
            self._tell_bit(plan.release, vectors, j)
            vectors = plan.release.leaving(vectors, plan.work.seed, plan.round, hospital)
            if counted is not None:
                counted = plan.release.counted(counted, plan.work.seed, plan.round, hospital)
        *vectors, numbers = vectors if counted is None else [*vectors, counted]
        first = 0 if j in self._tasks.chosen else group
        for k, vector in enumerate(vectors):
            if plan.private is not None:
                vector[plan.private] = 0.0
            self._check(vector, self._limit, j, rate)
            self._add(j, first + k, weight, vector)
        size = plan.bank.shape[1]
        rows = np.zeros((number_rows(self._problem, size), size))
        rows.ravel()[: len(numbers)] = numbers
        for k, row in enumerate(rows):
            self._check(row, self._limit, j, rate)
            self._add(j, upload.sums + k, weight, row)

    def _compressed(self, j: int, delta: Floats) -> Floats:
        """What is added up of entry ``j``'s update, which is compressed as far as it travels."""
        compressing, private, groups = self._plan.compressing, self._plan.private, self._problem.groups
        if compressing is None:
            return delta
        hospital, group = int(self._plan.ids[j]), 0 if groups is None else int(groups.group[j])
        name = f"residual of {group}"
        travels = slice(None) if private is None else ~private
        before = self._kept.get(hospital, {}).get(name)
        sent, remembered, bits = compressing.sent(hospital, group, delta[travels], before)
        if compressing.remembers:
            self._remember(j, name, remembered)
        self._bits.append(bits)
        whole = np.zeros_like(delta)
        whole[travels] = sent
        return whole

    def _send(self, upload: Upload, j: int, delta: Floats, theta: Parameters, task: Task) -> None:
        """Add entry ``j``'s vector to the sum, or sums, that it goes into, and put its delta aside where asked to."""
        if upload.single:
            self._deltas.append(delta)
        if upload.weight is None or self._sums is None:
            return
        vector: Parameters = delta
        if upload.what == "parameters":
            vector = theta if self._plan.private is None else np.where(self._plan.private, 0.0, theta)
            self._check(vector, self._limit, j, task.learning_rate)
        if upload.weight.ndim == 1:
            self._add(j, 0 if upload.into is None else int(upload.into[j]), float(upload.weight[j]), vector)
            return
        for group in np.flatnonzero(upload.weight[j]):
            self._add(j, int(group), float(upload.weight[j, group]), vector)

    def _add(self, j: int, group: int, weight: float, vector: Parameters) -> None:
        """Add what entry ``j`` sends to a sum, masked where sums are hidden."""
        if self._sums is None:
            return
        if self._plan.masking is None:
            self._sums.add(group, weight, vector)
        else:
            self._plan.masking.add(self._sums, group, weight, vector, int(self._plan.ids[j]))

    def _vary(self, variates: Variates, j: int, variate: Parameters, change: Floats, task: Task) -> None:
        self._check(change, self._limit, j, task.learning_rate)
        if self._sums is not None:
            self._add(j, self._variates, float(variates.weight[j]), change)
        if self._plan.release is not None:
            # What the server was told of, so that its variate stays the mean of hospitals' own.
            variate = (self._tasks.variate(int(self._plan.ids[j])) + change).astype(variate.dtype)
        self._remember(j, VARIATE, variate)

    def _check(self, vector: NDArray[Any], limit: float, j: int, rate: float) -> None:
        """Raise :class:`TrainingDiverged` unless all entries are below ``limit``, and finite where that is infinite."""
        if np.abs(vector).max(initial=0.0) < limit:  # False for NaN, and for infinity whatever the limit
            return
        hospital = int(self._plan.ids[j])
        name = "the pooled rows" if hospital == POOLED else f"hospital '{self._open(False).hospitals[hospital]}'"
        raise TrainingDiverged(
            f"training.learning_rate: {rate} made {name} diverge in round {self._plan.round}; "
            "lower it or scale the features"
        )

    def _carry(self, j: int, moments: Moments) -> None:
        for what, vector in ((FIRST, moments.first), (SECOND, moments.second)):
            if vector is not None:
                self._remember(j, what, vector)
        if moments.steps:
            self._remember(j, STEPS, np.array([moments.steps]))

    def _remember(self, j: int, what: str, vector: Any) -> None:
        self._kept.setdefault(int(self._plan.ids[j]), {})[what] = vector.copy()


def _most(values: NDArray[Any]) -> float:
    """The largest magnitude among ``values``; NaN where one is."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))
