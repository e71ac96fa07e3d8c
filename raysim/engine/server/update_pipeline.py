"""The steps between hospitals' updates and the strategy, in the one order that they have.

Each step has two halves, which stand together in its file. A hospital's half changes what leaves it; halves are walked
from first to last. The server's half first fits the problem that hospitals receive, and then takes up what comes back;
these are walked from last to first. Nothing is imported for sections that a job does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.engine.messages.plan import PartialResult
from raysim.engine.messages.steps import HospitalStep
from raysim.engine.messages.update_sums import sum_count
from raysim.engine.pipeline.step import Step
from raysim.engine.privacy.bounding import Bounds
from raysim.engine.privacy.noisy_statistics import FirstAnswers
from raysim.engine.server.merging import summed, update_bits, update_of
from raysim.strategies.base import Ask, Call, FederationView, Floats, Ids, LocalProblem, Mask, State, Strategy, Update
from raysim.virtual_time.scheduling import ScheduledCohort

if TYPE_CHECKING:
    from raysim.engine.attacks.byzantine import Byzantine
    from raysim.engine.attacks.canaries import Watch
    from raysim.engine.attacks.norm_bound import NormBound
    from raysim.engine.attacks.secure_geometric_median import SecureGeometricMedian
    from raysim.engine.pipeline.compressing import CompressedUpdates
    from raysim.engine.pipeline.secure_sums import SecureSums
    from raysim.engine.privacy.guarantee import Guarantee
    from raysim.engine.privacy.guard import Guard

NOBODY_BAD = np.empty(0, dtype=np.int64)


class UpdatePipeline:
    """The steps of one ``job``, whose models have ``size`` scalars; ``private [P]`` never leave a hospital.

    ``guarantee``: that of the job's privacy, with the ``first`` answers, which hospitals have sent before any round.
    """

    def __init__(
        self,
        job: Job,
        strategy: Strategy,
        federation: Federation,
        size: int,
        private: Mask | None,
        first: FirstAnswers,
        guarantee: Guarantee | None,
    ) -> None:
        self._job, self._size, self._first = job, size, first
        travels = size - (0 if private is None else int(private.sum()))
        self._byzantine = byzantine(job, federation, private)
        self._watch = watch(job)
        self._compressed = compressed_updates(job)
        self.secure = secure_sums(job, self._compressed, travels)
        """What hides sums; None: they are not hidden."""
        self._guard = guard(job, guarantee, strategy, federation, size, private, self.secure)
        order: tuple[Step | None, ...] = (
            self._byzantine,
            self._watch,
            norm_bound(job),
            secure_median(job, federation),
            Bounds(None if job.privacy is None else job.privacy.unit),
            program_noise(job, guarantee),
            self._guard,
            self._compressed,
            self.secure,
        )
        self._steps = [step for step in order if step is not None]
        self._back = self._steps[::-1]
        self.most_bits: int | None = None
        """The most bits that an update can have; None where it is sent as it is."""
        if self.secure is not None:
            self.most_bits = self.secure.most_bits(len(federation.hospitals))
        elif self._compressed is not None:
            self.most_bits = self._compressed.compression.most_bits(travels)
        self._entered: Ids | None = None

    @property
    def bad(self) -> Ids:
        """The hospitals that attack, ascending."""
        return NOBODY_BAD if self._byzantine is None else self._byzantine.bad

    def setup(self, strategy: Strategy, view: FederationView, measure: Ask) -> State:
        """The strategy's state before the first round. Liars who want to enter a cluster learn of it by ``measure``."""
        if self._byzantine is not None and self._byzantine.lies:
            self._entered = self._target(strategy.setup(replace(view, ask=measure)), view.trainable)
        state = strategy.setup(view)
        self._entered = None
        if self.secure is not None:
            self.secure.check_clusters(state, view.trainable)
        return state

    def answers(self, answers: Sequence[Floats], ids: Ids) -> Sequence[Floats]:
        """The answers of hospitals ``ids``, with lies in the place of those of liars."""
        if self._byzantine is None or self._entered is None:
            return answers
        return self._byzantine.lying(answers, ids, self._entered)

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort with its problem as the strategy learns from it."""
        for step in self._back:
            cohort = step.posed(view, cohort)
        return cohort

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort with its problem as hospitals receive it. Raises ``ConfigError`` for one that cannot be sent."""
        for step in self._back:
            cohort = step.fitted(cohort)
        return cohort

    def halves(self, round: int, problem: LocalProblem, ids: Ids) -> tuple[HospitalStep, ...]:
        """The steps of hospitals ``ids`` that minimise the fitted ``problem`` in a round."""
        halves = (step.half(round, problem, ids) for step in self._steps)
        return tuple(half for half in halves if half is not None)

    def called(self, round: int, call: Call, number: int, name: str) -> tuple[HospitalStep, ...]:
        """The steps of the hospitals of a client program's ``call``; arguments as in :meth:`Step.called`."""
        halves = (step.called(round, call, number, name) for step in self._steps)
        return tuple(half for half in halves if half is not None)

    def heard(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums of the last call as the server reads them, from what hospitals have sent."""
        for step in self._back:
            units = step.heard(units)
        return units

    def sent(
        self, partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids
    ) -> tuple[NDArray[np.int64] | None, int]:
        """The bits of each entry's update ``[H]`` (None: uncompressed), and the bytes that go down beside models."""
        hidden = None if self.secure is None else self.secure.sent(problem, ids)
        if hidden is not None:
            return 8 * hidden[0], hidden[1]
        return (None if self._compressed is None else update_bits(partials)), 0

    def received(self, round: int, partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids) -> Update:
        """The update of a cohort ``ids`` that minimised the fitted ``problem``, as the server receives it."""
        bit = self._guard is not None and problem.sent is not None and self._guard.bit
        units = summed(partials, max(sum_count(problem, self._size), 1) + bit, self._size)
        for step in self._back:
            units = step.opened(round, problem, ids, units)
        return update_of(units, partials, problem, ids)

    def further(self, sent: ScheduledCohort, update: Update) -> ScheduledCohort | None:
        """The cohort of a round's next pass, given the ``update`` of the last one; None where there is no other
        pass.
        """
        problems = [problem for step in self._back if (problem := step.further(update)) is not None]
        return replace(sent, problem=problems[0]) if problems else None

    def learned(self, round: int, update: Update | None, problem: LocalProblem) -> Update | None:
        """The received update as the strategy, whose ``problem`` it is, learns from it; None where it learns
        nothing.
        """
        for step in self._back:
            update = None if update is None else step.learned(round, update, problem)
        return update

    @property
    def keeps_residuals(self) -> bool:
        """Whether hospitals remember residuals of compression."""
        return self._compressed is not None and self._compressed.remembers

    @property
    def seen(self) -> Floats | None:
        """What the server has seen of each canary, ``[rounds, M]``; None without canaries."""
        return None if self._watch is None else np.array(self._watch.rounds).reshape(len(self._watch.rounds), -1)

    def facts(self) -> dict[str, float]:
        """Figures of a finished run."""
        return {name: value for step in self._back for name, value in step.facts().items()}

    @property
    def guaranteed(self) -> Any:
        """What the guarantee of privacy carries from round to round, in plain values; None: nothing."""
        of_guard = None if self._guard is None else self._guard.memory
        first = {name: value for name, value in self._first.memory.items() if value is not None}
        return {"guard": of_guard, "first": first} if of_guard is not None or first else None

    @property
    def memory(self) -> dict[str, Any] | None:
        """What all else carries from round to round, in plain values; None: nothing."""
        if self._byzantine is None and self.secure is None:
            return None
        return {
            "byzantine": None if self._byzantine is None else self._byzantine.memory,
            "secure": None if self.secure is None else self.secure.memory,
        }

    def resume(self, memory: dict[str, Any] | None, guaranteed: Any) -> None:
        """Go on from a checkpoint's ``memory`` and what was ``guaranteed``. Raises ``ValueError`` where parts are
        missing or impossible.
        """
        if self._guard is not None:
            self._guard.resume(None if guaranteed is None else guaranteed["guard"])
        if self._byzantine is None and self.secure is None:
            return
        if memory is None:
            raise ValueError("it holds nothing of attacks, rules and secure sums, which the run has")
        if self._byzantine is not None:
            self._byzantine.resume(memory["byzantine"], self._size)
        if self.secure is not None:
            self.secure.resume(memory["secure"])

    def _target(self, honest: State, trainable: Ids) -> Ids:
        """The honest hospitals of the cluster that liars want to enter: the one with the most of them."""
        if honest.cluster is None:
            raise ConfigError(
                f"adversary.attack: strategy '{self._job.name}' makes no clusters before training, so that there is "
                "none to enter by a 'signature_lie'; choose another strategy or attack"
            )
        among = np.setdiff1d(trainable, self.bad)
        clusters, sizes = np.unique(honest.cluster[among], return_counts=True)
        target: Ids = among[honest.cluster[among] == clusters[np.argmax(sizes)]]
        return target


def byzantine(job: Job, federation: Federation, private: Mask | None) -> Byzantine | None:
    """Attacks, and rules for single updates."""
    rule = job.aggregation
    if rule is not None and (job.secure is not None or (job.privacy is not None and not rule.of_single)):
        rule = None
    if job.adversary is None and rule is None:
        return None
    from raysim.engine.attacks.byzantine import Byzantine

    return Byzantine(job.adversary, rule, federation, job.work.seed, job.name, private)


def watch(job: Job) -> Watch | None:
    """The canaries of an audit."""
    if job.canaries is None:
        return None
    from raysim.engine.attacks.canaries import Watch

    return Watch(job.canaries)


def norm_bound(job: Job) -> NormBound | None:
    """A rule that each hospital applies to its own update, as the server receives sums alone."""
    rule = job.aggregation
    if rule is None or rule.of_single or (job.secure is None and job.privacy is None):
        return None
    from raysim.engine.attacks.norm_bound import NormBound

    return NormBound(rule.bound, job.name, job.privacy is not None and job.privacy.unit == "hospital")


def secure_median(job: Job, federation: Federation) -> SecureGeometricMedian | None:
    """A rule in several passes, each of which is a secure sum."""
    rule = job.aggregation
    if rule is None or not rule.of_single or job.secure is None:
        return None
    from raysim.engine.attacks.secure_geometric_median import SecureGeometricMedian

    return SecureGeometricMedian(rule, job.name, federation.sizes("train"))


def program_noise(job: Job, guarantee: Guarantee | None) -> Step | None:
    """Noise of a guarantee of privacy on the sums of client programs."""
    if guarantee is None or not job.strategy.uses_programs():
        return None
    from raysim.engine.privacy.program_release import ProgramNoise

    return ProgramNoise(guarantee.section, job)


def guard(
    job: Job,
    guarantee: Guarantee | None,
    strategy: Strategy,
    federation: Federation,
    size: int,
    private: Mask | None,
    secure: SecureSums | None,
) -> Guard | None:
    """Clipping and noise of a guarantee of privacy on updates."""
    if guarantee is None or strategy.uses_programs():
        return None
    from raysim.engine.privacy.hospital_noise import HospitalNoise
    from raysim.engine.privacy.patient_noise import PatientNoise

    section, terms = guarantee.section, guarantee.terms
    made: Guard = (
        HospitalNoise(section, terms, job, strategy, size, private)
        if section.unit == "hospital"
        else PatientNoise(section, terms, job, federation, size, private)
    )
    made.secure = secure
    return made


def compressed_updates(job: Job) -> CompressedUpdates | None:
    """Compression."""
    if job.compression is None or job.compression.name == "none":
        return None
    from raysim.engine.pipeline.compressing import CompressedUpdates

    in_shares = job.privacy is not None and job.privacy.way in ("pooled", "distributed")
    return CompressedUpdates(job.compression, job.work.seed, job.name, in_shares)


def secure_sums(job: Job, compressed: CompressedUpdates | None, travels: int) -> SecureSums | None:
    """Secure aggregation of updates of which ``travels`` scalars leave hospitals."""
    if job.secure is None:
        return None
    from raysim.engine.pipeline.secure_sums import SecureSums

    if compressed is not None and compressed.compression.name == "random_k":
        travels = compressed.compression.count(travels)  # all mask the same entries
    return SecureSums(job.secure, job.work.seed, job.name, travels, job.privacy)
