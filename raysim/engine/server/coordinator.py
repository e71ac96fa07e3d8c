"""Plays a job from its beginning, or from a checkpoint, to its outcome, and yields its rounds meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from raysim.core.packing import pack_memory, pack_state
from raysim.data.federation import pooled_rows
from raysim.engine.job import Event, History, Job, Outcome, Round, RunState
from raysim.engine.measuring.evaluation import MeasurementRequest, existing
from raysim.engine.measuring.losses import constant_loss
from raysim.engine.measuring.recalibrating import Recalibrated, Recalibrating, estimated
from raysim.engine.measuring.stopping import Stopped, Stopping
from raysim.engine.messages.plan import PartialResult
from raysim.engine.server.cadence import Cadence, Every
from raysim.engine.server.communication_round import NOTHING, CommunicationRound
from raysim.engine.server.last_steps import PRIOR_SCALARS, check_fine_tuned, headline, with_fine_tuned
from raysim.engine.server.pool import Pool
from raysim.engine.server.remote import RemoteState
from raysim.strategies.base import Ids
from raysim.strategies.shared.personalization import RECALIBRATED, Recalibration, fine_tune
from raysim.traffic.ledger import Bytes
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.scheduling import ScheduledCohort
from raysim.virtual_time.unreliable import check_progress


class Coordinator:
    """Plays jobs over ``pool``, one at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(self, job: Job, since: RunState | None = None, every: Every = 0) -> Iterator[Event]:
        """Yields each round as soon as its models have been evaluated, and at last the outcome.

        Checkpoints come between them (see :class:`Cadence`). A run that goes on from one (``since``) yields what
        follows it.
        """
        return JobRun(self._pool, job, since).events(Cadence(every))


