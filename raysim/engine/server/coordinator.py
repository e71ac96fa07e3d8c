"""A run of a job, from its beginning or a checkpoint to its outcome.

Usually, each process of hospitals receives one message in a round and replies with one. In round ``t``, all hospitals
first evaluate the models of round ``t - 1`` if an evaluation is due. The sampled hospitals then train from these
models.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from raysim.data.federation import pooled_rows
from raysim.engine.job import Job, Outcome, Round
from raysim.engine.measuring.losses import constant_loss
from raysim.engine.measuring.measurement import NOTHING, Measurement
from raysim.engine.measuring.stopping import Stopping
from raysim.engine.messages.plan import PartialResult
from raysim.engine.packing import pack_memory, pack_state
from raysim.engine.run_state import Event, History, RunState
from raysim.engine.server.cadence import Cadence, Every
from raysim.engine.server.ending import Ending, dated
from raysim.engine.server.job_server import JobServer
from raysim.engine.server.last_steps import check_fine_tuned, existing, with_fine_tuned
from raysim.engine.server.pool import Pool
from raysim.engine.server.remote import RemoteState
from raysim.engine.server.resume_checks import check_resumed
from raysim.strategies.base import POOLED, Call, Calls, Ids, TrainLocally, Update
from raysim.strategies.programs import Answer
from raysim.traffic.ledger import Bytes
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.scheduling import ScheduledCohort
from raysim.virtual_time.unreliable import check_progress


class JobRun:
    """The coordinator of one job at the hospitals of ``pool``. If ``since`` is given, the job continues from this
    checkpoint.
    """

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        self._server = JobServer(pool, job, since)
        self._job, self._since = self._server.job, since
        # A strategy that solves an exact problem decides its own end, and the models of its earlier rounds are not
        # candidates.
        stop = job.stop if job.strategy.stops_early() else None
        self._stopping = None if stop is None else Stopping(stop)
        self._best: RemoteState | None = None
        self._last_state: RemoteState | None = None
        self._validated = np.flatnonzero(self._server.federation.sizes("validation"))
        self._began = 0.0

    @property
    def rows(self) -> Sequence[Round]:
        """Return the rounds run so far. The models of the last one may not be evaluated yet."""
        return self._server.rounds

    def state_after_round(self) -> RunState | None:
        """Return the state at the start of the latest round; None before the first round.

        Each round is yielded during the next one, so this is also the state after the round that was yielded last. The
        exception is the run's final round: after it is yielded, the result is still the state before it.
        """
        return None if self._last_state is None else self._last_state.fetched(self._server.hospitals)

    def run(self) -> Iterator[Round | Outcome]:
        """Run the job without checkpoints and yield its rounds and its outcome; see :meth:`events`."""
        for event in self.events():
            if not isinstance(event, RunState):
                yield event

    def events(self, every: Every = 0) -> Iterator[Event]:
        """Yield each round as soon as its models have been evaluated, and finally the outcome.

        Checkpoints are yielded between rounds, as often as ``every`` says (see :class:`Cadence`). A run resumed from
        the checkpoint of round ``t`` yields round ``t`` and the rounds after it.
        """
        server, cadence = self._server, Cadence(every)
        self._began = time.perf_counter()
        if self._since is None:
            server.register()
            self._set_up()
        else:
            check_resumed(server, self._since)
            self._go_on_from(self._since)
        if cadence.on:
            # A state that cannot be stored raises an error now, not after hours.
            pack_state(server.state, {}, self._job.strategy)
            pack_memory(server.view.memory, {})
        while not self._ends():
            yield from self._run_round(server.view.round + 1)
            # A private run is not resumed from its last round: see check_resumed.
            if cadence.due(server.view.round) and (self._job.privacy is None or server.view.round < self._job.rounds):
                yield self._checkpoint()
                cadence.made()
        if self._job.system is not None:
            check_progress([row.cohort_size for row in self.rows], server.scheduler.clock, self._job.system)
        yield from Ending(server, self._stopping, self._best, self._began).events()

    def _run_round(self, t: int) -> Iterator[Round]:
        """Run round ``t`` and yield the finished round ``t - 1``, whose models hospitals evaluate before they train."""
        began, server = time.perf_counter(), self._server
        self._last_state = self._remote_state()
        server.begin(t)
        measured = NOTHING
        if server.rounds and server.evaluation.due(t - 1):
            measured = server.evaluation.after(t - 1, existing(server.model_rows(), server.hospitals.remembered))
        calls, reported = server.strategy.round(server.view, server.state), False
        answer: Answer = None
        cohort = ScheduledCohort(NOBODY, None, server.state)
        senders: Ids | None = None
        while (call := self._next(calls, answer)) is not None or not reported:
            if isinstance(call, TrainLocally):
                cohort = server.scheduler.schedule(server.view, server.state, t)
                cohort = server.pipeline.posed(server.view, cohort)
                sent = server.pipeline.fitted(cohort)
                plan = server.plan(t, cohort.state, cohort.ids, sent.problem, measured)
            else:  # without a call, hospitals only measure
                planned, steps = (None, ()) if call is None else server.calls.planned(call)
                ids = NOBODY if call is None else call.ids
                plan = server.plan(t, server.state, ids, None, measured, planned, steps)
            partials = server.hospitals.run(plan)
            if server.rounds and not reported:
                server.evaluation.enter(server.rounds[-1], [partial.measured for partial in partials])
                yield server.rounds[-1]
            measured, reported = NOTHING, True
            if isinstance(call, TrainLocally):
                self._account(cohort, sent, partials)
                answer = self._update(cohort, sent, partials)
                senders = None if sent.problem is None or sent.problem.sent is None else sent.ids
            elif call is None or planned is None:
                break
            else:
                answer = server.calls.answers(call, planned, partials)
                cohort = ScheduledCohort(server.calls.called, None, server.state)
                senders = cohort.ids
                self._give_rows(cohort)
        size = len(server.view.trainable) if POOLED in cohort.ids else len(cohort.ids)
        row = Round(t, time.perf_counter() - began, size, server.traffic.down, server.traffic.up)
        server.rounds.append(dated(server, row, cohort))
        server.cohorts.append(senders)

    def _next(self, calls: Calls, answer: Answer) -> Call | TrainLocally | None:
        """Return the strategy's next request to hospitals; None once the strategy has returned its new state."""
        try:
            call: Call | TrainLocally = calls.send(answer)
        except StopIteration as end:
            self._server.state = end.value
            return None
        return call

    def _account(self, cohort: ScheduledCohort, sent: ScheduledCohort, partials: Sequence[PartialResult]) -> None:
        """Count the messages of the hospitals in ``cohort`` as traffic, including those of hospitals whose updates were
        not used.
        """
        traffic = self._server.traffic
        traffic.in_vain(cohort.in_vain, cohort.unused, cohort.state)
        self._give_rows(cohort)
        if cohort.problem is not None and sent.problem is not None:
            bits, down = self._server.pipeline.sent(partials, sent.problem, cohort.ids)
            traffic.down += down
            traffic.trained(cohort.ids, cohort.problem, cohort.state, bits)

    def _give_rows(self, cohort: ScheduledCohort) -> None:
        """If the strategy trains on pooled rows, record that every hospital sent its rows to the server before
        training.
        """
        server = self._server
        if server.view.round == 1 and POOLED in cohort.ids:
            scalars = server.view.sizes * (server.federation.X.shape[1] + 1)
            server.traffic.ledger.add(0, "rows", server.everyone, scalars)

    def _update(
        self, cohort: ScheduledCohort, sent: ScheduledCohort, partials: Sequence[PartialResult]
    ) -> Update | None:
        """Return the update for the strategy, after the client selection has observed it. None if no hospital trains in
        the round, or if a step of the pipeline discarded the update.
        """
        if cohort.problem is None or sent.problem is None:
            return None
        server, round = self._server, self._server.view.round
        received = server.pipeline.received(round, partials, sent.problem, cohort.ids)
        further = server.pipeline.further(sent, received)
        if further is not None:
            partials = server.hospitals.run(server.plan(round, cohort.state, cohort.ids, further.problem))
            self._account(replace(cohort, in_vain=0, unused=()), further, partials)
            return self._update(cohort, further, partials)
        update = server.pipeline.learned(round, received, cohort.problem)
        if update is not None and server.strategy.uses_selection():
            server.view = replace(server.view, memory=self._job.selection.observe(server.view.memory, update))
        return update

    def _set_up(self) -> None:
        server, job = self._server, self._job
        if server.strategy.uses_selection():
            server.view = replace(server.view, memory=job.selection.setup(server.view))
        server.state = server.pipeline.setup(server.strategy, server.view, server.rehearsed)
        server.place_newcomers()
        private, serve = server.private is not None, server.strategy_model_rows()
        check_fine_tuned(job, serve, private=private)
        serve = with_fine_tuned(serve, job)
        server.evaluation.check_served(serve, job.name, private=private)
        if job.rounds and job.evaluation.loss_points and server.evaluation.takes_losses:
            labels = server.federation.y[pooled_rows(server.federation)]
            constant = constant_loss(labels, server.view.classes, job.work.class_weights)
            server.evaluation.begin(server.measurements(0, Measurement(losses_of=serve)), constant)
        if job.rounds and self._stopping is not None:
            self._stopping = replace(self._stopping, before=self._check(serve)[0])

    def _go_on_from(self, since: RunState) -> None:
        """Continue from the state ``since`` of an earlier run."""
        server = self._server
        if since.history is None:
            server.register()
        else:
            history, traffic = since.history.copy(), server.traffic
            server.rounds, server.cohorts, self._began = history.rounds, history.cohorts, self._began - history.seconds
            traffic.ledger, traffic.setup_down = history.ledger, history.setup_down
            traffic.models_held = history.models_held
            server.evaluation.gathered.losses = history.losses
        server.view, server.state = replace(server.view, memory=since.memory, round=since.round), since.state
        server.traffic.begin(since.round)
        server.pipeline.resume(since.attacks, since.guarantee)
        if self._stopping is not None and since.stopping is not None:
            self._stopping = replace(since.stopping, section=self._stopping.section)
        if since.best is not None:
            remembered = server.hospitals.dealt(since.best.states)
            self._best = RemoteState(since.best.round, since.best.state, remembered)

    def _check(self, serve: Mapping[str, Ids]) -> tuple[dict[str, float], Bytes]:
        """Return the mean validation loss of each model in ``serve``, and the bytes exchanged to measure these
        losses.
        """
        server = self._server
        asked = Measurement(losses_of=serve, loss_part="validation")
        losses = server.evaluation.mean_losses(server.measurements(server.view.round, asked))
        down, up = server.traffic.checked(self._validated, serve, server.private is not None, server.state)
        server.scheduler.questions_answered(self._validated, down, up)
        return losses, Bytes(int(down.sum()), int(up.sum()))

    def _ends(self) -> bool:
        server = self._server
        return self._stops() or server.view.round >= self._job.rounds or server.strategy.done(server.view, server.state)

    def _stops(self) -> bool:
        """Return whether early stopping ends the run. The validation loss is measured only once after each round."""
        stopping, server = self._stopping, self._server
        round = server.view.round
        if stopping is None or not round:
            return False
        if round not in stopping.rounds:
            serve = existing(server.model_rows(), server.hospitals.remembered)
            model = stopping.watched(serve)
            losses, exchanged = self._check({model: serve[model]})
            self._stopping = stopping = stopping.after(round, model, losses[model])
            if server.rounds:  # a run that goes on without a history has no row of its last round
                server.rounds[-1].validation_loss = losses[model]
                server.rounds[-1].exchange(exchanged)
            if stopping.best == round:
                self._best = RemoteState(round, server.state, server.hospitals.remembered)
        return stopping.over

    def _checkpoint(self) -> RunState:
        server, traffic = self._server, self._server.traffic
        history = History(
            rounds=server.rounds,
            ledger=traffic.ledger,
            seconds=time.perf_counter() - self._began,
            setup_down=traffic.setup_down,
            models_held=traffic.models_held,
            losses=server.evaluation.gathered.losses,
            cohorts=server.cohorts,
        )
        return replace(self._remote_state().fetched(server.hospitals), history=history.copy())

    def _remote_state(self) -> RemoteState:
        server, pipeline = self._server, self._server.pipeline
        return RemoteState(
            round=server.view.round,
            state=server.state,
            remembered=server.hospitals.remembered,
            memory=server.view.memory,
            clock=server.scheduler.clock,
            stopping=self._stopping,
            guarantee=pipeline.guaranteed,
            best=self._best,
            attacks=pipeline.memory,
        )
