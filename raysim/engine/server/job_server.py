"""The server of one job, with its models, calls and messages to hospitals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import PREPROCESSING
from raysim.core.streams import stream
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.job import Job, Round
from raysim.engine.measuring.evaluation import Evaluation
from raysim.engine.measuring.measurement import NOTHING, Measured, Measurement
from raysim.engine.measuring.untrained import same
from raysim.engine.messages.plan import ProgramCall, RoundPlan, Work
from raysim.engine.messages.steps import HospitalStep
from raysim.engine.privacy.calibration import guarantee_of
from raysim.engine.privacy.noisy_statistics import FirstAnswers, figure_noise, noise_on
from raysim.engine.privacy.program_release import noise_of
from raysim.engine.run_state import RunState
from raysim.engine.server.checked_strategy import MOST_CALLS, CheckedStrategy
from raysim.engine.server.last_steps import with_fine_tuned
from raysim.engine.server.pool import Pool
from raysim.engine.server.program_calls import ProgramCalls, check_immediate
from raysim.engine.server.remote import RemoteHospitals
from raysim.engine.server.update_pipeline import UpdatePipeline
from raysim.privacy.scaler import is_summed
from raysim.strategies.base import (
    Answers,
    Call,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Newcomers,
    State,
    Statistic,
    Stop,
    Strategy,
)
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.exchange import Traffic
from raysim.traffic.ledger import Ledger
from raysim.training.class_weights import balanced
from raysim.training.kernels.descent import MOMENTUM
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.unreliable import scheduler


class JobServer:
    """The server of a ``job``. If ``since`` is given, the job continues from this state of a checkpoint."""

    view: FederationView
    """The strategy's view of the federation, in which the round and the selection's memory change during the run."""
    state: State

    def __init__(self, pool: Pool, job: Job, since: RunState | None = None) -> None:
        self.federation = federation = Federation.open(job.work.federation)
        earlier = None if since is None or since.guarantee is None else since.guarantee["first"]
        # Balanced class weights follow from these answers.
        before = RemoteHospitals(pool, replace(job.work, class_weights="none"), None, None, job.privacy)
        self.everyone = np.arange(len(federation.hospitals))

        def ask(program: Statistic, shared: bool) -> Floats:
            shares = len(self.everyone) if shared else 0
            answers = before.answers(Call(program, {}, self.everyone), 0, job.name, shares)
            return np.asarray(answers.each[program.name])

        self.first = FirstAnswers.of(job, len(federation.classes), ask, earlier)
        self.guarantee = guarantee_of(job, federation, self.first.sizes)
        work, self.strategy = weighted(job.work, federation, self.first), CheckedStrategy(job.strategy, job.name)
        self._balanced = work is not job.work
        self.job = job = replace(job, work=work)
        model = work.model.bind(federation, "cpu", work.precision)
        self.layout = model.layout
        programs = self.strategy.uses_programs()
        view = FederationView(
            names=federation.hospitals,
            sizes=federation.sizes("train") if self.first.sizes is None else self.first.sizes,
            classes=len(federation.classes),
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
            call=self.call,
            columns=federation.observed.shape[1],
            noisy=lambda kind: noise_on(job.privacy, kind) is not None,
            parameters=model.layout.slices,
            measured=model.layout.measured,
            hides=hides(job),
            noise=noise_of(self.guarantee),
            trees=getattr(model, "trees", None),
            ranges=self.federation.limits,
            stop=None if job.stop is None else Stop(job.stop.patience, job.stop.tolerance),
            checked=None if job.stop is None else federation.sizes("validation") > 0,
            least_members=1 if job.secure is None else job.secure.least_members,
        )
        self.private = self.strategy.private(view)
        states = None if since is None else since.states
        self.hospitals = RemoteHospitals(pool, work, self.private, states, job.privacy, before)
        size, uses_losses = self.layout.size, self.strategy.uses_selection() and job.selection.uses_losses
        self.travels = size - (0 if self.private is None else int(self.private.sum()))
        self.pipeline = UpdatePipeline(job, self.strategy, federation, size, self.private, self.first, self.guarantee)
        bits = self.pipeline.most_bits
        self.traffic = Traffic(Ledger(), self.strategy, view, self.travels, uses_losses, bits)
        self.calls = ProgramCalls(job, view.sizes, self.traffic, self.pipeline)
        # If a run may stop after any round, its training loss is measured after each round.
        ends_itself = programs and type(job.strategy).done is not Strategy.done
        self.evaluation = Evaluation(
            federation,
            job.evaluation,
            np.argsort(np.concatenate(pool.served)),
            job.rounds if job.stop is None and not ends_itself else 1,
            self.traffic,
            figure_noise(job.privacy, len(federation.classes)),
            self.first.sizes,
            job.tests_groups,
        )
        clock, exchanged = None if since is None else since.clock, self.traffic.exchanged
        arguments = (self.strategy, job.system, view, work.seed, exchanged, self.measure, clock)
        self.scheduler, self.view = scheduler(*arguments)
        self.rounds: list[Round] = []
        self.cohorts: list[Ids | None] = []

    def register(self) -> None:
        """Record in the traffic ledger what hospitals report before the run: sizes, sums for preprocessing, and class
        counts.
        """
        self.traffic.ledger.add(0, "size", self.everyone, 1)
        if self.federation.preprocessing_scalars:
            hidden = is_summed(self.federation.preprocessing_noise)
            self._register_sum(PREPROCESSING, self.federation.preprocessing_scalars, hidden)
        if self._balanced:
            self._register_sum(LabelCounts.name, len(self.federation.classes), self.first.labels is not None)

    def _register_sum(self, kind: str, scalars: int, noisy: bool) -> None:
        secure = self.pipeline.secure if noisy else None
        if secure is None:
            self.traffic.ledger.add(0, kind, self.everyone, scalars)
        else:
            self.traffic.summed(kind, self.everyone, *secure.of_setup(len(self.everyone), scalars))

    def begin(self, round: int) -> None:
        """Begin a ``round``. Later messages are recorded under this round."""
        self.view = replace(self.view, round=round)
        self.traffic.begin(round)
        self.calls.begin(round)

    def model_rows(self) -> dict[str, Ids]:
        """Return, by name, the models that hospitals use at present, in the form of :attr:`Measurement.serve`."""
        return with_fine_tuned(self.strategy_model_rows(), self.job)

    def strategy_model_rows(self) -> dict[str, Ids]:
        """Return, by name, the model that each hospital uses, without fine-tuned models. If the strategy calls
        hospitals to choose these models, the calls are not counted as traffic.
        """
        return self.strategy.serve(replace(self.view, call=self.measure), self.state)

    def newcomers(self) -> Newcomers | None:
        """Return the strategy's rule that assigns hospitals without training rows to clusters; None without a rule,
        clusters or such hospitals.
        """
        if self.state.cluster is None or len(self.view.trainable) == len(self.view.sizes):
            return None
        return self.strategy.newcomers(replace(self.view, call=self.measure), self.state)

    def place_newcomers(self) -> None:
        """Assign hospitals without training rows to clusters by the strategy's rule. The rule receives no labels of
        these hospitals.
        """
        rule, cluster = self.newcomers(), self.state.cluster
        if rule is None or cluster is None:
            return
        cluster = cluster.copy()
        for h in np.setdiff1d(self.everyone, self.view.trainable).tolist():
            rows = slice(self.federation.bounds[h, 0], self.federation.bounds[h, -1])
            row = rule.row(self.federation.X[rows], self.federation.observed[rows], self.federation.y[:0])
            cluster[h] = cluster[h] if row is None else row
        self.state = replace(self.state, cluster=cluster)

    def call(self, call: Call) -> Answers:
        """Send the client program of ``call`` to hospitals, before the first round or outside a round's training.
        Return their answers, and count the bytes and the time.
        """
        answers = self.pipeline.answers(self.measure(call))
        self.scheduler.questions_answered(call.ids, *self.traffic.answered(call))
        return answers

    def measure(self, call: Call) -> Answers:
        """Return hospitals' answers to a ``call`` as :meth:`call` does, but count neither bytes nor time. Byzantine
        hospitals do not falsify these answers.
        """
        check_immediate(call, self.view.sizes, self.job.name)
        return self.hospitals.answers(call, self.view.round, self.job.name)

    def rehearsed(self, view: FederationView) -> State:
        """Return the state that the strategy's set-up would return without attacks. Hospitals later repeat their
        answers to the set-up with the same noise, and only the repeated answers count as traffic.
        """
        with self.hospitals.repeatable():
            return self.strategy.setup(replace(view, call=self.measure))

    def plan(
        self,
        round: int,
        state: State,
        ids: Ids = NOBODY,
        problem: LocalProblem | None = None,
        measured: Measurement = NOTHING,
        call: ProgramCall | None = None,
        steps: tuple[HospitalStep, ...] = (),
    ) -> RoundPlan:
        """Return the instructions of a round for all hospitals: what they measure, and the ``problem`` that the
        hospitals ``ids`` minimise.

        With a ``call`` and no ``problem``, the hospitals ``ids`` run the client program of the ``call``, and ``steps``
        process what they send.
        """
        precision = self.job.work.precision
        if problem is not None:
            steps, call = self.pipeline.hospital_steps(round, problem, ids), self.calls.training(problem)
        if measured.serve:
            untrained = np.flatnonzero(same(state.models, self.strategy.starts(self.view)))
            measured = replace(measured, untrained=tuple(untrained.tolist()))
        # Models are sent only if they are measured or trained, and not with each call of a program.
        read = problem is not None or measured is not NOTHING
        return RoundPlan(
            work=self.job.work,
            round=round,
            models=(state.models if read else state.models[:0]).astype(precision),
            ids=ids if problem is None else problem.entries(ids),
            problem=None if problem is None else replace(problem, received={}),
            call=call,
            mixture=self.strategy.mixture(self.view, state),
            private=self.private,
            division=self.strategy.division(self.view, state),
            losses=problem is not None and self.traffic.uses_losses(problem),
            steps=steps,
            measured=measured,
        )

    def measurements(self, round: int, measured: Measurement) -> list[Measured]:
        """Let hospitals measure the models of a ``round``. Return one element for each process."""
        return [partial.measured for partial in self.hospitals.run(self.plan(round, self.state, measured=measured))]


def hides(job: Job) -> bool:
    """Return whether the server may receive only sums over hospitals: under a guarantee for hospitals, or under secure
    aggregation without a guarantee.

    Under a guarantee for patients, hospitals may send exact statistics that depend on all their rows. The report lists
    these statistics as not private. Secure aggregation then hides updates, but not these statistics.
    """
    if job.privacy is not None:
        return job.privacy.unit == "hospital"
    return job.secure is not None


def weighted(work: Work, federation: Federation, first: FirstAnswers) -> Work:
    """Return ``work`` with ``balanced`` class weights replaced by numbers, computed from the class counts of all
    hospitals.
    """
    if work.class_weights != "balanced":
        return work
    counts: NDArray[Any] | None = first.labels
    if counts is None:
        counts = np.bincount(federation.y[pooled_rows(federation)], minlength=len(federation.classes))
    return replace(work, class_weights=tuple(balanced(counts).tolist()))
