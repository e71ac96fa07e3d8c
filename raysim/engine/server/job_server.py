"""The server of one job: its parts, its models, its questions to hospitals, and the checks of a resumed state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import PREPROCESSING
from raysim.core.streams import stream
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.job import Job, Outcome, Round, RunState
from raysim.engine.measuring.evaluation import Evaluation
from raysim.engine.measuring.recalibrating import Recalibrated
from raysim.engine.measuring.stopping import Stopped
from raysim.engine.measuring.untrained import trained_on_one_class
from raysim.engine.messages.plan import PartialResult, Work
from raysim.engine.privacy.calibration import guarantee_of
from raysim.engine.privacy.noisy_statistics import FirstAnswers, figure_noise, first_noise, statistic_noise
from raysim.engine.privacy.privacy_ledger import statement
from raysim.engine.privacy.program_release import noise_of
from raysim.engine.server.checked_strategy import MOST_CALLS, CheckedStrategy
from raysim.engine.server.last_steps import with_fine_tuned
from raysim.engine.server.pool import Pool
from raysim.engine.server.program_calls import ProgramCalls
from raysim.engine.server.remote import RemoteHospitals
from raysim.engine.server.resume_checks import check_guarantee, check_remembered, check_residuals
from raysim.engine.server.update_pipeline import UpdatePipeline
from raysim.strategies.base import (
    OWN,
    FederationView,
    Floats,
    GroupSizes,
    Ids,
    Mask,
    Question,
    State,
    Strategy,
)
from raysim.strategies.checks.answers import check_state
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.exchange import Traffic
from raysim.traffic.ledger import PREDICTIONS, Ledger
from raysim.training.class_weights import balanced
from raysim.training.kernels.descent import MOMENTUM
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.unreliable import scheduler


class JobServer:
    """The server of a ``job``, from its beginning or from the state ``since``.

    It holds the parts; :mod:`raysim.engine.server.communication_round` is a round of them.
    """

    _state: State
    """The strategy's state after the last round."""

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        self._federation = Federation.open(job.work.federation)
        noise, kept = partial(statistic_noise, job.privacy), None if since is None else since.kept
        first_noises = partial(first_noise, job.privacy, len(self._federation.hospitals))
        hospitals = RemoteHospitals(pool, job.work, None, None, first_noises)
        first_answers = None if since is None or since.reception is None else since.reception["first"]
        self._first = FirstAnswers.of(job, lambda question: hospitals.answers(question, 0, None, None), first_answers)
        work, strategy = weighted(job.work, self._federation, self._first), CheckedStrategy(job.strategy, job.name)
        self._balanced = work is not job.work
        self._job, self._strategy, self._since = replace(job, work=work), strategy, since
        model = work.model.bind(self._federation, "cpu", work.precision)
        self._layout = model.layout
        guarantee = guarantee_of(self._job, self._federation, self._first.sizes)
        section = None if guarantee is None else guarantee.section
        view = FederationView(
            names=self._federation.hospitals,
            sizes=self._federation.sizes("train") if self._first.sizes is None else self._first.sizes,
            classes=len(self._federation.classes),
            initial=model.initial(stream(work.seed, "initial")),
            local_epochs=work.epochs,
            learning_rate=work.optimizer.learning_rate,
            optimizer=work.optimizer.name,
            momentum=MOMENTUM if work.optimizer.name == "momentum" else 0.0,
            batch_size=work.optimizer.batch_size,
            rounds=job.rounds,
            link=getattr(model, "link", "identity"),
            most_calls=MOST_CALLS,
            selection=job.selection,
            memory=None,
            rng=lambda purpose, *key: stream(work.seed, purpose, *key),
            ask=self._ask,
            parameters=model.layout.slices,
            measured=model.layout.measured,
            hides=hides(job),
            noise=noise_of(section),
            trees=getattr(model, "trees", None),
            least_members=1 if job.secure is None else job.secure.least_members,
        )
        self._everyone = np.arange(len(view.sizes))
        self._private = strategy.private(view)
        self._hospitals = RemoteHospitals(pool, work, self._private, kept, noise)
        travels = self._layout.size - (0 if self._private is None else int(self._private.sum()))
        uses_losses = strategy.uses_selection() and job.selection.uses_losses
        self._pipeline = UpdatePipeline(
            self._job, strategy, self._federation, self._layout.size, self._private, self._first
        )
        self._traffic = Traffic(Ledger(), strategy, view, travels, uses_losses, self._pipeline.most_bits)
        self._calls = ProgramCalls(self._job, view.sizes, self._traffic, self._pipeline.secure, section)
        order = np.argsort(np.concatenate(pool.served))
        # Where a run may stop after any round, its training loss is taken after each.
        ends_itself = strategy.uses_programs() and type(job.strategy).done is not Strategy.done
        certain = job.rounds if job.stop is None and not ends_itself else 1
        figures = figure_noise(job.privacy, len(self._federation.classes))
        self._evaluation = Evaluation(
            self._federation,
            job.evaluation,
            order,
            certain,
            self._traffic,
            figures,
            self._first.sizes,
            job.tests_groups,
        )
        clock = None if since is None else since.clock
        self._scheduler, self._view = scheduler(
            strategy, job.system, view, work.seed, self._traffic.exchanged, self._measure, clock
        )
        self._round = 0
        self._rounds: list[Round] = []
        self._cohorts: list[Ids | None] = []
        self._began = 0.0

    def _register(self) -> None:
        """Enter into the ledger what the server knows of hospitals before anything begins."""
        self._traffic.ledger.add(0, "size", self._everyone, 1)
        if self._federation.preprocessing_scalars:
            noisy = bool(self._federation.preprocessing_noise)
            self._register_sum(PREPROCESSING, self._federation.preprocessing_scalars, noisy)
        if self._balanced:
            self._register_sum(LabelCounts.kind, len(self._federation.classes), self._first.labels is not None)

    def _register_sum(self, kind: str, scalars: int, noisy: bool) -> None:
        """Enter that every hospital has sent ``scalars`` for a sum, which is a secure one where it is ``noisy``."""
        hidden = self._pipeline.of_setup(len(self._everyone), scalars) if noisy else None
        if hidden is None:
            self._traffic.ledger.add(0, kind, self._everyone, scalars)
        else:
            self._traffic.summed(kind, self._everyone, *hidden)

    def _check_resumed(self, since: RunState) -> None:
        """Raise ``ValueError`` for a state that is not one of this job, or from which something was removed."""
        check_state(since.state, self._view)
        hospitals, size, history = len(self._everyone), self._layout.size, since.history
        travels = size if self._private is None else int(size - self._private.sum())
        for kept in (since.kept, None if since.best is None else since.best.kept):
            check_remembered(kept or {}, hospitals, size, travels)
        if history is None:
            return
        if history.models_held.shape != (hospitals,):
            raise ValueError(f"it is of {len(history.models_held)} hospitals, and there are {hospitals}")
        in_rounds = self._job.system is None and self._strategy.asynchrony() is None
        if self._pipeline.keeps_residuals:
            check_residuals(since.kept, history, all_trained=in_rounds)
        if self._job.privacy is None:
            return
        if since.round >= self._job.rounds:
            raise ValueError("no round is left to be played after it, by which its ledger could be judged")
        due = partial(self._due, since) if in_rounds else lambda round: ()
        always = self._job.privacy.unit == "hospital" or self._job.privacy.way == "pooled"
        check_guarantee(history, self._setup_again(), due, always=always)

    def _due(self, since: RunState, round: int) -> list[Ids]:
        """Who had to send an update in a round: as the checkpoint says, and as the round alone decides where it does.

        A strategy that selects by itself may go by its state at that time, and a selection by what hospitals answer.
        """
        stored = None if since.history is None else since.history.cohorts[round - 1]
        due = [NOBODY if stored is None else stored]
        if since.memory is None and type(self._job.strategy).select is Strategy.select:
            with suppress(_Asked):
                due.append(self._strategy.select(replace(self._view, round=round, ask=_unasked), since.state, round))
        return due

    def _setup_again(self) -> Ledger:
        """The ledger of the set-up, made again: hospitals answer the same questions, without counting as traffic."""

        def ask(question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
            asked = self._everyone if ids is None else ids
            answers = self._pipeline.answers(self._measure(question, models=models, ids=ids), asked)
            self._traffic.asked(question, asked, np.array([answer.size for answer in answers]), models)
            return answers

        self._register()
        view = replace(self._view, ask=ask)
        if self._strategy.uses_selection():
            view = replace(view, memory=self._job.selection.setup(view))
        self._pipeline.setup(self._strategy, view, self._measure)
        ledger, self._traffic.ledger = self._traffic.ledger, Ledger()
        return ledger

    def _serve(self) -> dict[str, Ids]:
        """The models that serve hospitals now; questions to hospitals for this are measurements, and no traffic."""
        return with_fine_tuned(self._strategy_serves(), self._job)

    def _strategy_serves(self) -> dict[str, Ids]:
        return self._strategy.serve(replace(self._view, ask=self._measure), self._state)

    def _ask(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The answers of hospitals ``ids`` (None: all); their bytes and time are counted."""
        answers = self._measure(question, models=models, ids=ids)
        asked = self._everyone if ids is None else ids
        answers = self._pipeline.answers(answers, asked)
        sizes = np.array([answer.size for answer in answers])
        self._scheduler.questions_answered(asked, *self._traffic.asked(question, asked, sizes, models))
        return answers

    def _measure(self, question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
        """The answers of hospitals ``ids`` (None: all), without counting bytes or time."""
        return self._hospitals.answers(question, self._round, models, ids)

    def _outcome(
        self,
        figures: dict[str, Floats],
        metrics: dict[str, dict[str, float]],
        serve: dict[str, Ids],
        partials: Sequence[PartialResult],
        last: int,
        stopped: Stopped | None,
        recalibrated: Recalibrated | None,
    ) -> Outcome:
        """What the run leaves after its ``last`` round; ``partials`` are the last measurement of its models."""
        state = self._state
        return Outcome(
            rounds=self._rounds,
            figures=figures,
            untrained=self._evaluation.untrained,
            one_class=self._one_class(serve),
            metrics=metrics,
            serve=serve,
            models=state.models,
            cluster=None if state.cluster is None else serve.get("cluster", state.cluster),
            kept=self._hospitals.models(),
            layout=self._layout,
            ledger=self._traffic.ledger,
            seconds=time.perf_counter() - self._began,
            setup=self._traffic.setup,
            private=self._private,
            mixture=self._strategy.mixture(self._view, state),
            division=self._strategy.division(self._view, state),
            predictions=self._predictions(partials, last),
            grouping=self._evaluation.grouping,
            groups=self._evaluation.groups,
            gaps=self._evaluation.gaps,
            pairs=self._evaluation.pairs,
            sketches=self._evaluation.sketches,
            errors=self._evaluation.errors,
            scores=self._evaluation.scores,
            validation_scores=self._evaluation.validation_scores,
            losses=self._evaluation.losses,
            stopped=stopped,
            facts=self._strategy.facts(self._view, state)
            | self._pipeline.facts()
            | ({} if recalibrated is None else recalibrated.facts),
            bad=self._pipeline.bad,
            clusters_of_patients=self._clusters_of_patients(),
            privacy=statement(self._job, self._federation, self._traffic.ledger, self._first.sizes),
            noisy_sizes=self._first.sizes,
            seen=self._pipeline.seen,
            recalibrated=recalibrated,
            uncertainty=self._strategy.uncertainty(self._view, state),
            ended=self._strategy.done(self._view, state),
            called=self._called(),
        )

    def _called(self) -> Ids | None:
        """In how many rounds client programs were run at each hospital, ``[N]``; None for strategies without."""
        if not self._strategy.uses_programs():
            return None
        ids = [ids[ids >= 0] for ids in self._cohorts if ids is not None]
        return np.bincount(np.concatenate([NOBODY, *ids]), minlength=len(self._everyone))

    def _one_class(self, serve: Mapping[str, Ids]) -> dict[str, Mask]:
        """Per model served, the hospitals that trained it themselves on one class; empty where that is private."""
        if self._job.privacy is not None:
            return {}
        one = trained_on_one_class(self._federation)
        own = {name: (rows if rows.ndim == 1 else rows.max(axis=1)) == OWN for name, rows in serve.items()}
        return {name: one & (alone | (self._private is not None)) for name, alone in own.items()}

    def _predictions(self, partials: Sequence[PartialResult], last: int) -> dict[str, NDArray[Any]]:
        """Per model served its outputs for all rows, where these were asked for; the ledger has them after the ``last``
        round.
        """
        predictions = self._evaluation.predictions(partials)
        for outputs in predictions.values():
            scalars = self._federation.totals * int(np.prod(outputs.shape[1:]))
            self._traffic.ledger.add(last, PREDICTIONS, self._everyone, scalars)
        return predictions

    def _clusters_of_patients(self) -> Ids | None:
        division = self._strategy.division(self._view, self._state)
        return None if division is None else np.stack(self._measure(GroupSizes(division))).astype(np.int64)


class _Asked(Exception):
    """Somebody asks hospitals where nothing can be asked."""


def _unasked(question: Question, *, models: Floats | None = None, ids: Ids | None = None) -> Sequence[Floats]:
    raise _Asked


def hides(job: Job) -> bool:
    """Whether the server may learn only sums over hospitals.

    A guarantee for patients does not cover what a hospital chooses by all of its rows: that is sent, and reported as
    not private.
    """
    if job.privacy is not None:
        return job.privacy.unit == "hospital"
    return job.secure is not None


def weighted(work: Work, federation: Federation, first: FirstAnswers) -> Work:
    """``work`` with numbers for ``balanced`` class weights, from the training rows of all hospitals."""
    if work.class_weights != "balanced":
        return work
    counts: NDArray[Any] | None = first.labels
    if counts is None:
        counts = np.bincount(federation.y[pooled_rows(federation)], minlength=len(federation.classes))
    return replace(work, class_weights=tuple(balanced(counts).tolist()))
