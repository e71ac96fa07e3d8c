"""The server of the simulation: runs a strategy's rounds over a pool of hospitals.

A round is one message down and one up. The plan of round ``t`` first lets everybody evaluate the models that round
``t - 1`` made, then train from them; so evaluation costs no message of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.core.exact import decode
from raysim.core.packing import pack_memory, pack_state
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine import subgroups
from raysim.engine.cadence import Cadence, Every
from raysim.engine.job import Event, History, Job, Outcome, Round, RunState
from raysim.engine.messages import MODEL, HospitalStates, Inquiry, PartialResult, RoundPlan
from raysim.engine.pool import Pool, StateReferences
from raysim.engine.subgroups import grouping
from raysim.metrics import measures as metrics
from raysim.strategies.base import (
    OWN,
    POOLED,
    FederationView,
    Floats,
    GroupSizes,
    Ids,
    LocalProblem,
    Question,
    State,
    Unfit,
    Update,
)
from raysim.traffic.exchange import Traffic, entries
from raysim.traffic.ledger import MEASURED, Ledger
from raysim.virtual_time.clock import Clock
from raysim.virtual_time.scheduling import ScheduledCohort
from raysim.virtual_time.unreliable import check_progress, scheduler


class Coordinator:
    """Runs jobs over ``pool``, one at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(self, job: Job, since: RunState | None = None, every: Every = 0) -> Iterator[Event]:
        """Yields each round as soon as its models have been evaluated, and at last the outcome.

        Between them come checkpoints, see :class:`Cadence`; a run ``since`` one of them tells only what comes after it.
        """
        yield from JobRun(self._pool, job, since).events(Cadence(every))


