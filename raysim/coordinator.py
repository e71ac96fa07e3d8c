"""The server of the simulation: runs a strategy's rounds over a pool of hospitals.

A round is one message down and one up. The plan of round ``t`` first lets everybody evaluate the models that round
``t - 1`` made, then train from them; so evaluation costs no message of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from raysim import metrics
from raysim.config import Evaluation
from raysim.data.federation import Federation
from raysim.egress import SCALAR_BYTES, Ledger, record_training
from raysim.errors import ConfigError
from raysim.exact import decode
from raysim.messages import Kept, Partial, Plan, Work
from raysim.pool import Memory, Pool
from raysim.streams import stream
from raysim.summary import federation_metrics
from raysim.training.base import Layout
from strategies.base import (
    OWN,
    POOLED,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Question,
    Selection,
    State,
    Strategy,
    Update,
)


@dataclass(frozen=True)
class Job:
    """One training run: a strategy with a seed."""

    work: Work
    strategy: Strategy
    selection: Selection
    rounds: int
    evaluation: Evaluation


@dataclass(eq=False)
class Round:
    """A row of ``rounds.csv``. ``metrics`` maps each evaluated model served to its federation-level metrics."""

    round: int
    seconds: float
    cohort_size: int
    bytes_down: int
    bytes_up: int
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(eq=False)
class Outcome:
    """What a finished run leaves.

    ``figures`` per model served ``[N, len(metrics.FIGURES)]``; ``metrics`` per model served, federation-level;
    ``serve`` per model served, ``[N]`` bank rows or OWN; ``bank [M, P]`` with row 0 the global model; ``cluster [N]``
    bank rows or None; ``kept`` the hospitals' own models; ``seconds`` of all, set-up and last evaluation included.
    """

    rounds: list[Round]
    figures: dict[str, Floats]
    metrics: dict[str, dict[str, float]]
    serve: dict[str, Ids]
    bank: Floats
    cluster: Ids | None
    kept: Kept
    layout: Layout
    ledger: Ledger
    seconds: float


@dataclass(eq=False)
class Standing:
    """Where a job stands after ``round``: what it can go on from, with the same hyper-parameters or others."""

    round: int
    state: State
    kept: Kept | None


class Coordinator:
    """Runs jobs over ``pool``, one at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(self, job: Job) -> Iterator[Round | Outcome]:
        """Yields each round as soon as its models have been evaluated, and at last the outcome."""
        yield from Run(self._pool, job).play()


