"""One run of an experiment: its execution and its files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raysim.config import plugins
from raysim.core.errors import ConfigError, RaysimError, ResourceError
from raysim.data.federation import Federation
from raysim.engine.job import AHEAD, Job, Outcome, Result, Round
from raysim.engine.privacy.calibration import guarantee_of
from raysim.engine.run_state import RunState
from raysim.experiment import idle_keys
from raysim.experiment.entries import Entry
from raysim.experiment.jobs import make_job
from raysim.experiment.session import Session
from raysim.storage import resume
from raysim.storage.checkpoints import Checkpoints, Writer
from raysim.storage.coefficients import DEPENDENCE, IMPORTANCE
from raysim.storage.manifest import Manifest
from raysim.storage.results import SPLIT, write_run
from raysim.storage.resume import Opened
from raysim.strategies.shared.weights import Weighted
from raysim.traffic import ledger

if TYPE_CHECKING:
    from raysim.adversaries.attack_effect import AttackFigures
    from raysim.privacy.statement import Statement


@dataclass(frozen=True, eq=False)
class Run:
    """A run of an experiment."""

    entry: Entry
    """The strategy, with the configuration of its runs."""
    seed: int
    data: Path
    """The folder with the data of all hospitals of the run."""
    folder: Path
    """The folder of the run's files."""
    name: str
    """The run's name in progress lines."""
    nested: bool
    """Whether the run belongs to a comparison."""
    trial: bool = False
    """Whether the run is a trial of ``tune``, which writes neither its model nor a page."""
    first: bool = True
    """Whether the run has the first seed: in a comparison, only such runs have a page and test the differences between
    groups of patients."""
    checked: Job | None = None
    """The run's job with calibrated noise, if the preparation has made it; else None, and :attr:`job` calibrates the
    noise."""
    held: tuple[str, ...] = ()
    """The hospitals that are left out of training. If hospitals are left out, predictions are written only for them."""

    def prepare(self) -> None:
        """Create the run's data if the run leaves out the hospitals of a fold."""
        if self.held:
            config = self.entry.config
            source = plugins.build_source(config.data)
            plugins.build_federation(config, source, self.seed, shelf=(self.data.parent.name, self.data.name))

    def asked(self) -> Job:
        """Return the job as configured, before the noise scale of a privacy guarantee is calibrated."""
        strategy, selection, config = self.entry.strategy, self.entry.selection, self.entry.config
        return make_job(config, strategy, selection, self.data, self.seed, tests_groups=self.first)

    @cached_property
    def job(self) -> Job:
        """The job that is executed, with the calibrated noise of a privacy guarantee."""
        if self.checked is not None:
            return self.checked
        asked = self.asked()
        return asked.guaranteed(guarantee_of(asked, Federation.open(self.data)))

    @cached_property
    def frozen(self) -> dict[str, Any]:
        """The configuration that is stored with the run. The learning rate and all privacy settings are explicit."""
        job, config = self.job, self.entry.config
        rate = {"learning_rate": job.work.optimizer.learning_rate}
        config = config.replaced(training=config.training.model_copy(update=rate), privacy=job.privacy)
        return idle_keys.without(config, job.strategy).of_run(self.seed).frozen_run()

    def opened(self, federation: Federation, *, again: bool, patience: float = 0.0) -> AbstractContextManager[Opened]:
        """Open the folder of the run, to start or resume it; see :func:`raysim.storage.resume.opened`."""
        frozen, data = self.frozen, federation.fingerprint
        return resume.opened("run", self.folder, frozen, federation, data, again=again, patience=patience)

    def run(
        self, federation: Federation, opened: Opened, session: Session, say: Callable[[str], None]
    ) -> Generator[Round | Result, None, None]:
        """Execute the run in its ``opened`` folder, from its start or its last checkpoint, and write its files.

        Yields each round after its evaluation, and finally the result. If the run was finished before, its stored
        rounds and result are yielded.
        """
        config, finished = self.entry.config, opened.finished()
        if finished is None:
            outcome = yield from self._trained(opened, session, say)
        else:
            outcome = finished
            yield from finished.rounds
        if outcome.attack is None and config.adversary is not None:
            outcome.attack, further = self._attacked(federation, opened, session, outcome, say)
            if outcome.privacy is not None:
                outcome.privacy = replace(outcome.privacy, further=further)
        result = self.result(federation, outcome)
        if finished is None:
            # Imported late: it takes half a second.
            from raysim.storage.run_tables import split_pieces

            frozen, evaluation = self.frozen, config.evaluation
            important = self.first and not self.trial and evaluation.importance > 0
            if important:
                self._enter_importance(federation, outcome)
            with resume.writing(self.folder):
                with opened.manifest.together():
                    write_run(
                        opened.manifest,
                        federation,
                        outcome,
                        frozen,
                        evaluation,
                        config.training.precision,
                        config.system,
                        models=not self.trial,
                        predicted=self.held,
                    )
                if not self.nested and outcome.noisy_sizes is None:
                    opened.manifest.pieces(SPLIT, split_pieces(federation))
                if important:
                    self._write_importance(opened.manifest, federation)
                if self.first and not self.trial:
                    from raysim.experiment.run_page import write_run_page

                    whole = self.folder.parents[2] if self.nested else None
                    write_run_page(opened.manifest, result, frozen, config, whole)
        yield result

    def result(self, federation: Federation, outcome: Outcome) -> Result:
        """Return the result of the run, given the ``outcome`` of its training."""
        strategy, label = self.entry.strategy, self.entry.label
        return Result(
            label,
            strategy.is_reference,
            self.seed,
            federation,
            outcome,
            self.folder,
            self.entry.title,
            strategy.alone,
            self.entry.learner,
            strategy.uses_training(),
        )

    def _enter_importance(self, federation: Federation, outcome: Outcome) -> None:
        """Add to the traffic ledger what hospitals send for feature importances."""
        from raysim.serving import importance

        columns, evaluation = len(federation.preprocessing.columns), self.entry.config.evaluation
        figures = 1 + columns * evaluation.importance + importance.VALUES * min(columns, importance.STRONGEST)
        ids = np.flatnonzero(federation.sizes(evaluation.part))
        last = outcome.rounds[-1].round if outcome.rounds else 0
        outcome.ledger.add(last, ledger.IMPORTANCE, ids, 2 * figures)

    def _write_importance(self, out: Manifest, federation: Federation) -> None:
        """Write the tables of feature importances and of partial dependence for the headline model."""
        from raysim.serving import importance
        from raysim.serving.predictor import Predictor

        evaluation, predictor = self.entry.config.evaluation, Predictor.open(out.folder)
        part, repeats = evaluation.part, evaluation.importance
        table = importance.importances(predictor, federation, part, repeats, self.seed)
        out.csv(IMPORTANCE, table)
        strongest = table["column"].head(importance.STRONGEST).tolist()
        out.csv(DEPENDENCE, importance.dependence(predictor, federation, part, strongest))

    def _attacked(
        self, federation: Federation, opened: Opened, session: Session, outcome: Outcome, say: Callable[[str], None]
    ) -> tuple[AttackFigures, tuple[Statement, ...]]:
        """Return the effect of the simulated attack, and the privacy guarantees of additional runs. Additional runs,
        without attack, are executed only if ``adversary.baseline`` is set.
        """
        from raysim.engine.attack_figures import attack_figures

        job = self.asked()
        if job.adversary is None or not job.adversary.baseline:
            return attack_figures(job, outcome, None, federation), ()
        further: list[Statement] = []
        earlier = opened.begins_baseline() if job.redraws_noise else 0

        def last(job: Job) -> Outcome | None:
            *_, end = session.run(job, None, 0, say)
            if not isinstance(end, Outcome):
                return None
            if end.privacy is not None:
                further.append(end.privacy)
            return end

        quiet = replace(job, adversary=None, evaluation=job.evaluation.model_copy(update={"every": 0}))
        averaged = None
        if job.aggregation is not None:
            alike = replace(job.strategy, weights="uniform") if isinstance(job.strategy, Weighted) else job.strategy
            averaged = last(replace(quiet, aggregation=None, strategy=alike))
        return attack_figures(job, outcome, last(quiet), federation, averaged), tuple(further) * (1 + earlier)

    def _trained(self, opened: Opened, session: Session, say: Callable[[str], None]) -> Generator[Round, None, Outcome]:
        """Execute the run, yield its rounds and write its checkpoints; return the outcome."""
        section, since, outcome = self.entry.config.checkpoint, None, None
        ticket, job = opened.ticket, self.job
        location = ticket.location(opened.folder)
        checkpoints = Checkpoints(location, section.keep, ticket.fingerprint, self.entry.strategy)
        if opened.again:
            since, damaged = checkpoints.latest()
            where = f"round {since.round} of {plugins.rounds(self.entry.config)}" if since else "the start"
            say("; ".join([*damaged, f"{self.name} resumes from {where}"]))
            if since is not None and since.history is not None:
                yield from since.history.rounds[:-1]
        begun = 0 if since is None else since.round
        if job.redraws_noise:
            job = replace(job, earlier=opened.begins(begun))
            opened.reaches(min(begun + AHEAD, job.rounds))
        goes_on, last_stored = False, begun

        def lost(line: str) -> None:
            """Report that the coordinator was lost, and count the repeated rounds, whose fresh noise costs privacy
            again."""
            if job.redraws_noise:
                reached = opened.ticket.reached
                opened.begins(last_stored)
                opened.reaches(reached)
            say(line)

        with Writer(checkpoints) as writer:
            try:
                for event in session.run(job, since, section.every, lost):
                    goes_on = True
                    if isinstance(event, Round):
                        if job.redraws_noise:
                            opened.reaches(min(event.round + AHEAD, job.rounds))
                        yield event
                    elif isinstance(event, RunState):
                        last_stored = event.round
                        writer.offer(event)
                    else:
                        outcome = event
            except RaysimError as error:
                if not (since or writer.round or isinstance(error, ResourceError)):
                    opened.forget()  # a repeated run would fail in the same way
                raise
            except Exception as error:
                if since is None or goes_on:
                    raise
                raise ConfigError(
                    f"{location}: the checkpoint of round {since.round} cannot be resumed "
                    f"({type(error).__name__}: {error}); remove this checkpoint to resume from an earlier one"
                ) from error
        if outcome is None:
            raise RuntimeError("the coordinator ended without a result; report this as a fault of raysim")
        return outcome
