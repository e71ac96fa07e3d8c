"""One job of the server's: the strategy's rounds over the hospitals, and what is told of them.

A round is one message down and one up. The plan of round ``t`` first lets everybody evaluate the models that round
``t - 1`` made, then train from them; so evaluation costs no message of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.packing import pack_memory, pack_state
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.cadence import Cadence
from raysim.engine.checked import CheckedStrategy
from raysim.engine.evaluation import Evaluation, Measured, existing
from raysim.engine.job import Event, History, Job, Outcome, Round, RunState
from raysim.engine.local_training import pooled_rows
from raysim.engine.losses import constant_loss
from raysim.engine.messages import PartialResult, RoundPlan, Work
from raysim.engine.pool import Pool, StateReferences
from raysim.engine.reception.between import Between
from raysim.engine.reception.merging import in_precision
from raysim.engine.reception.privacy_ledger import statement
from raysim.engine.reception.promises import statistic_noise
from raysim.engine.reception.receiver import Reception
from raysim.engine.remote import RemoteHospitals
from raysim.engine.stopping import Stopped, Stopping
from raysim.strategies.base import POOLED, FederationView, Floats, GroupSizes, Ids, LocalProblem, Question, State
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.exchange import Traffic
from raysim.traffic.ledger import PREDICTIONS, Bytes, Ledger
from raysim.training.class_weights import balanced
from raysim.virtual_time.clock import NOBODY, Clock
from raysim.virtual_time.scheduling import ScheduledCohort
from raysim.virtual_time.unreliable import check_progress, scheduler

NOTHING = Measured()
"""Hospitals only train."""


@dataclass(frozen=True, eq=False)
class _Standing:
    """Where a run stood after a round; see :class:`RunState`."""

    round: int
    state: State
    remembered: StateReferences | None
    memory: Any = None
    clock: Clock | None = None
    stopping: Stopping | None = None
    reception: Any = None
    best: _Standing | None = None
    attacks: Any = None


class JobRun:
    """One job while it is played, from its beginning or ``since`` an earlier standing."""

    _state: State
    """The strategy's, after the last round."""

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        self._federation = Federation.open(job.work.federation)
        work, strategy = weighted(job.work, self._federation), CheckedStrategy(job.strategy, job.name)
        self._balanced = work is not job.work
        self._job, self._strategy, self._since = replace(job, work=work), strategy, since
        model = work.model.bind(self._federation, "cpu", work.precision)
        self._layout = model.layout
        view = FederationView(
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
        self._everyone = np.arange(len(view.sizes))
        self._private = strategy.private(view)
        self._hospitals = RemoteHospitals(
            pool, work, self._private, None if since is None else since.kept, partial(statistic_noise, job.privacy)
        )
        travels = self._layout.size - (0 if self._private is None else int(self._private.sum()))
        hears_losses = strategy.uses_selection() and job.selection.hears_losses
        self._between = Between(self._job, self._federation, self._private, travels)
        self._traffic = Traffic(Ledger(), strategy, view, travels, hears_losses, self._between.most_bits)
        self._reception = Reception(self._job, strategy, self._federation, self._layout.size, self._private)
        order = np.argsort(np.concatenate(pool.served))
        # Where a run may stop after any round, its training loss is taken after each.
        certain = job.rounds if job.stop is None else 1
        self._evaluation = Evaluation(self._federation, job.evaluation, order, certain, self._traffic)
        clock = None if since is None else since.clock
        self._scheduler, self._view = scheduler(
            strategy, job.system, view, work.seed, self._traffic.exchanged, self._measure, clock
        )
        self._stopping = None if job.stop is None else Stopping(job.stop)
        self._best: _Standing | None = None
        self._validated = np.flatnonzero(self._federation.sizes("validation"))
        self._round = 0
        self._rounds: list[Round] = []
        self._began = 0.0
        self._standing: _Standing | None = None

    def standing(self) -> RunState | None:
        """After the last round that was yielded; None before the first."""
        return None if self._standing is None else self._told(self._standing)

    def _told(self, stood: _Standing) -> RunState:
        """A standing as others can go on from it."""
        return RunState(
            round=stood.round,
            state=stood.state,
            kept=self._hospitals.states(stood.remembered),
            memory=stood.memory,
            clock=stood.clock,
            stopping=stood.stopping,
            reception=stood.reception,
            best=None if stood.best is None else self._told(stood.best),
            attacks=stood.attacks,
        )

    def play(self) -> Iterator[Round | Outcome]:
        """See :meth:`raysim.engine.coordinator.Coordinator.run`; without checkpoints."""
        for event in self.events(Cadence(0)):
            if not isinstance(event, RunState):
                yield event

    def events(self, cadence: Cadence) -> Iterator[Event]:
        """See :meth:`raysim.engine.coordinator.Coordinator.run`."""
        self._begin()
        if cadence.on:
            # What cannot be kept is said now, not after hours.
            pack_state(self._state, {}, self._job.strategy)
            pack_memory(self._view.memory, {})
        while not self._stops() and self._round < self._job.rounds:
            yield from self._play_round(self._round + 1)
            if cadence.due(self._round):
                yield self._checkpoint()
                cadence.made()
        yield from self._conclude()

    def _begin(self) -> None:
        """Set everything up, or go on where the run stood."""
        self._began, since = time.perf_counter(), self._since
        if since is not None and since.history is not None:
            self._restore(since.history.copy())
        else:
            self._register()
        if since is not None:
            self._round, self._state = since.round, since.state
            self._view = replace(self._view, memory=since.memory)
            self._traffic.begin(self._round)
            self._between.resume(since.attacks)
            self._reception.resume(since.reception)
            if self._stopping is not None and since.stopping is not None:
                self._stopping = replace(since.stopping, section=self._stopping.section)
            if since.best is not None:
                remembered = self._hospitals.dealt(since.best.kept)
                self._best = _Standing(since.best.round, since.best.state, remembered)
            return
        if self._strategy.uses_selection():
            self._view = replace(self._view, memory=self._job.selection.setup(self._view))
        self._state = self._between.setup(self._strategy, self._view, self._measure)
        if self._job.rounds:
            self._measure_the_start()

    def _measure_the_start(self) -> None:
        """Losses of the models that all begins with."""
        serve = self._serve()
        partials = self._send(0, self._state, NOBODY, None, Measured(losses_of=serve))
        labels = self._federation.y[pooled_rows(self._federation)]
        constant = constant_loss(labels, self._view.classes, self._job.work.class_weights)
        self._evaluation.begin(partials, constant)
        if self._stopping is not None:
            self._stopping = replace(self._stopping, before=self._check(serve)[0])

    def _check(self, serve: Mapping[str, Ids]) -> tuple[dict[str, float], Bytes]:
        """The losses of models that ``serve`` on validation rows, and what was exchanged for them."""
        asked = Measured(losses_of=serve, loss_part="validation")
        losses = self._evaluation.mean_losses(self._send(self._round, self._state, NOBODY, None, asked))
        down, up = self._traffic.checked(self._validated, serve, self._private is not None, self._state)
        self._scheduler.questions_answered(self._validated, down, up)
        return losses, Bytes(int(down.sum()), int(up.sum()))

    def _stops(self) -> bool:
        """Whether the loss on validation rows, which is taken after each round, falls no more."""
        stopping = self._stopping
        if stopping is None or not self._round:
            return False
        if self._round not in stopping.rounds:
            serve = existing(self._serve(), self._hospitals.remembered)
            model = stopping.watched(serve)
            losses, exchanged = self._check({model: serve[model]})
            self._stopping = stopping = stopping.after(self._round, model, losses[model])
            if self._rounds:  # one that goes on from another's standing has no row of its last round
                row = self._rounds[-1]
                row.validation_loss = losses[model]
                row.bytes_down, row.bytes_up = row.bytes_down + exchanged.down, row.bytes_up + exchanged.up
            if stopping.best == self._round:
                self._best = _Standing(self._round, self._state, self._hospitals.remembered)
        return stopping.over

    def _restore(self, history: History) -> None:
        self._rounds, self._began = history.rounds, self._began - history.seconds
        self._traffic.ledger, self._traffic.setup_down = history.ledger, history.setup_down
        self._traffic.models_held = history.models_held
        self._evaluation.losses = history.losses

    def _register(self) -> None:
        """Enter what the server knows of hospitals before anything begins."""
        self._traffic.ledger.add(0, "size", self._everyone, 1)
        if self._federation.preprocessing_scalars:
            self._traffic.ledger.add(0, "preprocessing", self._everyone, self._federation.preprocessing_scalars)
        if self._balanced:
            self._traffic.ledger.add(0, LabelCounts.kind, self._everyone, len(self._federation.classes))

    def _play_round(self, t: int) -> Iterator[Round]:
        """Hospitals evaluate the models of the round before, which is yielded, and the cohort trains from them."""
        began = time.perf_counter()
        self._enter(t)
        cohort = self._reception.fitted(self._view, self._scheduler.schedule(self._view, self._state, t))
        asked = self._between.asked(t, cohort)
        measured = NOTHING
        if self._rounds and self._evaluation.due(t - 1):
            measured = self._evaluation.after(t - 1, existing(self._serve(), self._hospitals.remembered))
        partials = self._send(t, cohort.state, cohort.ids, asked.problem, measured)
        if self._rounds:
            self._evaluation.enter(self._rounds[-1], partials)
            yield self._rounds[-1]
        self._account(cohort, partials)
        if cohort.problem is not None:
            self._learn(cohort, asked, partials)
        self._rounds.append(self._row(t, cohort, began))

    def _enter(self, t: int) -> None:
        """Note where the run stands; from now on everything belongs to round ``t``."""
        self._standing = self._stands()
        self._round = t
        self._view = replace(self._view, round=t)
        self._traffic.begin(t)

    def _account(self, cohort: ScheduledCohort, partials: Sequence[PartialResult]) -> None:
        """Enter what the cohort exchanges, and what was sent to others in vain."""
        self._traffic.in_vain(cohort.in_vain, cohort.unused, cohort.state)
        if self._round == 1 and POOLED in cohort.ids:
            scalars = self._view.sizes * (self._federation.X.shape[1] + 1)
            self._traffic.ledger.add(0, "rows", self._everyone, scalars)
        if cohort.problem is not None:
            bits, down = self._between.sent(partials, cohort.problem, cohort.ids)
            self._traffic.down += down
            self._traffic.trained(cohort.ids, cohort.problem, cohort.state, bits)

    def _learn(self, cohort: ScheduledCohort, asked: ScheduledCohort, partials: Sequence[PartialResult]) -> None:
        """Let the strategy make the next models of what came back, and the selection remember it.

        ``asked`` is the ``cohort`` with its problem as hospitals were sent it.
        """
        if cohort.problem is None or asked.problem is None:
            return
        opening = self._between.opening(asked.problem, cohort.ids)
        received = self._reception.update(self._round, partials, asked.problem, cohort.ids, opening)
        update = self._between.learned(self._round, received, cohort.problem, opening)
        if update is None:
            return
        self._state = self._strategy.aggregate(self._view, self._state, update)
        if self._strategy.uses_selection():
            self._view = replace(self._view, memory=self._job.selection.observe(self._view.memory, update))

    def _row(self, t: int, cohort: ScheduledCohort, began: float) -> Round:
        """The round's row, with the virtual time where some passes."""
        size = len(self._view.trainable) if POOLED in cohort.ids else len(cohort.ids)
        row = Round(t, time.perf_counter() - began, size, self._traffic.down, self._traffic.up)
        return self._dated(row, cohort)

    def _dated(self, row: Round, cohort: ScheduledCohort) -> Round:
        if self._job.system is None or self._scheduler.clock is None:
            return row
        return replace(row, virtual_seconds=self._scheduler.clock.now, asked=cohort.asked, staleness=cohort.staleness)

    def _checkpoint(self) -> RunState:
        """All that the run needs to go on after this round."""
        seconds, traffic = time.perf_counter() - self._began, self._traffic
        losses = self._evaluation.losses
        history = History(self._rounds, traffic.ledger, seconds, traffic.setup_down, traffic.models_held, losses)
        return replace(self._told(self._stands()), history=history.copy())

    def _stands(self) -> _Standing:
        """Where the run stands now."""
        remembered, memory, clock = self._hospitals.remembered, self._view.memory, self._scheduler.clock
        stopping, received, carried = self._stopping, self._reception.memory, self._between.memory
        return _Standing(self._round, self._state, remembered, memory, clock, stopping, received, self._best, carried)

    def _conclude(self) -> Iterator[Event]:
        """After the last round: hospitals' own models, the last evaluation, and the outcome."""
        if self._job.system is not None:
            check_progress([row.cohort_size for row in self._rounds], self._scheduler.clock, self._job.system)
        last = self._round
        if self._best is not None and self._best.round < last:
            yield from self._return_to(self._best)
        self._personalize(last)
        serve = self._serve()
        measured = self._evaluation.at_the_end(serve)
        partials = self._send(self._round + 1, self._state, NOBODY, None, measured)
        if not self._job.rounds:
            # A strategy without rounds has done all its work, and sent all it sends, while it was set up.
            setup = self._traffic.setup
            row = Round(0, time.perf_counter() - self._began, 0, setup.down, setup.up)
            self._rounds.append(self._dated(row, ScheduledCohort(NOBODY, None, self._state)))
        # One that goes on from its last round has no row of it.
        row = next((row for row in self._rounds if row.round == self._round), Round(self._round, 0.0, 0, 0, 0))
        figures = self._evaluation.enter(row, partials, told=last)
        if self._rounds and self._round == last:
            yield row
        yield self._outcome(figures, row.metrics, serve, self._predictions(partials, last))

    def _return_to(self, best: _Standing) -> Iterator[Round]:
        """Evaluate the last models, which do not serve, and go back to those that do."""
        if self._rounds:
            if self._evaluation.due(self._round):
                measured = self._evaluation.after(self._round, existing(self._serve(), self._hospitals.remembered))
                self._evaluation.enter(self._rounds[-1], self._send(self._round, self._state, NOBODY, None, measured))
            yield self._rounds[-1]
        self._round, self._state, self._hospitals.remembered = best.round, best.state, best.remembered
        self._view = replace(self._view, round=best.round)

    def _personalize(self, last: int) -> None:
        """Let hospitals train what is their own and nobody else's, where the strategy has such a problem.

        It is entered as what follows the ``last`` round that was played, whichever models they train from.
        """
        problem = self._strategy.personalize(self._view, self._state)
        if problem is not None:
            self._send(self._round + 1, self._state, self._everyone, problem, NOTHING)
            self._traffic.begin(last + 1)
            self._traffic.trained(self._everyone, problem, self._state)

    def _outcome(
        self,
        figures: dict[str, Floats],
        metrics: dict[str, dict[str, float]],
        serve: dict[str, Ids],
        predictions: dict[str, NDArray[Any]],
    ) -> Outcome:
        state = self._state
        return Outcome(
            rounds=self._rounds,
            figures=figures,
            metrics=metrics,
            serve=serve,
            bank=state.bank,
            cluster=None if state.cluster is None else serve.get("cluster", state.cluster),
            kept=self._hospitals.models(),
            layout=self._layout,
            ledger=self._traffic.ledger,
            seconds=time.perf_counter() - self._began,
            setup=self._traffic.setup,
            private=self._private,
            mixture=self._strategy.mixture(self._view, state),
            division=self._strategy.division(self._view, state),
            predictions=predictions,
            grouping=self._evaluation.grouping,
            groups=self._evaluation.groups,
            pairs=self._evaluation.pairs,
            sketches=self._evaluation.sketches,
            scores=self._evaluation.scores,
            validation_scores=self._evaluation.validation_scores,
            losses=self._evaluation.losses,
            stopped=None if self._stopping is None else Stopped.of(self._stopping),
            facts=self._strategy.facts(self._view, state) | self._between.facts(),
            bad=self._between.bad,
            clusters_of_patients=self._clusters_of_patients(),
            privacy=statement(self._job, self._federation, self._traffic.ledger),
            seen=self._between.seen,
        )

    def _clusters_of_patients(self) -> Ids | None:
        division = self._strategy.division(self._view, self._state)
        return None if division is None else np.stack(self._measure(GroupSizes(division))).astype(np.int64)

    def _serve(self) -> dict[str, Ids]:
        """Which models serve hospitals now; what these are asked for it is a measurement and no traffic."""
        return self._strategy.serve(replace(self._view, ask=self._measure), self._state)

    def _predictions(self, partials: Sequence[PartialResult], last: int) -> dict[str, NDArray[Any]]:
        """Per model served what it says of every row, where that was asked for; it has left hospitals then, after the
        ``last`` round.
        """
        predictions = self._evaluation.predictions(partials)
        for outputs in predictions.values():
            scalars = self._federation.totals * int(np.prod(outputs.shape[1:]))
            self._traffic.ledger.add(last, PREDICTIONS, self._everyone, scalars)
        return predictions

    def _send(
        self,
        t: int,
        state: State,
        ids: Ids,
        problem: LocalProblem | None,
        measured: Measured,
    ) -> list[PartialResult]:
        """Let hospitals measure what is asked for, and ``ids`` minimise the ``problem``."""
        precision, clinical = self._job.work.precision, self._job.evaluation.clinical
        plan = RoundPlan(
            work=self._job.work,
            round=t,
            bank=state.bank.astype(precision),
            ids=ids if problem is None else problem.entries(ids),
            problem=None if problem is None else in_precision(problem, precision),
            mixture=self._strategy.mixture(self._view, state),
            private=self._private,
            division=self._strategy.division(self._view, state),
            losses=problem is not None and self._traffic.hears_losses(problem),
            **self._between.planned(t, problem),
            release=self._reception.release(problem),
            serve=dict(measured.serve),
            part=self._job.evaluation.part,
            losses_of=dict(measured.losses_of),
            loss_part=measured.loss_part,
            histograms=measured.last,
            thresholds=None if not measured.last or clinical is None else clinical.thresholds,
            groups=self._evaluation.grouping if measured.last else None,
            predictions=measured.last and self._job.evaluation.predictions,
        )
        return self._hospitals.play(plan)

    def _ask(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The answers of hospitals ``ids`` (None: all), with what asking costs."""
        answers = self._measure(question, models=models, ids=ids)
        asked = self._everyone if ids is None else ids
        answers = self._between.answers(answers, asked)
        sizes = np.array([answer.size for answer in answers])
        self._scheduler.questions_answered(asked, *self._traffic.asked(question, asked, sizes, models))
        return answers

    def _measure(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The same without the traffic of asking."""
        return self._hospitals.answers(question, self._round, models, ids)


def weighted(work: Work, federation: Federation) -> Work:
    """``work`` with the weights that ``balanced`` classes come to, over the training rows of all hospitals."""
    if work.class_weights != "balanced":
        return work
    counts = np.bincount(federation.y[pooled_rows(federation)], minlength=len(federation.classes))
    return replace(work, class_weights=tuple(balanced(counts).tolist()))