class Run:
    """The state of one job while it is played, from its beginning or ``since`` an earlier standing."""

    def __init__(self, pool: Pool, job: Job, since: Standing | None = None) -> None:
        self._pool = pool
        self._job = job
        self._federation = Federation.open(job.work.federation)
        self._order = np.argsort(np.concatenate(pool.served))
        self._ledger = Ledger()
        self._round = 0
        self._asked_down, self._asked_up = 0, 0
        work = job.work
        model = work.model.bind(self._federation, "cpu", work.precision)
        self._layout = model.layout
        self._view = FederationView(
            names=self._federation.hospitals,
            sizes=self._federation.sizes("train"),
            classes=len(self._federation.classes),
            initial=model.initial(stream(work.seed, "initial")),
            local_epochs=work.epochs,
            selection=job.selection,
            memory=None,
            rng=lambda purpose, *key: stream(work.seed, purpose, *key),
            ask=self._ask,
        )
        self._memory: Memory | None = None
        if since is not None and since.kept is not None:
            self._memory = self._dealt(since.kept)
        self._since = since
        self._stood: tuple[int, State, Memory | None] | None = None

    def standing(self) -> Standing | None:
        """After the last round that was yielded; None before the first."""
        if self._stood is None:
            return None
        t, state, memory = self._stood
        return Standing(t, state, None if memory is None else self._pool.recall(memory))

    def play(self) -> Iterator[Round | Outcome]:
        """See :meth:`Coordinator.run`."""
        job, view, began = self._job, self._view, time.perf_counter()
        strategy = job.strategy
        self._register()
        first, state = (0, strategy.setup(view)) if self._since is None else (self._since.round, self._since.state)
        rounds: list[Round] = []
        for t in range(first + 1, job.rounds + 1):
            start = time.perf_counter()
            self._stood = (t - 1, state, self._memory)
            self._round, self._asked_down, self._asked_up = t, 0, 0
            ids = strategy.select(view, state, t)
            due = bool(rounds) and job.evaluation.every > 0 and (t - 1) % job.evaluation.every == 0
            problem = strategy.problem(view, state, ids) if len(ids) else None
            partials = self._send(state, t, ids, problem, self._served(state) if due else {})
            if rounds:
                if due:
                    rounds[-1].metrics = self._judge(t - 1, partials)[1]
                yield rounds[-1]
            down, up = 0, 0
            if problem is not None:
                down, up = self._record(t, ids, problem, len(state.bank))
                update = self._merge(ids, partials, problem)
                state = strategy.aggregate(view, state, update)
                view = replace(view, memory=job.selection.observe(view.memory, update))
            cohort = len(view.trainable) if POOLED in ids else len(ids)
            down, up = down + self._asked_down, up + self._asked_up
            rounds.append(Round(t, time.perf_counter() - start, cohort, down, up))
        personal = strategy.personalize(view, state)
        if personal is not None:
            everyone = np.arange(len(view.sizes))
            self._send(state, job.rounds + 1, everyone, personal, {})
            self._record(job.rounds + 1, everyone, personal, len(state.bank))
        nobody = np.empty(0, dtype=np.int64)
        last = self._send(state, job.rounds + 1, nobody, None, self._served(state), histograms=True)
        figures, summary = self._judge(job.rounds, last)
        if rounds:
            rounds[-1].metrics = summary
            yield rounds[-1]
        yield Outcome(
            rounds=rounds,
            figures=figures,
            metrics=summary,
            serve=strategy.serve(view, state),
            bank=state.bank,
            cluster=state.cluster,
            kept=self._pool.recall(self._memory) if self._memory is not None else {},
            layout=self._layout,
            ledger=self._ledger,
            seconds=time.perf_counter() - began,
        )

    def _dealt(self, kept: Kept) -> Memory:
        """What each process's hospitals remember; what was learned on pooled rows is with the first process."""
        served = [set(ids.tolist()) | ({POOLED} if i == 0 else set()) for i, ids in enumerate(self._pool.served)]
        return [{hospital: kept[hospital] for hospital in sorted(ids) if hospital in kept} for ids in served]

    def _register(self) -> None:
        everyone = np.arange(len(self._view.sizes))
        self._ledger.add(0, "size", everyone, 1)
        if self._federation.preprocessing_scalars:
            self._ledger.add(0, "preprocessing", everyone, self._federation.preprocessing_scalars)

    def _ask(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        sent = None if models is None else models.astype(self._job.work.precision)
        answers = [
            answer
            for per_process in self._pool.ask(self._job.work, question, self._round, sent, ids)
            for answer in per_process
        ]
        asked = np.arange(len(self._order)) if ids is None else ids
        home = np.concatenate(self._pool.served)
        order = np.argsort(home[np.isin(home, asked)])
        answers = [answers[i] for i in order]
        self._asked_up += self._ledger.add(
            self._round, question.kind, asked, np.array([answer.size for answer in answers])
        )
        self._asked_down += 0 if models is None else models.size * len(asked) * SCALAR_BYTES
        return answers

    def _served(self, state: State) -> dict[str, Ids]:
        """The models that can be evaluated now: a hospital's own only once hospitals have kept some."""
        models = self._job.strategy.serve(self._view, state)
        remembered = self._memory is not None
        return {name: rows for name, rows in models.items() if remembered or not (rows == OWN).all()}

    def _send(
        self,
        state: State,
        t: int,
        ids: Ids,
        problem: LocalProblem | None,
        serve: dict[str, Ids],
        histograms: bool = False,
    ) -> list[Partial]:
        plan = Plan(
            work=self._job.work,
            round=t,
            bank=state.bank.astype(self._job.work.precision),
            ids=ids,
            problem=problem,
            mixture=self._job.strategy.mixture(self._view, state),
            losses=self._job.selection.hears_losses,
            serve=serve,
            part=self._job.evaluation.part,
            histograms=histograms,
        )
        partials, memory = self._pool.round(plan, self._memory)
        if self._memory is not None or (problem is not None and problem.keep):
            self._memory = memory
        return partials

    def _record(self, t: int, ids: Ids, problem: LocalProblem, models: int) -> tuple[int, int]:
        if POOLED in ids and t == 1:
            everyone = np.arange(len(self._view.sizes))
            self._ledger.add(0, "rows", everyone, self._view.sizes * (self._federation.X.shape[1] + 1))
        return record_training(
            self._ledger, t, ids, problem, self._layout.size, models, self._job.selection.hears_losses
        )

    def _merge(self, ids: Ids, partials: Sequence[Partial], problem: LocalProblem) -> Update:
        """What came back, in id order; the sums are of integers, so that the order of processes does not matter."""
        total = np.zeros((problem.sums, self._layout.size), dtype=np.int64)
        for partial in partials:
            if partial.units is not None:
                total += partial.units
        trained = [partial for partial in partials if partial.ids is not None]
        home = [partial.ids for partial in trained if partial.ids is not None]
        order = np.argsort(np.concatenate(home)) if home else np.empty(0, dtype=np.int64)
        deltas = [partial.deltas for partial in trained if partial.deltas is not None]
        losses = [partial.losses for partial in trained if partial.losses is not None]
        return Update(
            ids=ids,
            sums=decode(total),
            deltas=np.concatenate(deltas)[order] if deltas else None,
            losses=np.concatenate(losses)[order] if losses else None,
        )

    def _judge(self, t: int, partials: Sequence[Partial]) -> tuple[dict[str, Floats], dict[str, dict[str, float]]]:
        """Per model served after round ``t``: hospitals' figures in id order, and the federation-level metrics."""
        figures: dict[str, Floats] = {}
        summary: dict[str, dict[str, float]] = {}
        for name in partials[0].figures:
            rows = np.concatenate([partial.figures[name] for partial in partials])[self._order]
            figures[name] = rows
            summary[name] = federation_metrics(rows, self._federation.totals)
            histograms = [partial.histograms[name] for partial in partials if name in partial.histograms]
            if histograms:
                summary[name]["pooled_auroc"], summary[name]["pooled_auroc_bound"] = metrics.pooled_auroc(histograms)
        self._ledger.add(t, "metrics", np.arange(len(self._order)), len(metrics.FIGURES) * len(figures))
        return figures, summary


def check_job(job: Job, federation: Federation) -> None:
    """Raise ``ConfigError`` for a job that this federation cannot serve, before anything starts."""
    try:
        job.strategy.check(federation.hospitals, federation.sizes("train"))
    except ValueError as error:
        raise ConfigError(f"strategy.{error}") from None
    if not federation.sizes(job.evaluation.part).any():
        raise ConfigError(
            f"evaluation.part: no hospital has {job.evaluation.part} rows; "
            f"give data.split.{job.evaluation.part} a share"
        )
