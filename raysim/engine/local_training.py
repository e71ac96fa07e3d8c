"""A round's training at the hospitals of one process: each visit's chain of problems, and what it sends.

The problem has been checked (:mod:`raysim.strategies.checks`): its rows are in the bank, its entries fit the cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import HospitalFailed, RaysimError, TrainingDiverged
from raysim.core.exact import ExactSum, largest_entry
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.divisions import Groups
from raysim.engine.messages import FIRST, MODEL, SECOND, STEPS, VARIATE, HospitalStates, PartialResult, RoundPlan, Work
from raysim.engine.updates.contributions import Contribution, Contributions
from raysim.engine.updates.private_visits import PatientRelease, pooled_gradient, with_private_steps
from raysim.strategies.base import LAST, MIXTURE, OWN, POOLED, Floats, LocalProblem, Mask, Upload, Variates, Visit
from raysim.strategies.shared import exits
from raysim.training.base import ContrastTerm, Model, Moments, Optimizer, Task
from raysim.training.class_weights import row_weights

Parameters = NDArray[Any]

TOGETHER = 2**15
"""Scalars of deltas that are added up in one go, so that they stay within a core's caches."""


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
        self._plan, self._mine, self._model, self._open, self._groups = plan, mine, model, open, groups
        self._problem, self._contributions = plan.problem, contributions
        self._kept = {hospital: dict(vectors) for hospital, vectors in kept.items()}
        count = sum_count(plan.problem)
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
        for first in range(0, len(self._mine), chunk):
            some = self._mine[first : first + chunk]
            ends: Sequence[Parameters | None] = [None] * len(some)
            for step, phase in enumerate(self._problem.chain):
                tasks = [self._task(phase, step, j, last) for j, last in zip(some, ends, strict=True)]
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
        sent = PartialResult(
            ids=self._plan.ids[list(self._mine)],
            units=None if self._sums is None else self._sums.units,
            deltas=np.stack(self._deltas) if self._deltas else None,
            losses=np.array(self._losses) if self._losses else None,
            bits=np.array(self._bits) if self._bits else None,
        )
        return sent, self._kept

    def _task(self, phase: LocalProblem, step: int, j: int, last: Parameters | None) -> Task:
        plan, hospital = self._plan, int(self._plan.ids[j])
        X, y = self._rows(hospital, j)
        row = int(phase.start[j])  # numpy compares its own integers with those of an enumeration ten times slower
        start = last if row == LAST and last is not None else parameters(plan, row, hospital, self._kept)
        objective = phase.objective
        weights = [(float(of_entry(pull.weight, j)), pull.towards[j]) for pull in objective.pulls]
        contrast = None
        if objective.contrast is not None:
            previous = self._kept.get(hospital, {}).get(MODEL, start)
            contrast = ContrastTerm(objective.contrast.weight, objective.contrast.temperature, start, previous)
        linear = None
        if objective.variates is not None:
            linear = objective.variates.server - self._variate(hospital)
        return Task(
            X=X,
            y=y,
            start=start,
            pulls=[(weight, plan.bank[row]) for weight, row in weights if weight],
            epochs=plan.work.epochs if phase.visit.epochs is None else int(of_entry(phase.visit.epochs, j)),
            learning_rate=self._rate(phase.visit),
            batches=partial(stream, plan.work.seed, self._purpose(step, j), plan.round, hospital),
            linear=linear,
            frozen=objective.frozen,
            contrast=contrast,
            weights=row_weights(plan.work.class_weights, y),
            moments=self._moments(hospital) if phase.visit.carry else None,
        )

    def _moments(self, hospital: int) -> Moments:
        """Where the hospital's optimiser stopped; a kernel may write on it."""
        memory = self._kept.get(hospital, {})
        steps = memory.get(STEPS)
        return Moments(memory.get(FIRST), memory.get(SECOND), 0 if steps is None else int(steps[0]))

    def _rows(self, hospital: int, j: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What the entry trains on: a bad hospital's rows as its attack makes them."""
        X, y = self._true_rows(hospital, j)
        return (X, y) if self._plan.attack is None else self._plan.attack.rows(hospital, X, y)

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

    def _purpose(self, step: int, j: int) -> str:
        """What a stream of batches is for: no two phases or groups share one, and the first are those of all rows."""
        group = 0 if self._problem.groups is None else int(self._problem.groups.group[j])
        return "batch" + (f" {step}" if step else "") + (f" of group {group}" if group else "")

    def _rate(self, visit: Visit) -> float:
        return self._plan.work.optimizer.learning_rate if visit.learning_rate is None else visit.learning_rate

    def _optimizer(self, visit: Visit) -> Optimizer:
        usual = self._plan.work.optimizer
        return replace(
            usual,
            name=usual.name if visit.optimizer is None else visit.optimizer,
            batch_size=usual.batch_size if visit.batch_size is None else visit.batch_size,
        )

    def _loss(self, task: Task) -> float:
        outputs = self._model.logits(task.start, task.X)
        return float(weighted_losses(self._model, self._plan.work, outputs, task.y).mean())

    def _trained(self, phase: LocalProblem, tasks: Sequence[Task], some: Sequence[int]) -> NDArray[Any]:
        optimizer, release = self._optimizer(phase.visit), self._plan.release
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
        batch, renewed = self._optimizer(phase.visit).batch_size, []
        for task, end, j in zip(tasks, trained, some, strict=True):
            variate = self._variate(int(self._plan.ids[j])).copy()
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
        changes = (plan.private, plan.attack, plan.release, plan.compressing, plan.masking)
        as_it_is = all(change is None for change in changes)
        forgets = not phase.visit.keep and not phase.visit.carry and phase.objective.variates is None
        return as_it_is and forgets

    def _leave_together(
        self, phase: LocalProblem, some: Sequence[int], tasks: Sequence[Task], trained: NDArray[Any]
    ) -> None:
        """What :meth:`_leave` does where the problem :meth:`_is_plain`, many small models at once; the same bits."""
        upload = phase.upload
        if upload is None or upload.weight is None or self._sums is None:
            raise ValueError("nothing is added up")
        together = max(1, TOGETHER // trained.shape[1])
        for first in range(0, len(some), together):
            part = slice(first, first + together)
            entries, starts = list(some[part]), np.stack([task.start for task in tasks[part]])
            deltas = np.subtract(trained[part], starts, dtype=np.float64)
            if not np.abs(deltas).max() < self._limit:
                for delta, j, task in zip(deltas, entries, tasks[part], strict=True):
                    self._check(delta, self._limit, j, task)
            groups = np.zeros(len(entries), np.int64) if upload.into is None else upload.into[entries]
            self._sums.add_rows(groups, upload.weight[entries].astype(np.float64), deltas)

    def _leave(self, phase: LocalProblem, j: int, task: Task, theta: Parameters, variate: Parameters | None) -> None:
        """Add what the hospital sends, and note what it remembers."""
        delta = np.subtract(theta, task.start, dtype=np.float64)
        private, upload, variates = self._plan.private, phase.upload, phase.objective.variates
        if private is not None:
            delta[private] = 0.0
        change = None
        if variate is not None and variates is not None:
            change = np.subtract(variate, self._variate(int(self._plan.ids[j])), dtype=np.float64)
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
        if upload is not None and release is not None and release.patients is None:
            vectors = [delta] if change is None else [delta, change]
            if release.bit and self._sums is not None:
                bit = np.zeros_like(delta)
                bit[0] = release.short(vectors)
                self._sums.add(len(self._sums.units) - 1, 1.0, bit)
            delta, *changes = release.leaving(vectors, self._plan.work.seed, self._plan.round, int(self._plan.ids[j]))
            if private is not None:
                delta[private] = 0.0
            change = changes[0] if changes else None
        if upload is not None and self._plan.compressing is not None:
            delta = self._compressed(j, delta)
        self._check(delta, limit, j, task)
        if upload is not None:
            self._send(upload, j, delta, theta, task)
        if phase.visit.keep:
            self._remember(j, MODEL, theta)
        if task.moments is not None:
            self._carry(j, task.moments)
        if change is not None and variate is not None and variates is not None:
            self._vary(variates, j, variate, change, task)

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
            self._check(vector, self._limit, j, task)
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
        self._check(change, self._limit, j, task)
        if self._sums is not None:
            self._add(j, self._variates, float(variates.weight[j]), change)
        if self._plan.release is not None:
            # What the server was told of, so that its variate stays the mean of hospitals' own.
            variate = (self._variate(int(self._plan.ids[j])) + change).astype(variate.dtype)
        self._remember(j, VARIATE, variate)

    def _check(self, vector: NDArray[Any], limit: float, j: int, task: Task) -> None:
        """Raise :class:`TrainingDiverged` unless all entries are below ``limit``, and finite where that is infinite."""
        if np.abs(vector).max(initial=0.0) < limit:  # False for NaN, and for infinity whatever the limit
            return
        hospital = int(self._plan.ids[j])
        name = "the pooled rows" if hospital == POOLED else f"hospital '{self._open(False).hospitals[hospital]}'"
        raise TrainingDiverged(
            f"training.learning_rate: {task.learning_rate} made {name} diverge in round {self._plan.round}; "
            "lower it or scale the features"
        )

    def _variate(self, hospital: int) -> Parameters:
        variate = self._kept.get(hospital, {}).get(VARIATE)
        return np.zeros(self._plan.bank.shape[1], self._plan.bank.dtype) if variate is None else variate

    def _carry(self, j: int, moments: Moments) -> None:
        for what, vector in ((FIRST, moments.first), (SECOND, moments.second)):
            if vector is not None:
                self._remember(j, what, vector)
        if moments.steps:
            self._remember(j, STEPS, np.array([moments.steps]))

    def _remember(self, j: int, what: str, vector: Any) -> None:
        self._kept.setdefault(int(self._plan.ids[j]), {})[what] = vector.copy()


class named:
    """Gives an error of one hospital that hospital's name."""

    def __init__(self, federation: Federation, hospital: int, doing: str) -> None:
        self._name = "pooled rows" if hospital == POOLED else federation.hospitals[hospital]
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SystemExit) and exits.of_plugin(error):
            raise HospitalFailed(
                f"hospital '{self._name}' failed while {self._doing}: what it ran {exits.said(error)}; raise an error "
                "instead"
            ) from None
        if isinstance(error, Exception) and not isinstance(error, RaysimError):
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise HospitalFailed(f"hospital '{self._name}' failed while {self._doing}: {text}") from error


class Models(Protocol):
    """The server's models, ``bank [M, P]``; ``mixture [N, M]`` and ``private [P]`` as in :class:`RoundPlan`."""

    @property
    def bank(self) -> NDArray[Any]: ...
    @property
    def mixture(self) -> Floats | None: ...
    @property
    def private(self) -> NDArray[np.bool_] | None: ...


def parameters(plan: Models, row: int, hospital: int, kept: HospitalStates) -> Parameters:
    """The parameters that a bank row, ``OWN`` or ``MIXTURE`` stands for at a hospital, its private ones included."""
    model = kept.get(hospital, {}).get(MODEL)
    if row == OWN and model is not None:
        return model
    shared: Parameters
    if row in (OWN, MIXTURE) and plan.mixture is not None:
        shared = (plan.mixture[hospital] @ plan.bank).astype(plan.bank.dtype)
    else:
        shared = plan.bank[0 if row == OWN else row]
    return with_private(shared, plan.private, model)


def with_private(theta: Parameters, private: Mask | None, kept: Parameters | None) -> Parameters:
    """``theta [P]`` with the ``private [P]`` parameters of the model that a hospital has ``kept``, if it has."""
    return theta if private is None or kept is None else np.where(private, kept, theta)


def weighted_losses(model: Model, work: Work, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """What training minimises the mean of: the loss of each row ``[n]`` times the weight of its class."""
    losses, weights = model.row_losses(outputs, y), row_weights(work.class_weights, y)
    return losses if weights is None else losses * weights


def of_entry(value: Any, j: int) -> Any:
    """What is said of entry ``j`` by ``value``, one for all or ``[H]``."""
    return value[j] if isinstance(value, np.ndarray) else value


def sum_count(problem: LocalProblem) -> int:
    """How many sums come back of a problem: those of its upload, and behind them one of control variates."""
    sent = problem.sent
    return 0 if sent is None else sent.sums + (problem.objective.variates is not None)


def heaviest(problem: LocalProblem) -> float:
    """The magnitudes of all weights in the sum where these come to most.

    They are the whole cohort's, so that what is refused does not depend on which process serves whom.
    """
    totals = [0.0]
    sent, variates = problem.sent, problem.objective.variates
    if sent is not None and sent.weight is not None:
        weight = np.abs(sent.weight)
        if weight.ndim == 1:
            into = np.zeros(len(weight), dtype=np.int64) if sent.into is None else sent.into
            weight = np.bincount(into, weights=weight)
        else:
            weight = weight.sum(axis=0)
        totals.append(float(weight.max()))
    if variates is not None:
        totals.append(float(np.abs(variates.weight).sum()))
    return max(totals)


def pooled_rows(federation: Federation) -> NDArray[np.int64]:
    """Indices of the training rows of all hospitals, in order."""
    return np.concatenate([np.arange(start, stop) for start, stop in federation.bounds[:, :2]])