class JobRun(CommunicationRound):
    """One job while it is played, from its beginning or from the state ``since``."""

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        super().__init__(pool, job, since)
        # A strategy that solves has its own end; the rounds before it are no models to choose from.
        stop = job.stop if job.strategy.uses_training() else None
        self._stopping = None if stop is None else Stopping(stop)
        self._best: RemoteState | None = None
        self._validated = np.flatnonzero(self._federation.sizes("validation"))

    @property
    def rows(self) -> Sequence[Round]:
        """The rounds that were played so far; the last one may not be evaluated yet."""
        return self._rounds

    def state_after_round(self) -> RunState | None:
        """The state after the last round that was yielded; None before the first."""
        return None if self._last_state is None else self._last_state.fetched(self._hospitals)

    def play(self) -> Iterator[Round | Outcome]:
        """See :meth:`Coordinator.run`; without checkpoints."""
        for event in self.events(Cadence(0)):
            if not isinstance(event, RunState):
                yield event

    def events(self, cadence: Cadence) -> Iterator[Event]:
        """See :meth:`Coordinator.run`."""
        self._begin()
        if cadence.on:
            # A state that cannot be kept is refused now, not after hours.
            pack_state(self._state, {}, self._job.strategy)
            pack_memory(self._view.memory, {})
        while not self._ends():
            yield from self._play_round(self._round + 1)
            # A private run is not resumed from its last round: see _check_resumed.
            if cadence.due(self._round) and (self._job.privacy is None or self._round < self._job.rounds):
                yield self._checkpoint()
                cadence.made()
        yield from self._conclude()

    def _begin(self) -> None:
        """Begin at the start, or at the state of an earlier run."""
        self._began = time.perf_counter()
        if self._since is None:
            self._register()
            self._set_up()
        else:
            self._check_resumed(self._since)
            self._go_on_from(self._since)

    def _set_up(self) -> None:
        """Before the first round: selection and strategy may ask hospitals, and losses may be measured."""
        if self._strategy.uses_selection():
            self._view = replace(self._view, memory=self._job.selection.setup(self._view))
        self._state = self._pipeline.setup(self._strategy, self._view, self._measure)
        private = self._private is not None
        serve = self._strategy_serves()
        check_fine_tuned(self._job, serve, private=private)
        self._evaluation.check_served(with_fine_tuned(serve, self._job), self._job.name, private=private)
        if self._job.rounds:
            self._measure_the_start()

    def _go_on_from(self, since: RunState) -> None:
        """Take over the state of an earlier run; without a history, the ledger and the list of rounds begin again."""
        if since.history is None:
            self._register()
        else:
            self._restore(since.history.copy())
        self._round, self._state = since.round, since.state
        self._view = replace(self._view, memory=since.memory)
        self._traffic.begin(self._round)
        self._pipeline.resume(since.attacks, since.reception)
        if self._stopping is not None and since.stopping is not None:
            self._stopping = replace(since.stopping, section=self._stopping.section)
        if since.best is not None:
            remembered = self._hospitals.dealt(since.best.kept)
            self._best = RemoteState(since.best.round, since.best.state, remembered)

    def _restore(self, history: History) -> None:
        self._rounds, self._began = history.rounds, self._began - history.seconds
        self._cohorts = history.cohorts
        self._traffic.ledger, self._traffic.setup_down = history.ledger, history.setup_down
        self._traffic.models_held = history.models_held
        self._evaluation.losses = history.losses

    def _measure_the_start(self) -> None:
        """Measure the losses of the initial models."""
        serve = self._serve()
        if self._job.evaluation.loss_points and self._evaluation.takes_losses:
            partials = self._send(0, self._state, NOBODY, None, MeasurementRequest(losses_of=serve))
            labels = self._federation.y[pooled_rows(self._federation)]
            constant = constant_loss(labels, self._view.classes, self._job.work.class_weights)
            self._evaluation.begin(partials, constant)
        if self._stopping is not None:
            self._stopping = replace(self._stopping, before=self._check(serve)[0])

    def _check(self, serve: Mapping[str, Ids]) -> tuple[dict[str, float], Bytes]:
        """Mean losses on validation rows of the models that ``serve``, and the bytes that measuring them exchanged."""
        asked = MeasurementRequest(losses_of=serve, loss_part="validation")
        losses = self._evaluation.mean_losses(self._send(self._round, self._state, NOBODY, None, asked))
        down, up = self._traffic.checked(self._validated, serve, self._private is not None, self._state)
        self._scheduler.questions_answered(self._validated, down, up)
        return losses, Bytes(int(down.sum()), int(up.sum()))

    def _ends(self) -> bool:
        """Whether no round is left: the last was played, its loss no longer falls, or the strategy is done."""
        return self._stops() or self._round >= self._job.rounds or self._strategy.done(self._view, self._state)

    def _stops(self) -> bool:
        """Whether to stop: measure the loss on validation rows, once after each round, and see whether it still
        falls.
        """
        stopping = self._stopping
        if stopping is None or not self._round:
            return False
        if self._round not in stopping.rounds:
            serve = existing(self._serve(), self._hospitals.remembered)
            model = stopping.watched(serve)
            losses, exchanged = self._check({model: serve[model]})
            self._stopping = stopping = stopping.after(self._round, model, losses[model])
            if self._rounds:  # a run that goes on without a history has no row of its last round
                self._rounds[-1].validation_loss = losses[model]
                self._rounds[-1].exchange(exchanged)
            if stopping.best == self._round:
                self._best = RemoteState(self._round, self._state, self._hospitals.remembered)
        return stopping.over

    def _checkpoint(self) -> RunState:
        """A checkpoint: all that the run needs to be resumed after this round."""
        seconds, traffic = time.perf_counter() - self._began, self._traffic
        losses = self._evaluation.losses
        history = History(
            self._rounds, traffic.ledger, seconds, traffic.setup_down, traffic.models_held, losses, self._cohorts
        )
        return replace(self._remote_state().fetched(self._hospitals), history=history.copy())

    def _conclude(self) -> Iterator[Event]:
        """After the last round: train personal models, evaluate once more, and yield the outcome."""
        if self._job.system is not None:
            check_progress([row.cohort_size for row in self._rounds], self._scheduler.clock, self._job.system)
        last = self._round
        if self._best is not None and self._best.round < last:
            yield from self._return_to(self._best)
        self._personalize(last)
        serve = self._serve()
        how = self._job.last.recalibration
        counted = headline(serve)[0] if how is not None and how.method == "eb" else None
        measured = self._evaluation.at_the_end(serve, counted)
        partials = self._send(self._round + 1, self._state, NOBODY, None, measured)
        recalibrated = None if how is None else self._recalibrate(how, serve, partials, last)
        if recalibrated is not None:
            serve = serve | {RECALIBRATED: serve[recalibrated.of]}
        if not self._job.rounds:
            # A strategy without rounds has done all its work, and exchanged all its bytes, in its set-up.
            setup = self._traffic.setup
            row = Round(0, time.perf_counter() - self._began, 0, setup.down, setup.up)
            self._rounds.append(self._dated(row, ScheduledCohort(NOBODY, None, self._state)))
        # A run that is resumed after its last round has no row of it.
        row = next((row for row in self._rounds if row.round == self._round), Round(self._round, 0.0, 0, 0, 0))
        figures = self._evaluation.enter(row, partials, ledger_round=last)
        if self._rounds and self._round == last:
            yield row
        stopped = None if self._stopping is None else Stopped.of(self._stopping)
        yield self._outcome(figures, row.metrics, serve, partials, last, stopped, recalibrated)

    def _return_to(self, best: RemoteState) -> Iterator[Round]:
        """Evaluate the models of the last round, and return to those of the ``best`` check, which will serve."""
        if self._rounds:
            if self._evaluation.due(self._round):
                measured = self._evaluation.after(self._round, existing(self._serve(), self._hospitals.remembered))
                self._evaluation.enter(self._rounds[-1], self._send(self._round, self._state, NOBODY, None, measured))
            yield self._rounds[-1]
        self._round, self._state, self._hospitals.remembered = best.round, best.state, best.remembered
        self._view = replace(self._view, round=best.round)

    def _personalize(self, last: int) -> None:
        """Let hospitals train personal models, where the strategy has a problem for that.

        The ledger has it after the ``last`` round that was played, whichever models they train from.
        """
        problem = self._strategy.personalize(self._view, self._state)
        if self._job.last.fine_tuning is not None:
            problem = fine_tune(headline(self._strategy_serves())[1], self._job.last.fine_tuning)
        if problem is not None:
            self._send(self._round + 1, self._state, self._everyone, problem, NOTHING)
            self._traffic.begin(last + 1)
            self._traffic.trained(self._everyone, problem, self._state)

    def _recalibrate(
        self, how: Recalibration, serve: Mapping[str, Ids], partials: Sequence[PartialResult], last: int
    ) -> Recalibrated:
        """Let hospitals recalibrate the headline model and measure the result, which joins the ``partials``.

        What is exchanged for it counts in the ``last`` round, or without rounds in the set-up.
        """
        model, rows = headline(serve)
        prior = None
        if how.method == "eb":
            counts = self._evaluation.counts(model, partials)
            prior = estimated(counts)
            moved = self._traffic.recalibrated(last, self._everyone, counts.scalars, PRIOR_SCALARS)
            if self._rounds:
                self._rounds[-1].exchange(moved)
        asked = MeasurementRequest({RECALIBRATED: rows}, last=True, recalibrating=Recalibrating(how.method, prior))
        measured = self._send(self._round + 1, self._state, NOBODY, None, asked)
        recalibrated = self._evaluation.recalibrated(model, measured, prior)
        for partial, further in zip(partials, measured, strict=True):
            partial.join(further)
        return recalibrated
