"""The hospitals that one process serves: they train, evaluate and answer questions on their own rows.

A :class:`HospitalGroup` is pure: it holds nothing but mapped data and compiled models, both reloadable, so that a call
repeated after a crash gives the same result and several runs can share the group. What hospitals remember between
rounds comes in with the call and goes out with its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim import metrics
from raysim.data.federation import Federation
from raysim.errors import RaysimError, TrainingDiverged
from raysim.exact import ExactSum, largest_term
from raysim.messages import Kept, Partial, Plan, Work
from raysim.streams import stream
from raysim.training.base import Model, Task, row_losses
from strategies.base import MIXTURE, OWN, POOLED, Floats, HospitalRows, Ids, LocalProblem, Question

CHUNK_BYTES = 32 * 2**20
"""Parameters of hospitals trained in one call of a kernel on a CPU, so that they stay within its caches and memory."""


Open = Callable[[str, bool], Federation]


class HospitalFailed(RaysimError):
    """A hospital raised an error of its own while it trained, evaluated or answered."""


def mapped(folder: str, pooled: bool) -> Federation:
    """The federation of a folder that this process can read: rows that nobody touches cost nothing."""
    return Federation.open(folder)


class HospitalGroup:
    """``served [h]``: ids of the hospitals of this process. The group with ``pools`` also trains on pooled rows.

    ``open(folder, pooled)`` gives a federation that has at least the rows of ``served``, or all that is trained on.
    """

    def __init__(self, served: Ids, *, pools: bool, device: str, open: Open = mapped) -> None:
        self.served = served
        self._pools = pools
        self._device = device
        self._serves = set(served.tolist())
        self._models: dict[str, Model] = {}
        self._federation = lru_cache(maxsize=16)(open)

    def round(self, plan: Plan, kept: Kept | None) -> tuple[Partial, Kept]:
        """Evaluate the bank, then train the cohort's hospitals from it. Returns the partial result and what is kept.

        Raises :class:`TrainingDiverged` or :class:`HospitalFailed` naming the hospital and the round.
        """
        began = time.perf_counter()
        kept = kept or {}
        result = Partial()
        if plan.serve:
            self._evaluate(plan, kept, result)
        if plan.problem is not None:
            kept = self._train(plan, plan.problem, kept, result)
        result.seconds = time.perf_counter() - began
        return result, kept

    def ask(self, work: Work, question: Question, round: int, models: Floats | None, ids: Ids | None) -> list[Floats]:
        """The answers of this process's hospitals that are among ``ids`` (None: all), in the order of ``served``."""
        federation = self._federation(work.federation, False)
        theirs = self._serves if ids is None else self._serves & set(ids.tolist())
        answers = []
        for hospital in self.served.tolist():
            if hospital not in theirs:
                continue
            rows = federation.rows(hospital, "train")
            X, y = federation.X[rows], federation.y[rows]
            with _named(federation, hospital, f"answering '{question.kind}'"):
                losses = np.empty((0, len(y)))
                if models is not None:
                    model = self.model(work)
                    losses = np.stack([row_losses(model.logits(theta, X), y) for theta in models])
                rng = stream(work.seed, question.kind, round, hospital)
                own = HospitalRows(X, y, federation.observed[rows], len(federation.classes), losses, rng)
                answers.append(question.answer(own))
        return answers

    def model(self, work: Work) -> Model:
        """The model of a run, built once."""
        key = repr((work.federation, work.model, work.precision))
        if key not in self._models:
            self._models[key] = work.model.bind(self._federation(work.federation, False), self._device, work.precision)
        return self._models[key]

    def _train(self, plan: Plan, problem: LocalProblem, kept: Kept, result: Partial) -> Kept:
        mine = [j for j, hospital in enumerate(plan.ids.tolist()) if self._is_mine(hospital)]
        if not mine:
            return kept
        model, size = self.model(plan.work), plan.bank.shape[1]
        sums = ExactSum(problem.sums, size) if problem.send != "nothing" else None
        limit = largest_term(len(plan.ids))
        remembered = dict(kept) if problem.keep else kept
        deltas, losses = [], []
        chunk = max(1, CHUNK_BYTES // (size * plan.bank.itemsize)) if self._device == "cpu" else len(mine)
        for first in range(0, len(mine), chunk):
            some = mine[first : first + chunk]
            tasks = [self._task(plan, problem, j, kept) for j in some]
            if plan.losses:
                losses += [row_losses(model.logits(task.start, task.X), task.y).mean() for task in tasks]
            trained = self._trained(plan, model, tasks, [int(plan.ids[j]) for j in some])
            for j, task, theta in zip(some, tasks, trained, strict=True):
                delta = np.subtract(theta, task.start, dtype=np.float64)
                if not np.abs(delta).max(initial=0.0) < limit:  # also catches NaN
                    raise TrainingDiverged(self._diverged(plan, int(plan.ids[j])))
                if sums is not None:
                    _add(sums, problem, j, delta if problem.send == "delta" else theta)
                if problem.single:
                    deltas.append(delta)
                if problem.keep:
                    remembered[int(plan.ids[j])] = theta.copy()
        result.ids = plan.ids[mine]
        result.units = sums.units if sums is not None else None
        result.deltas = np.stack(deltas) if deltas else None
        result.losses = np.array(losses) if losses else None
        return remembered

    def _trained(self, plan: Plan, model: Model, tasks: Sequence[Task], ids: Sequence[int]) -> NDArray[Any]:
        try:
            return model.train(tasks, plan.work.optimizer)
        except RaysimError:
            raise
        except Exception:
            # Find out whose rows or parameters it was, so that the error can say so.
            federation = self._federation(plan.work.federation, False)
            for task, hospital in zip(tasks, ids, strict=True):
                with _named(federation, hospital, f"training in round {plan.round}"):
                    model.train([task], plan.work.optimizer)
            raise

    def _is_mine(self, hospital: int) -> bool:
        return self._pools if hospital == POOLED else hospital in self._serves

    def _task(self, plan: Plan, problem: LocalProblem, j: int, kept: Kept) -> Task:
        work, hospital = plan.work, int(plan.ids[j])
        federation = self._federation(work.federation, hospital == POOLED)
        epochs = problem.epochs
        if epochs is None:
            epochs = work.epochs
        elif not isinstance(epochs, int):
            epochs = int(epochs[j])
        rows: slice | NDArray[Any] = (
            pooled_rows(federation) if hospital == POOLED else federation.rows(hospital, "train")
        )
        pulls = []
        for pull in problem.pulls:
            weight = pull.weight if isinstance(pull.weight, int | float) else float(pull.weight[j])
            if weight:
                pulls.append((weight, plan.bank[pull.towards[j]]))
        rate = work.optimizer.learning_rate if problem.learning_rate is None else problem.learning_rate
        return Task(
            X=federation.X[rows],
            y=federation.y[rows],
            start=_parameters(plan, int(problem.start[j]), hospital, kept),
            pulls=pulls,
            epochs=epochs,
            learning_rate=rate,
            batches=partial(stream, work.seed, "batch", plan.round, hospital),
        )

    def _diverged(self, plan: Plan, hospital: int) -> str:
        federation = self._federation(plan.work.federation, False)
        name = "the pooled rows" if hospital == POOLED else f"hospital '{federation.hospitals[hospital]}'"
        rate = plan.work.optimizer.learning_rate
        if plan.problem is not None and plan.problem.learning_rate is not None:
            rate = plan.problem.learning_rate
        return (
            f"training.learning_rate: {rate} made {name} diverge in round {plan.round}; lower it or scale the features"
        )

    def _evaluate(self, plan: Plan, kept: Kept, result: Partial) -> None:
        work = plan.work
        federation, model = self._federation(work.federation, False), self.model(work)
        part = {h: federation.rows(h, plan.part) for h in self.served.tolist()}
        offsets = np.concatenate([[0], np.cumsum([rows.stop - rows.start for rows in part.values()])])
        y = np.concatenate([federation.y[rows] for rows in part.values()])
        for name, rows_of in plan.serve.items():
            scores = []
            for hospital, rows in part.items():
                with _named(federation, hospital, f"evaluating in round {plan.round}"):
                    theta = _parameters(plan, int(rows_of[hospital]), hospital, kept)
                    scores.append(model.logits(theta, federation.X[rows]))
            logits = np.concatenate(scores)
            result.figures[name] = metrics.figures(logits, y, offsets)
            if plan.histograms and logits.ndim == 1:
                result.histograms[name] = metrics.score_histogram(logits, y)


class _named:
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


def pooled_rows(federation: Federation) -> NDArray[np.int64]:
    """Indices of the training rows of all hospitals, in order."""
    return np.concatenate([np.arange(start, stop) for start, stop in federation.bounds[:, :2]])


def _add(sums: ExactSum, problem: LocalProblem, j: int, vector: NDArray[Any]) -> None:
    """Add what hospital ``j`` of the cohort sends to the sum, or sums, that it goes into."""
    if problem.weight is None:
        return
    if problem.weight.ndim == 1:
        sums.add(0 if problem.into is None else int(problem.into[j]), float(problem.weight[j]), vector)
        return
    for group in np.flatnonzero(problem.weight[j]):
        sums.add(int(group), float(problem.weight[j, group]), vector)


def _parameters(plan: Plan, row: int, hospital: int, kept: Kept) -> NDArray[Any]:
    """The parameters that a bank row, ``OWN`` or ``MIXTURE`` stands for."""
    if row == OWN and hospital in kept:
        return kept[hospital]
    if row in (OWN, MIXTURE):
        if plan.mixture is None:
            row = 0
        else:
            mixed: NDArray[Any] = (plan.mixture[hospital] @ plan.bank).astype(plan.bank.dtype)
            return mixed
    parameters: NDArray[Any] = plan.bank[row]
    return parameters
