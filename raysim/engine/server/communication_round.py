"""A communication round: one message down and one up.

The plan of round ``t`` first lets all hospitals evaluate the models that round ``t - 1`` made. The sampled hospitals
then train from them, so that evaluation costs no message of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from raysim.engine.job import Job, Round, RunState
from raysim.engine.measuring.evaluation import MeasurementRequest, existing
from raysim.engine.measuring.stopping import Stopping
from raysim.engine.measuring.untrained import same
from raysim.engine.messages.plan import PartialResult, ProgramCall, RoundPlan
from raysim.engine.server.job_server import JobServer
from raysim.engine.server.pool import Pool
from raysim.engine.server.remote import RemoteState
from raysim.strategies.base import (
    POOLED,
    Call,
    Calls,
    Ids,
    LocalProblem,
    State,
    TrainLocally,
    Update,
)
from raysim.strategies.programs import Answer
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.scheduling import ScheduledCohort

NOTHING = MeasurementRequest()
"""What hospitals measure where they only train."""


class CommunicationRound(JobServer):
    """The rounds of a job: client sampling, the message, local updates, aggregation, and the bytes of all that."""

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        super().__init__(pool, job, since)
        self._stopping = None if job.stop is None else Stopping(job.stop)
        self._best: RemoteState | None = None
        self._last_state: RemoteState | None = None

    def _play_round(self, t: int) -> Iterator[Round]:
        """Play round ``t``; yields round ``t - 1``, whose models hospitals evaluate before the cohort trains from
        them.
        """
        began = time.perf_counter()
        self._enter(t)
        measured = NOTHING
        if self._rounds and self._evaluation.due(t - 1):
            measured = self._evaluation.after(t - 1, existing(self._serve(), self._hospitals.remembered))
        calls, told = self._strategy.round(self._view, self._state), False
        answer: Answer = None
        cohort = ScheduledCohort(NOBODY, None, self._state)
        senders: Ids | None = None
        while (call := self._next(calls, answer)) is not None or not told:
            if isinstance(call, TrainLocally):
                cohort = self._pipeline.posed(self._view, self._scheduler.schedule(self._view, self._state, t))
                sent = self._pipeline.fitted(cohort)
                partials = self._send(t, cohort.state, cohort.ids, sent.problem, measured)
            else:  # without a call, hospitals only measure
                planned = None if call is None else self._calls.planned(call)
                ids = NOBODY if call is None else call.ids
                partials = self._send(t, self._state, ids, None, measured, planned)
            if self._rounds and not told:
                self._evaluation.enter(self._rounds[-1], partials)
                yield self._rounds[-1]
            measured, told = NOTHING, True
            if isinstance(call, TrainLocally):
                self._account(cohort, sent, partials)
                answer = self._update(cohort, sent, partials)
                senders = None if sent.problem is None or sent.problem.sent is None else sent.ids
            elif call is None or planned is None:
                break
            else:
                answer = self._calls.answers(call, planned, partials)
                cohort = ScheduledCohort(self._calls.called, None, self._state)
                senders = cohort.ids
                self._give_rows(cohort)
        self._rounds.append(self._row(t, cohort, began))
        self._cohorts.append(senders)

    def _next(self, calls: Calls, answer: Answer) -> Call | TrainLocally | None:
        """The strategy's next call in this round, given the ``answer`` to the last one; None: the round has ended, and
        its state is the strategy's.
        """
        try:
            call: Call | TrainLocally = calls.send(answer)
        except StopIteration as end:
            self._state = end.value
            return None
        return call

    def _enter(self, t: int) -> None:
        """Note the state before round ``t``; from now on everything belongs to that round."""
        self._last_state = self._remote_state()
        self._round = t
        self._view = replace(self._view, round=t)
        self._traffic.begin(t)
        self._calls.begin(t)

    def _account(self, cohort: ScheduledCohort, sent: ScheduledCohort, partials: Sequence[PartialResult]) -> None:
        """Enter what the cohort exchanges, and what others received without effect; ``sent`` as in :meth:`_update`."""
        self._traffic.in_vain(cohort.in_vain, cohort.unused, cohort.state)
        self._give_rows(cohort)
        if cohort.problem is not None and sent.problem is not None:
            bits, down = self._pipeline.sent(partials, sent.problem, cohort.ids)
            self._traffic.down += down
            self._traffic.trained(cohort.ids, cohort.problem, cohort.state, bits)

    def _give_rows(self, cohort: ScheduledCohort) -> None:
        """Enter, once, that every hospital has given its rows, where pooled rows are trained on."""
        if self._round == 1 and POOLED in cohort.ids:
            scalars = self._view.sizes * (self._federation.X.shape[1] + 1)
            self._traffic.ledger.add(0, "rows", self._everyone, scalars)

    def _update(
        self, cohort: ScheduledCohort, sent: ScheduledCohort, partials: Sequence[PartialResult]
    ) -> Update | None:
        """The update that the strategy learns from, which the selection observes; None where there is none.

        ``sent`` is the ``cohort`` with the problem that hospitals received, which may differ from the strategy's.
        """
        if cohort.problem is None or sent.problem is None:
            return None
        received = self._pipeline.received(self._round, partials, sent.problem, cohort.ids)
        further = self._pipeline.further(sent, received)
        if further is not None:
            partials = self._send(self._round, cohort.state, cohort.ids, further.problem, NOTHING)
            self._account(replace(cohort, in_vain=0, unused=()), further, partials)
            return self._update(cohort, further, partials)
        update = self._pipeline.learned(self._round, received, cohort.problem)
        if update is not None and self._strategy.uses_selection():
            self._view = replace(self._view, memory=self._job.selection.observe(self._view.memory, update))
        return update

    def _row(self, t: int, cohort: ScheduledCohort, began: float) -> Round:
        """The round's row, with the virtual time where hospitals are unreliable."""
        size = len(self._view.trainable) if POOLED in cohort.ids else len(cohort.ids)
        row = Round(t, time.perf_counter() - began, size, self._traffic.down, self._traffic.up)
        return self._dated(row, cohort)

    def _dated(self, row: Round, cohort: ScheduledCohort) -> Round:
        if self._job.system is None or self._scheduler.clock is None:
            return row
        return replace(row, virtual_seconds=self._scheduler.clock.now, asked=cohort.asked, staleness=cohort.staleness)

    def _send(
        self,
        t: int,
        state: State,
        ids: Ids,
        problem: LocalProblem | None,
        measured: MeasurementRequest,
        call: ProgramCall | None = None,
    ) -> list[PartialResult]:
        """Let hospitals measure what ``measured`` asks for, and ``ids`` minimise the ``problem`` or answer the
        ``call``.
        """
        precision, clinical = self._job.work.precision, self._job.evaluation.clinical
        steps = () if call is None else self._pipeline.called(t, ids)
        if problem is not None:
            steps, call = self._pipeline.halves(t, problem, ids), self._calls.training(problem)
        plan = RoundPlan(
            work=self._job.work,
            round=t,
            models=state.models.astype(precision),
            ids=ids if problem is None else problem.entries(ids),
            problem=None if problem is None else replace(problem, received={}),
            call=call,
            mixture=self._strategy.mixture(self._view, state),
            private=self._private,
            division=self._strategy.division(self._view, state),
            losses=problem is not None and self._traffic.uses_losses(problem),
            steps=steps,
            serve=dict(measured.serve),
            untrained=self._untrained(state) if measured.serve else (),
            part=self._job.evaluation.part,
            noise=self._evaluation.noise if measured.serve else None,
            losses_of=dict(measured.losses_of),
            loss_part=measured.loss_part,
            histograms=measured.last,
            thresholds=None if not measured.last or clinical is None else clinical.counted_at,
            counted=measured.counted,
            recalibrating=measured.recalibrating,
            groups=self._evaluation.grouping if measured.last else None,
            rearranging=self._evaluation.rearranging if measured.last and measured.counted is None else None,
            predictions=measured.last and self._job.evaluation.predictions,
        )
        return self._hospitals.play(plan)

    def _untrained(self, state: State) -> tuple[int, ...]:
        """The rows of the models that are still as the run began with them."""
        starts = self._strategy.starts(self._view)
        return tuple(np.flatnonzero(same(state.models, starts)).tolist())

    def _remote_state(self) -> RemoteState:
        """The state of the run now."""
        remembered, memory, clock = self._hospitals.remembered, self._view.memory, self._scheduler.clock
        stopping, received, carried = self._stopping, self._pipeline.guaranteed, self._pipeline.memory
        return RemoteState(self._round, self._state, remembered, memory, clock, stopping, received, self._best, carried)
