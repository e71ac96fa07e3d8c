"""A round's training at the hospitals of one process: each visit's chain of problems, and what it sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import HospitalFailed, RaysimError, TrainingDiverged
from raysim.core.exact import ExactSum, largest_entry
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.divisions import Groups
from raysim.engine.messages import MODEL, VARIATE, HospitalStates, PartialResult, RoundPlan
from raysim.strategies.base import LAST, MIXTURE, OWN, POOLED, LocalProblem, Variates
from raysim.training.base import ContrastTerm, Model, Optimizer, Task

Parameters = NDArray[Any]


class LocalTraining:
    """The entries ``mine`` of ``plan``'s cohort, trained with ``model``.

    ``open(pooled)`` gives the rows, ``kept`` is what hospitals remember and stays as it is, ``groups`` knows which rows
    are in which group of patients.
    """

    def __init__(
        self,
        plan: RoundPlan,
        mine: Sequence[int],
        model: Model,
        open: Callable[[bool], Federation],
        kept: HospitalStates,
        groups: Groups,
    ) -> None:
        if plan.problem is None:
            raise ValueError("the plan has no problem")
        self._plan, self._mine, self._model, self._open, self._groups = plan, mine, model, open, groups
        self._problem = plan.problem
        if self._problem.part is not None and (
            plan.private is not None or any(phase.keep or phase.variates is not None for phase in self._problem.chain)
        ):
            raise ValueError("a problem has parts, but what a hospital keeps is of all its rows")
        self._kept = {hospital: dict(own) for hospital, own in kept.items()}
        chain, size = plan.problem.chain, plan.bank.shape[1]
        sends = any(phase.send != "nothing" or phase.variates is not None for phase in chain)
        self._sums = ExactSum(max(phase.sums for phase in chain), size) if sends else None
        self._limit = largest_entry(heaviest(plan.problem))
        self._deltas: list[Parameters] = []
        self._losses: list[float] = []

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
        )
        return sent, self._kept

    def _task(self, phase: LocalProblem, step: int, j: int, last: Parameters | None) -> Task:
        plan, hospital = self._plan, int(self._plan.ids[j])
        X, y = self._rows(hospital, j)
        start = last if phase.start[j] == LAST else parameters(plan, int(phase.start[j]), hospital, self._kept)
        if start is None:
            raise ValueError("a problem starts from LAST, but there is none before it")
        epochs = phase.epochs
        if epochs is None:
            epochs = plan.work.epochs
        elif not isinstance(epochs, int):
            epochs = int(epochs[j])
        pulls = []
        for pull in phase.pulls:
            weight = pull.weight if isinstance(pull.weight, int | float) else float(pull.weight[j])
            if weight:
                pulls.append((weight, plan.bank[pull.towards[j]]))
        contrast = None
        if phase.contrast is not None:
            own = self._kept.get(hospital, {}).get(MODEL, start)
            contrast = ContrastTerm(phase.contrast.weight, phase.contrast.temperature, start, own)
        linear = None
        if phase.variates is not None:
            linear = plan.bank[phase.variates.server] - self._variate(hospital)
        return Task(
            X=X,
            y=y,
            start=start,
            pulls=pulls,
            epochs=epochs,
            learning_rate=self._rate(phase),
            batches=partial(stream, plan.work.seed, self._purpose(step, j), plan.round, hospital),
            linear=linear,
            frozen=phase.frozen,
            contrast=contrast,
        )

    def _rows(self, hospital: int, j: int) -> tuple[NDArray[Any], NDArray[Any]]:
        federation, part = self._open(hospital == POOLED), self._problem.part
        if part is not None:
            with named(federation, hospital, f"dividing its rows in round {self._plan.round}"):
                rows = self._groups.rows(federation, self._plan.division, hospital, "train", int(part[j]))
            return federation.X[rows], federation.y[rows]
        if hospital == POOLED:
            everything = pooled_rows(federation)
            return federation.X[everything], federation.y[everything]
        own = federation.rows(hospital, "train")
        return federation.X[own], federation.y[own]

    def _purpose(self, step: int, j: int) -> str:
        """What a stream of batches is for: no two phases or groups share one, and the first are those of all rows."""
        part = 0 if self._problem.part is None else int(self._problem.part[j])
        return "batch" + (f" {step}" if step else "") + (f" of group {part}" if part else "")

    def _rate(self, phase: LocalProblem) -> float:
        return self._plan.work.optimizer.learning_rate if phase.learning_rate is None else phase.learning_rate

    def _optimizer(self, phase: LocalProblem) -> Optimizer:
        usual = self._plan.work.optimizer
        return replace(
            usual,
            name=usual.name if phase.optimizer is None else phase.optimizer,
            batch_size=usual.batch_size if phase.batch_size is None else phase.batch_size,
        )

    def _loss(self, task: Task) -> float:
        return float(self._model.row_losses(self._model.logits(task.start, task.X), task.y).mean())

    def _trained(self, phase: LocalProblem, tasks: Sequence[Task], some: Sequence[int]) -> NDArray[Any]:
        optimizer = self._optimizer(phase)
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

    def _renewed(
        self, phase: LocalProblem, tasks: Sequence[Task], trained: NDArray[Any], some: Sequence[int]
    ) -> list[Parameters] | None:
        """The hospitals' control variates after the round (SCAFFOLD, options I and II); those without rows keep 0."""
        if phase.variates is None:
            return None
        moved = self._model.layout.trained
        if phase.variates.renew == "gradient":
            whole = [replace(task, pulls=(), linear=None, epochs=1, learning_rate=1.0) for task in tasks]
            trained = self._model.train(whole, Optimizer("sgd", 1.0, 0))
        batch, renewed = self._optimizer(phase).batch_size, []
        for task, end, j in zip(tasks, trained, some, strict=True):
            own = self._variate(int(self._plan.ids[j])).copy()
            steps = task.epochs * (-(-len(task.y) // batch) if batch else 1)
            if phase.variates.renew == "gradient":
                own[:moved] = (task.start - end)[:moved]
            elif steps and len(task.y):
                slope = (task.start - end) / (steps * task.learning_rate)
                own[:moved] += (slope - self._plan.bank[phase.variates.server])[:moved]
            renewed.append(own)
        return renewed

    def _leave(self, phase: LocalProblem, j: int, task: Task, theta: Parameters, variate: Parameters | None) -> None:
        """Add what the hospital sends, and note what it remembers."""
        delta = np.subtract(theta, task.start, dtype=np.float64)
        private = self._plan.private
        if private is not None:
            delta[private] = 0.0
        summed = phase.send != "nothing" and phase.weight is not None
        self._check(delta, self._limit if summed and phase.send == "delta" else np.inf, j, task)
        if summed:
            sent = delta if phase.send == "delta" else np.where(private, 0.0, theta) if private is not None else theta
            if phase.send == "parameters":
                self._check(sent, self._limit, j, task)
            self._add(phase, j, sent)
        if phase.single:
            self._deltas.append(delta)
        if phase.keep:
            self._remember(j, MODEL, theta)
        if variate is not None and phase.variates is not None:
            self._vary(phase.variates, j, variate, task)

    def _vary(self, variates: Variates, j: int, variate: Parameters, task: Task) -> None:
        change = np.subtract(variate, self._variate(int(self._plan.ids[j])), dtype=np.float64)
        self._check(change, self._limit, j, task)
        if self._sums is not None:
            self._sums.add(variates.into, float(variates.weight[j]), change)
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

    def _add(self, phase: LocalProblem, j: int, vector: NDArray[Any]) -> None:
        """Add what entry ``j`` sends to the sum, or sums, that it goes into."""
        if phase.weight is None or self._sums is None:
            return
        if phase.weight.ndim == 1:
            self._sums.add(0 if phase.into is None else int(phase.into[j]), float(phase.weight[j]), vector)
            return
        for group in np.flatnonzero(phase.weight[j]):
            self._sums.add(int(group), float(phase.weight[j, group]), vector)

    def _variate(self, hospital: int) -> Parameters:
        own = self._kept.get(hospital, {}).get(VARIATE)
        return np.zeros(self._plan.bank.shape[1], self._plan.bank.dtype) if own is None else own

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
        if isinstance(error, Exception) and not isinstance(error, RaysimError):
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise HospitalFailed(f"hospital '{self._name}' failed while {self._doing}: {text}") from error


def parameters(plan: RoundPlan, row: int, hospital: int, kept: HospitalStates) -> Parameters:
    """The parameters that a bank row, ``OWN`` or ``MIXTURE`` stands for at a hospital, its private ones included."""
    own = kept.get(hospital, {}).get(MODEL)
    if row == OWN and own is not None:
        return own
    if row in (OWN, MIXTURE) and plan.mixture is not None:
        found: Parameters = (plan.mixture[hospital] @ plan.bank).astype(plan.bank.dtype)
    else:
        found = plan.bank[max(row, 0)]
    return with_private(found, plan.private, own)


def with_private(theta: Parameters, private: NDArray[np.bool_] | None, own: Parameters | None) -> Parameters:
    """``theta [P]`` with the ``private [P]`` parameters of a hospital's ``own``, if it has its own."""
    return theta if private is None or own is None else np.where(private, own, theta)


def heaviest(problem: LocalProblem) -> float:
    """The magnitudes of all weights in the sum where these come to most.

    They are the whole cohort's, so that what is refused does not depend on which process serves whom.
    """
    totals = np.zeros(max(phase.sums for phase in problem.chain))
    for phase in problem.chain:
        if phase.send != "nothing" and phase.weight is not None:
            weight = np.abs(phase.weight)
            if weight.ndim == 1:
                into = np.zeros(len(weight), dtype=np.int64) if phase.into is None else phase.into
                totals += np.bincount(into, weights=weight, minlength=len(totals))
            else:
                totals[: weight.shape[1]] += weight.sum(axis=0)
        if phase.variates is not None:
            totals[phase.variates.into] += np.abs(phase.variates.weight).sum()
    return float(totals.max())


def pooled_rows(federation: Federation) -> NDArray[np.int64]:
    """Indices of the training rows of all hospitals, in order."""
    return np.concatenate([np.arange(start, stop) for start, stop in federation.bounds[:, :2]])