class JobRun:
    """The state of one job while it is played, from its beginning or ``since`` an earlier standing."""

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        self._pool = pool
        self._job = job
        self._federation = Federation.open(job.work.federation)
        self._order = np.argsort(np.concatenate(pool.served))
        self._round = 0
        work = job.work
        model = work.model.bind(self._federation, "cpu", work.precision)
        self._layout = model.layout
        self._view = FederationView(
            names=self._federation.hospitals,
            sizes=self._federation.sizes("train"),
            classes=len(self._federation.classes),
            initial=model.initial(stream(work.seed, "initial")),
            local_epochs=work.epochs,
            learning_rate=work.optimizer.learning_rate,
            selection=job.selection,
            memory=None,
            rng=lambda purpose, *key: stream(work.seed, purpose, *key),
            ask=self._ask,
            parameters=model.layout.slices,
            measured=model.layout.measured,
        )
        self._private = job.strategy.private(self._view)
        travels = self._layout.size - (0 if self._private is None else int(self._private.sum()))
        hears_losses = job.strategy.uses_selection() and job.selection.hears_losses
        self._traffic = Traffic(Ledger(), job.strategy, self._view, travels, hears_losses)
        self._grouping = grouping(self._federation, job.evaluation.groups, job.evaluation.age_bands)
        self._groups: dict[str, dict[str, tuple[Floats, Floats]]] = {}
        self._memory: StateReferences | None = None
        if since is not None and since.kept is not None:
            self._memory = self._dealt(since.kept)
        self._since = since
        self._stood: tuple[int, State, StateReferences | None, Any, Clock | None] | None = None
        self._scheduler, self._view = scheduler(
            job.strategy,
            job.system,
            self._view,
            work.seed,
            self._traffic.exchanged,
            self._measure,
            None if since is None else since.clock,
        )

    def standing(self) -> RunState | None:
        """After the last round that was yielded; None before the first."""
        if self._stood is None:
            return None
        t, state, kept, memory, clock = self._stood
        return RunState(t, state, None if kept is None else self._pool.recall(kept), memory, clock=clock)

    def play(self) -> Iterator[Round | Outcome]:
        """See :meth:`Coordinator.run`; without checkpoints."""
        for event in self.events(Cadence(0)):
            if not isinstance(event, RunState):
                yield event

    def events(self, cadence: Cadence) -> Iterator[Event]:
        """See :meth:`Coordinator.run`."""
        job, view, began = self._job, self._view, time.perf_counter()
        strategy, since = job.strategy, self._since
        rounds: list[Round] = []
        if since is not None and since.history is not None:
            history = since.history.copy()
            rounds, self._traffic.ledger, began = history.rounds, history.ledger, began - history.seconds
            self._traffic.setup_down = history.setup_down
            self._traffic.models_held = history.models_held.copy()
        else:
            self._register()
        if since is not None:
            first, state, view = since.round, since.state, replace(view, memory=since.memory)
        else:
            if strategy.uses_selection():
                view = replace(view, memory=job.selection.setup(view))
            first, state = 0, self._setup(view)
        if cadence.on:
            # What cannot be kept is said now, not after hours.
            pack_state(state, {}, strategy)
            pack_memory(view.memory, {})
        for t in range(first + 1, job.rounds + 1):
            start = time.perf_counter()
            self._stood = (t - 1, state, self._memory, view.memory, self._scheduler.clock)
            self._round = t
            self._traffic.begin(t)
            call = self._scheduler.schedule(replace(view, round=t), state, t)
            ids, problem = call.ids, call.problem
            due = bool(rounds) and job.evaluation.every > 0 and (t - 1) % job.evaluation.every == 0
            partials = self._send(call.state, t, ids, problem, self._served(state) if due else {})
            if rounds:
                if due:
                    rounds[-1].metrics = self._judge(t - 1, partials)[1]
                yield rounds[-1]
            self._traffic.in_vain(call.in_vain, call.unused, call.state)
            if t == 1 and POOLED in ids:
                everyone = np.arange(len(view.sizes))
                self._traffic.ledger.add(0, "rows", everyone, view.sizes * (self._federation.X.shape[1] + 1))
            if problem is not None:
                self._traffic.trained(ids, problem, call.state)
                update = self._merge(ids, partials, problem)
                state = strategy.aggregate(view, state, update)
                if strategy.uses_selection():
                    view = replace(view, memory=job.selection.observe(view.memory, update))
            cohort = len(view.trainable) if POOLED in ids else len(ids)
            down, up = self._traffic.down, self._traffic.up
            rounds.append(self._dated(Round(t, time.perf_counter() - start, cohort, down, up), call))
            if cadence.due(t):
                kept = None if self._memory is None else self._pool.recall(self._memory)
                seconds, traffic = time.perf_counter() - began, self._traffic
                history = History(rounds, traffic.ledger, seconds, traffic.setup_down, traffic.models_held).copy()
                yield RunState(t, state, kept, view.memory, history, self._scheduler.clock)
                cadence.made()
        yield from self._concluded(view, state, rounds, began)

    def _concluded(self, view: FederationView, state: State, rounds: list[Round], began: float) -> Iterator[Event]:
        """After the last round: hospitals' own models, the last evaluation, and the outcome."""
        job, strategy = self._job, self._job.strategy
        if job.system is not None:
            check_progress([row.cohort_size for row in rounds], self._scheduler.clock, job.system)
        personal = strategy.personalize(view, state)
        if personal is not None:
            everyone = np.arange(len(view.sizes))
            self._send(state, job.rounds + 1, everyone, personal, {})
            self._traffic.begin(job.rounds + 1)
            self._traffic.trained(everyone, personal, state)
        nobody, serve = np.empty(0, dtype=np.int64), self._serve(state)
        last = self._send(state, job.rounds + 1, nobody, None, serve, histograms=True)
        figures, summary = self._judge(job.rounds, last)
        if not job.rounds:
            # A strategy without rounds has done all its work, and sent all it sends, while it was set up.
            setup = self._traffic.setup
            row = Round(0, time.perf_counter() - began, 0, setup.down, setup.up)
            rounds.append(self._dated(row, ScheduledCohort(nobody, None, state)))
        if rounds:
            rounds[-1].metrics = summary
            yield rounds[-1]
        yield Outcome(
            rounds=rounds,
            figures=figures,
            metrics=summary,
            serve=serve,
            bank=state.bank,
            cluster=None if state.cluster is None else serve.get("cluster", state.cluster),
            kept=self._own_models(),
            layout=self._layout,
            ledger=self._traffic.ledger,
            seconds=time.perf_counter() - began,
            setup=self._traffic.setup,
            private=self._private,
            grouping=self._grouping,
            groups=self._groups,
            facts=strategy.facts(view, state),
            clusters_of_patients=self._clusters_of_patients(state),
        )

    def _setup(self, view: FederationView) -> State:
        try:
            return self._job.strategy.setup(view)
        except Unfit as error:
            raise ConfigError(f"strategy.{error}") from None

    def _clusters_of_patients(self, state: State) -> Ids | None:
        division = self._job.strategy.division(self._view, state)
        return None if division is None else np.stack(self._measure(GroupSizes(division))).astype(np.int64)

    def _own_models(self) -> dict[int, NDArray[Any]]:
        kept = self._pool.recall(self._memory) if self._memory is not None else {}
        return {hospital: own[MODEL] for hospital, own in kept.items() if MODEL in own}

    def _dealt(self, kept: HospitalStates) -> StateReferences:
        """What each process's hospitals remember; what was learned on pooled rows is with the first process."""
        served = [set(ids.tolist()) | ({POOLED} if i == 0 else set()) for i, ids in enumerate(self._pool.served)]
        return [{hospital: kept[hospital] for hospital in sorted(ids) if hospital in kept} for ids in served]

    def _register(self) -> None:
        everyone = np.arange(len(self._view.sizes))
        self._traffic.ledger.add(0, "size", everyone, 1)
        if self._federation.preprocessing_scalars:
            self._traffic.ledger.add(0, "preprocessing", everyone, self._federation.preprocessing_scalars)

    def _ask(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        answers = self._measure(question, models=models, ids=ids)
        asked = np.arange(len(self._order)) if ids is None else ids
        sizes = np.array([answer.size for answer in answers])
        self._scheduler.questions_answered(asked, *self._traffic.asked(question, asked, sizes, models))
        return answers

    def _measure(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The answers of hospitals ``ids``, in that order, without the traffic of asking."""
        sent = None if models is None else models.astype(self._job.work.precision)
        memory = None if sent is None or self._private is None else self._memory
        inquiry = Inquiry(self._job.work, question, self._round, sent, ids, self._private)
        answers = [answer for per_process in self._pool.ask(inquiry, memory) for answer in per_process]
        home = np.concatenate(self._pool.served)
        asked = np.arange(len(home)) if ids is None else ids
        told = dict(zip(home[np.isin(home, asked)].tolist(), answers, strict=True))
        return [told[hospital] for hospital in asked.tolist()]

    def _serve(self, state: State) -> dict[str, Ids]:
        return self._job.strategy.serve(replace(self._view, ask=self._measure), state)

    def _served(self, state: State) -> dict[str, Ids]:
        """The models that are evaluated between rounds: a hospital's own only once hospitals have kept some."""
        models = self._serve(state)
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
    ) -> list[PartialResult]:
        plan = RoundPlan(
            work=self._job.work,
            round=t,
            bank=state.bank.astype(self._job.work.precision),
            ids=entries(ids, problem),
            problem=problem,
            mixture=self._job.strategy.mixture(self._view, state),
            private=self._private,
            division=self._job.strategy.division(self._view, state),
            losses=problem is not None and self._traffic.hears_losses(problem),
            serve=serve,
            part=self._job.evaluation.part,
            histograms=histograms,
            groups=self._grouping if histograms else None,
        )
        partials, memory = self._pool.round(plan, self._memory)
        if self._memory is not None or (problem is not None and self._is_remembered(problem)):
            self._memory = memory
        return partials

    def _is_remembered(self, problem: LocalProblem) -> bool:
        return self._private is not None or any(phase.keep or phase.variates is not None for phase in problem.chain)

    def _dated(self, row: Round, call: ScheduledCohort) -> Round:
        """The row with the virtual time, where some passes."""
        if self._job.system is None or self._scheduler.clock is None:
            return row
        return replace(row, virtual_seconds=self._scheduler.clock.now, asked=call.asked, staleness=call.staleness)

    def _merge(self, ids: Ids, partials: Sequence[PartialResult], problem: LocalProblem) -> Update:
        """What came back, in id order; the sums are of integers, so that the order of processes does not matter."""
        sums = max(phase.sums for phase in problem.chain)
        total = np.zeros((sums, self._layout.size), dtype=np.int64)
        for partial in partials:
            if partial.units is not None:
                total += partial.units
        trained = [partial for partial in partials if partial.ids is not None]
        home = [partial.ids for partial in trained if partial.ids is not None]
        # Stable: the entries of one hospital stay in their order.
        order = np.argsort(np.concatenate(home), kind="stable") if home else np.empty(0, dtype=np.int64)
        deltas = [partial.deltas for partial in trained if partial.deltas is not None]
        losses = [partial.losses for partial in trained if partial.losses is not None]
        return Update(
            ids=entries(ids, problem),
            sums=decode(total),
            deltas=np.concatenate(deltas)[order] if deltas else None,
            losses=np.concatenate(losses)[order] if losses else None,
            problem=problem,
        )

    def _judge(
        self, t: int, partials: Sequence[PartialResult]
    ) -> tuple[dict[str, Floats], dict[str, dict[str, float]]]:
        """Per model served after round ``t``: hospitals' figures in id order, and the federation-level metrics."""
        figures: dict[str, Floats] = {}
        summary: dict[str, dict[str, float]] = {}
        for name in partials[0].figures:
            rows = np.concatenate([partial.figures[name] for partial in partials])[self._order]
            figures[name] = rows
            summary[name] = self._federation.task.summarise(rows, self._federation.totals)
            histograms = [partial.histograms[name] for partial in partials if name in partial.histograms]
            if histograms:
                summary[name]["pooled_auroc"], summary[name]["pooled_auroc_bound"] = metrics.pooled_auroc(histograms)
            for attribute in partials[0].groups.get(name, {}):
                parts = [partial.groups[name][attribute] for partial in partials]
                found = subgroups.merged(parts, self._order, self._federation.task)
                self._groups.setdefault(name, {})[attribute] = found
                summary[name] |= subgroups.gaps(attribute, *found, self._federation.task)
        self._traffic.ledger.add(
            t, MEASURED, np.arange(len(self._order)), len(self._federation.task.figures) * len(figures)
        )
        return figures, summary
