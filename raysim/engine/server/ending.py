"""The steps after the last round: personal models, recalibration, the last evaluation, and the outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.engine.job import Outcome, Round
from raysim.engine.measuring.measurement import Measured
from raysim.engine.measuring.recalibrating import Recalibrated, Recalibrating, estimated
from raysim.engine.measuring.stopping import Stopped, Stopping
from raysim.engine.measuring.untrained import trained_on_one_class
from raysim.engine.privacy.privacy_ledger import statement
from raysim.engine.server.job_server import JobServer
from raysim.engine.server.last_steps import PRIOR_SCALARS, existing, headline
from raysim.engine.server.remote import RemoteState
from raysim.strategies.base import OWN, Floats, Ids, Mask, group_sizes
from raysim.strategies.shared.personalization import RECALIBRATED, Recalibration, fine_tune
from raysim.traffic.ledger import PREDICTIONS
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.scheduling import ScheduledCohort


class Ending:
    """The steps after the last round of a run. ``began`` is the time at which the run started.

    ``stopping`` has the validation losses of early stopping. ``best`` is the state after the round with the smallest
    validation loss, if there is one.
    """

    def __init__(self, server: JobServer, stopping: Stopping | None, best: RemoteState | None, began: float) -> None:
        self._server, self._job, self._began, self._best = server, server.job, began, best
        self._stopped = None if stopping is None else Stopped.of(stopping)
        self._last = server.view.round
        # Determined after the last round: the round whose models are used may be before the strategy's own end.
        self._ended = server.strategy.done(server.view, server.state)

    def events(self) -> Iterator[Round | Outcome]:
        """Train personal models, evaluate once more, and yield the last round and the outcome."""
        server, last, best = self._server, self._last, self._best
        if best is not None and best.round < last:
            yield from self._return_to(best)
        self._personalize()
        serve, round = server.model_rows(), server.view.round
        how = self._job.last.recalibration
        counted = headline(serve)[0] if how is not None and how.method == "eb" else None
        measured = server.measurements(round + 1, server.evaluation.at_the_end(serve, counted))
        recalibrated = None if how is None else self._recalibrate(how, serve, measured)
        if recalibrated is not None:
            serve = serve | {RECALIBRATED: serve[recalibrated.of]}
        if not self._job.rounds:
            # A strategy without rounds has done all its work, and exchanged all its bytes, in its set-up.
            setup = server.traffic.setup
            row = Round(0, time.perf_counter() - self._began, 0, setup.down, setup.up)
            server.rounds.append(dated(server, row, ScheduledCohort(NOBODY, None, server.state)))
        # A run resumed after its last round has no row of that round.
        row = next((row for row in server.rounds if row.round == round), Round(round, 0.0, 0, 0, 0))
        figures = server.evaluation.enter(row, measured, ledger_round=last)
        if server.rounds and round == last:
            yield row
        yield self._outcome(figures, row.metrics, serve, measured, recalibrated)

    def _return_to(self, best: RemoteState) -> Iterator[Round]:
        """Evaluate the models of the last round if an evaluation is due, and yield the round. Then return to the state
        ``best``, whose models become the models of the run.
        """
        server, last = self._server, self._last
        if server.rounds:
            if server.evaluation.due(last):
                measured = server.evaluation.after(last, existing(server.model_rows(), server.hospitals.remembered))
                server.evaluation.enter(server.rounds[-1], server.measurements(last, measured))
            yield server.rounds[-1]
        server.state, server.hospitals.remembered = best.state, best.remembered
        server.view = replace(server.view, round=best.round)

    def _personalize(self) -> None:
        """Let hospitals train personal models, if the strategy or fine-tuning defines a local problem for this.

        The traffic ledger records the messages of this training under the round after the last one.
        """
        server, tuning = self._server, self._job.last.fine_tuning
        problem = server.strategy.personalize(server.view, server.state)
        if tuning is not None:
            problem = fine_tune(headline(server.strategy_model_rows())[1], tuning)
        if problem is not None:
            plan = server.plan(server.view.round + 1, server.state, server.everyone, problem)
            server.hospitals.run(plan if server.view.trees is None else replace(plan, stop=server.view.stop))
            server.traffic.begin(self._last + 1)
            server.traffic.trained(server.everyone, problem, server.state)

    def _recalibrate(self, how: Recalibration, serve: Mapping[str, Ids], measured: Sequence[Measured]) -> Recalibrated:
        """Let hospitals recalibrate the main model, and add measurements of the recalibrated model to ``measured``."""
        server, (model, rows), prior = self._server, headline(serve), None
        if how.method == "eb":
            counts = server.evaluation.counts(model, measured)
            prior = estimated(counts)
            moved = server.traffic.recalibrated(self._last, server.everyone, counts.scalars, PRIOR_SCALARS)
            if server.rounds:
                server.rounds[-1].exchange(moved)
        asked = server.evaluation.at_the_end({RECALIBRATED: rows}, recalibrating=Recalibrating(how.method, prior))
        again = server.measurements(server.view.round + 1, asked)
        for each, further in zip(measured, again, strict=True):
            each.join(further)
        return server.evaluation.recalibrated(model, again, prior)

    def _outcome(
        self,
        figures: dict[str, Floats],
        metrics: dict[str, dict[str, float]],
        serve: dict[str, Ids],
        measured: Sequence[Measured],
        recalibrated: Recalibrated | None,
    ) -> Outcome:
        server, view, state, strategy = self._server, self._server.view, self._server.state, self._server.strategy
        facts = strategy.facts(view, state) | server.pipeline.facts()
        division = strategy.division(view, state)
        return Outcome(
            **vars(server.evaluation.gathered),
            rounds=server.rounds,
            figures=figures,
            one_class=self._one_class(serve),
            metrics=metrics,
            serve=serve,
            models=state.models,
            cluster=None if state.cluster is None else serve.get("cluster", state.cluster),
            newcomers=server.newcomers(),
            own_models=server.hospitals.models(),
            layout=server.layout,
            ledger=server.traffic.ledger,
            seconds=time.perf_counter() - self._began,
            setup=server.traffic.setup,
            private=server.private,
            mixture=strategy.mixture(view, state),
            division=division,
            predictions=self._predictions(measured),
            stopped=self._stopped,
            facts=facts | ({} if recalibrated is None else recalibrated.facts),
            bad=server.pipeline.bad,
            clusters_of_patients=None
            if division is None
            else group_sizes(replace(server.view, call=server.measure), division),
            privacy=statement(self._job, server.federation, server.traffic.ledger, server.guarantee),
            noisy_sizes=server.first.sizes,
            canary_components=server.pipeline.canary_components,
            recalibrated=recalibrated,
            uncertainty=strategy.uncertainty(view, state),
            ended=self._ended,
            called=self._called(),
        )

    def _called(self) -> Ids | None:
        if not self._server.strategy.uses_programs():
            return None
        ids = [ids[ids >= 0] for ids in self._server.cohorts if ids is not None]
        return np.bincount(np.concatenate([NOBODY, *ids]), minlength=len(self._server.everyone))

    def _one_class(self, serve: Mapping[str, Ids]) -> dict[str, Mask]:
        if self._job.privacy is not None:
            return {}
        one, private = trained_on_one_class(self._server.federation), self._server.private
        own = {name: (rows if rows.ndim == 1 else rows.max(axis=1)) == OWN for name, rows in serve.items()}
        return {name: one & (alone | (private is not None)) for name, alone in own.items()}

    def _predictions(self, measured: Sequence[Measured]) -> dict[str, NDArray[Any]]:
        server = self._server
        predictions = server.evaluation.predictions(measured)
        for outputs in predictions.values():
            scalars = server.federation.totals * int(np.prod(outputs.shape[1:]))
            server.traffic.ledger.add(self._last, PREDICTIONS, server.everyone, scalars)
        return predictions


def dated(server: JobServer, row: Round, cohort: ScheduledCohort) -> Round:
    """Return ``row``. If the job has a virtual clock, add the virtual time at the end of the round and the fields
    ``asked`` and ``staleness`` of ``cohort``.
    """
    if server.job.system is None or server.scheduler.clock is None:
        return row
    return replace(row, virtual_seconds=server.scheduler.clock.now, asked=cohort.asked, staleness=cohort.staleness)
