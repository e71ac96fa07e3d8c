"""The steps between hospitals' updates and the strategy, in their fixed order.

Steps are, for example, clipping, compression and secure aggregation. Each step has a hospital's side and a server's
side. At hospitals, steps run from first to last, and change what leaves the hospital. At the server, steps run from
last to first: they adapt the local problem before it is sent, and process what hospitals return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from raysim.strategies.base import (
    Answers,
    Call,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Mask,
    State,
    Strategy,
    Update,
)
from raysim.traffic.ledger import SCALAR_BYTES, update_numbers
from raysim.virtual_time.scheduling import ScheduledCohort

if TYPE_CHECKING:
    from raysim.engine.attacks.byzantine import Byzantine
    from raysim.engine.attacks.canaries import Watch
    from raysim.engine.attacks.norm_bound import NormBound
    from raysim.engine.attacks.secure_geometric_median import SecureGeometricMedian
    from raysim.engine.guarantee import Guarantee
    from raysim.engine.pipeline.compressing import CompressedUpdates
    from raysim.engine.pipeline.secure_sums import SecureSums
    from raysim.engine.privacy.guard import Guard
    from raysim.engine.privacy.program_release import ProgramNoise

NOBODY_BAD = np.empty(0, dtype=np.int64)


class UpdatePipeline:
    """The steps between hospitals and the strategy of one ``job``, whose models have ``size`` parameters.

    Parameters marked in ``private [P]`` never leave a hospital. ``first`` has the noisy statistics that hospitals sent
    before any round.
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
        seed, name, privacy, rule = job.work.seed, job.name, job.privacy, job.aggregation
        self._byzantine: Byzantine | None = None
        self._watch: Watch | None = None
        self._guard: Guard | None = None
        self._compressed: CompressedUpdates | None = None
        self.secure: SecureSums | None = None
        bounding: NormBound | None = None
        median: SecureGeometricMedian | None = None
        noise: ProgramNoise | None = None
        # A rule needs single updates, or several secure sums, or clipping by each hospital.
        of_single = rule if rule is not None and job.secure is None and (privacy is None or rule.of_single) else None
        if job.adversary is not None or of_single is not None:
            from raysim.engine.attacks.byzantine import Byzantine

            self._byzantine = Byzantine(job.adversary, of_single, federation, seed, name, private)
        if job.canaries is not None:
            from raysim.engine.attacks.canaries import Watch

            self._watch = Watch(job.canaries)
        if rule is not None and of_single is None and rule.of_single:
            from raysim.engine.attacks.secure_geometric_median import SecureGeometricMedian

            median = SecureGeometricMedian(rule, name, federation.sizes("train"))
        elif rule is not None and of_single is None:
            from raysim.engine.attacks.norm_bound import NormBound

            bounding = NormBound(rule.bound, name, privacy is not None and privacy.unit == "hospital")
        if job.compression is not None and job.compression.name != "none":
            from raysim.engine.pipeline.compressing import CompressedUpdates

            in_shares = privacy is not None and privacy.effective_mode in ("pooled", "distributed")
            self._compressed = CompressedUpdates(job.compression, seed, name, in_shares)
        if job.secure is not None:
            from raysim.engine.pipeline.secure_sums import SecureSums

            compression, masked = None if self._compressed is None else self._compressed.compression, travels
            if compression is not None and compression.name == "random_k":
                masked = compression.count(travels)  # all mask the same entries
            self.secure = SecureSums(job.secure, seed, name, masked, privacy, size)
        if guarantee is not None:
            from raysim.engine.privacy.hospital_noise import HospitalNoise
            from raysim.engine.privacy.patient_noise import PatientNoise
            from raysim.engine.privacy.program_release import ProgramNoise

            section, parameters = guarantee.section, guarantee.parameters
            if strategy.uses_programs():
                noise = ProgramNoise(guarantee, job)
            elif section.unit == "hospital":
                self._guard = HospitalNoise(section, parameters, job, strategy, size, private, self.secure)
            else:
                self._guard = PatientNoise(section, parameters, job, federation, size, private, self.secure)
        order: tuple[Step | None, ...] = (
            self._byzantine,
            self._watch,
            bounding,
            median,
            Bounds(None if privacy is None else privacy.unit),
            noise,
            self._guard,
            self._compressed,
            self.secure,
        )
        self._steps = [step for step in order if step is not None]
        self._back = self._steps[::-1]
        self._hospitals, self._travels = len(federation.hospitals), travels
        self._entered: Ids | None = None

    @property
    def bad(self) -> Ids:
        """Return the ids of the Byzantine hospitals in ascending order."""
        return NOBODY_BAD if self._byzantine is None else self._byzantine.bad

    def setup(self, strategy: Strategy, view: FederationView, rehearsed: Callable[[FederationView], State]) -> State:
        """Return the strategy's state before the first round.

        Byzantine hospitals may send false descriptions of their data to enter a cluster. They know
        ``rehearsed(view)``, the state that would result without lies.
        """
        if self._byzantine is not None and self._byzantine.lies:
            self._entered = self._target(rehearsed(view), view.trainable)
        state = strategy.setup(view)
        self._entered = None
        if self.secure is not None:
            self.secure.check_clusters(state, view.trainable)
        return state

    def answers(self, answers: Answers) -> Answers:
        """Return the answers to a call. During the set-up, answers of Byzantine hospitals that lie are replaced by
        false ones.
        """
        if self._byzantine is None or self._entered is None:
            return answers
        return self._byzantine.lying(answers, self._entered)

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with the changes that steps make to the local problem; see :meth:`Step.posed`."""
        for step in self._back:
            cohort = step.posed(view, cohort)
        return cohort

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with the local problem as hospitals receive it; see :meth:`Step.fitted`."""
        for step in self._back:
            cohort = step.fitted(cohort)
        return cohort

    def hospital_steps(self, round: int, problem: LocalProblem, ids: Ids) -> tuple[HospitalStep, ...]:
        """Return, in order, what each step does at the hospitals ``ids``, which minimise ``problem`` in a round."""
        steps = (step.hospital_step(round, problem, ids) for step in self._steps)
        return tuple(step for step in steps if step is not None)

    def call_steps(self, round: int, call: Call, number: int, name: str) -> tuple[HospitalStep, ...]:
        """Return, in order, what each step does for a ``call`` of a client program; see :meth:`Step.call_step`."""
        steps = (step.call_step(round, call, number, name) for step in self._steps)
        return tuple(step for step in steps if step is not None)

    def opened_call(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of the last call of a client program as the strategy receives them."""
        for step in self._back:
            units = step.opened_call(units)
        return units

    def sent(
        self, partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids
    ) -> tuple[NDArray[np.int64] | None, int]:
        """Return the number of bits of each local update, ``[H]``; None if updates are neither compressed nor masked.
        Also return the number of further bytes that the server sends for secure aggregation.
        """
        hidden = None if self.secure is None else self.secure.sent(problem, ids)
        if hidden is not None:
            return 8 * hidden[0], hidden[1]
        bits = None if self._compressed is None else update_bits(partials)
        if bits is not None:  # numbers that are sent with an update are not compressed
            bits = bits + 8 * SCALAR_BYTES * update_numbers(problem)
        return bits, 0

    def most_bits(self, problem: LocalProblem) -> int | None:
        """Return the largest number of bits of a local update for ``problem``; None if updates are neither compressed
        nor masked.
        """
        if self.secure is not None:
            return self.secure.most_bits(self._hospitals, problem)
        if self._compressed is None:
            return None
        return self._compressed.compression.most_bits(self._travels) + 8 * SCALAR_BYTES * update_numbers(problem)

    def received(self, round: int, partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids) -> Update:
        """Return the update that the server receives from the hospitals ``ids``, which minimised ``problem``. Each step
        has processed the update at the server (:meth:`Step.opened`).
        """
        bit = self._guard is not None and problem.sent is not None and self._guard.bit
        units = summed(partials, max(sum_count(problem, self._size), 1) + bit, self._size)
        for step in self._back:
            units = step.opened(round, problem, ids, units)
        return update_of(units, partials, problem, ids)

    def further(self, sent: ScheduledCohort, update: Update) -> ScheduledCohort | None:
        """Return the cohort ``sent`` with the local problem for which hospitals send their updates of this round again,
        or None if hospitals send nothing more; see :meth:`Step.further`.
        """
        problems = [problem for step in self._back if (problem := step.further(update)) is not None]
        return replace(sent, problem=problems[0]) if problems else None

    def learned(self, round: int, update: Update | None, problem: LocalProblem) -> Update | None:
        """Return the update from which the strategy learns; see :meth:`Step.learned`."""
        for step in self._back:
            update = None if update is None else step.learned(round, update, problem)
        return update

    @property
    def keeps_residuals(self) -> bool:
        """Whether hospitals store vectors for error feedback under compression."""
        return self._compressed is not None and self._compressed.remembers

    @property
    def canary_components(self) -> Floats | None:
        """Return the component of each round's update along each of a privacy audit's ``M`` canaries, ``[rounds, M]``;
        None without canaries.
        """
        return None if self._watch is None else np.array(self._watch.rounds).reshape(len(self._watch.rounds), -1)

    def facts(self) -> dict[str, float]:
        """Return numbers on all steps for the summary of a finished run, by name."""
        return {name: value for step in self._back for name, value in step.facts().items()}

    @property
    def guaranteed(self) -> Any:
        """Return the state of the privacy guarantee for checkpoints; None without such a state."""
        of_guard = None if self._guard is None else self._guard.memory
        first = {name: value for name, value in self._first.memory.items() if value is not None}
        return {"guard": of_guard, "first": first} if of_guard is not None or first else None

    @property
    def memory(self) -> dict[str, Any] | None:
        """Return the state of attacks, robust rules and secure aggregation for checkpoints; None without such
        a state.
        """
        if self._byzantine is None and self.secure is None:
            return None
        return {
            "byzantine": None if self._byzantine is None else self._byzantine.memory,
            "secure": None if self.secure is None else self.secure.memory,
        }

    def resume(self, memory: dict[str, Any] | None, guaranteed: Any) -> None:
        """Continue from the values of :attr:`memory` and :attr:`guaranteed` in a checkpoint. Raises ``ValueError`` for
        impossible values.
        """
        if self._guard is not None:
            self._guard.resume(None if guaranteed is None else guaranteed["guard"])
        if self._byzantine is None and self.secure is None:
            return
        if memory is None:
            raise ValueError("it has no state of attacks, rules and secure aggregation, but the run uses them")
        if self._byzantine is not None:
            self._byzantine.resume(memory["byzantine"], self._size)
        if self.secure is not None:
            self.secure.resume(memory["secure"])

    def _target(self, honest: State, trainable: Ids) -> Ids:
        """Return the honest hospitals of the cluster that lying hospitals try to enter: the cluster with the most
        honest hospitals. ``honest`` is the strategy's state that would result without lies.
        """
        if honest.cluster is None:
            raise ConfigError(
                f"adversary.attack: strategy '{self._job.name}' makes no clusters before training, so "
                "'signature_lie' has no cluster to enter; choose another strategy or attack"
            )
        among = np.setdiff1d(trainable, self.bad)
        clusters, sizes = np.unique(honest.cluster[among], return_counts=True)
        return np.asarray(among[honest.cluster[among] == clusters[np.argmax(sizes)]])
