"""What happens to updates between hospitals and the strategy: attacks, robust rules, compression and secure sums.

Guarantees of privacy are applied by :mod:`raysim.engine.privacy.hospital_noise`. Nothing is imported for sections
that a job does not have.
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
from raysim.engine.messages.plan import PartialResult, Tampering
from raysim.engine.privacy.release import weighed
from raysim.engine.server.merging import update_bits
from raysim.strategies.base import Ask, FederationView, Floats, Ids, LocalProblem, Mask, State, Strategy, Update
from raysim.virtual_time.scheduling import ScheduledCohort

if TYPE_CHECKING:
    from raysim.engine.attacks.byzantine import Byzantine
    from raysim.engine.attacks.canaries import Watch
    from raysim.engine.attacks.secure_geometric_median import MedianPasses
    from raysim.engine.pipeline.compressing import Compressing
    from raysim.engine.pipeline.secure_sums import Masking, Opening, SecureSums

NOBODY_BAD = np.empty(0, dtype=np.int64)


class UpdatePipeline:
    """The steps of one ``job``, of whose models ``travels`` scalars leave hospitals and ``private [P]`` do not."""

    def __init__(self, job: Job, federation: Federation, private: Mask | None, travels: int) -> None:
        self._job = job
        self._size = travels + (0 if private is None else int(private.sum()))
        self._byzantine: Byzantine | None = None
        self._compressing: Compressing | None = None
        self.secure: SecureSums | None = None
        """What hides sums; None: they are not hidden."""
        self._masking: Masking | None = None
        self._entered: Ids | None = None
        self.most_bits: int | None = None
        """The most bits that an update can have; None where it is sent as it is."""
        seed, name = job.work.seed, job.name
        rule = job.aggregation
        self._bound: float | None = None
        if rule is not None and not rule.of_single and (job.secure is not None or job.privacy is not None):
            self._bound, rule = rule.bound, None
        self._passes: MedianPasses | None = None
        if rule is not None and job.secure is not None:
            from raysim.engine.attacks.secure_geometric_median import MedianPasses

            self._passes, rule = MedianPasses(rule, name, federation.sizes("train")), None
        if job.adversary is not None or rule is not None:
            from raysim.engine.attacks.byzantine import Byzantine

            self._byzantine = Byzantine(job.adversary, rule, federation, seed, name, private)
        self._watch: Watch | None = None
        if job.canaries is not None:
            from raysim.engine.attacks.canaries import Watch

            self._watch = Watch(job.canaries)
        if job.compression is not None and job.compression.name != "none":
            from raysim.engine.pipeline.compressing import Compressing

            self._compressing = Compressing.of(job.compression, seed)
            self.most_bits = self._compressing.compression.most_bits(travels)
        if job.secure is not None:
            from raysim.engine.pipeline.secure_sums import SecureSums

            if job.compression is not None and job.compression.name == "random_k" and self._compressing is not None:
                travels = self._compressing.compression.count(travels)  # all mask the same entries
            noisy = job.privacy is not None and job.privacy.way in ("pooled", "distributed")
            tells = job.privacy is not None and job.privacy.tells_bits
            self.secure = SecureSums(job.secure, seed, name, travels, noisy, tells)
            self.most_bits = self.secure.most_bits(len(federation.hospitals))

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

    def fitted(self, round: int, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort with its problem as hospitals receive it. Raises ``ConfigError`` for one that cannot be sent."""
        if self._watch is not None:
            cohort = self._watch.canaries.fitted(cohort)
        if self._bound is not None:
            cohort = self._bounded(cohort)
        if self._passes is not None and cohort.problem is not None:
            size = cohort.state.models.shape[1]
            cohort = replace(cohort, problem=self._passes.begun(cohort.problem, cohort.ids, size))
        problem = cohort.problem
        if self._compressing is not None:
            self._compressing.check(problem, self._job.name)
        if self.secure is not None:
            self._masking = None if problem is None else self.secure.masking(round, problem, cohort.ids)
        return cohort if self._byzantine is None else self._byzantine.fitted(cohort)

    def further(self, round: int, asked: ScheduledCohort, update: Update) -> ScheduledCohort | None:
        """The cohort of a round's next pass, given the ``update`` of the last one; None where there is no other
        pass.
        """
        problem = None if self._passes is None else self._passes.next(update)
        if self._passes is None or self.secure is None or problem is None:
            return None
        # Each pass has masks of its own.
        self._masking = self.secure.masking(round, problem, asked.ids, self._passes.number)
        return replace(asked, problem=problem)

    def planned(self, round: int, problem: LocalProblem | None) -> dict[str, Any]:
        """The fields of a round's plan that tell hospitals what to do to their updates."""
        if problem is None:
            return {}
        return {
            "masking": None if problem.sent is None else self._masking,
            "compressing": None if self._compressing is None else replace(self._compressing, round=round),
            "attack": self._tampering(round),
            "bound": None if problem.sent is None else self._bound,
            "repeated": None if self._passes is None or problem.sent is None else self._passes.which,
        }

    def _bounded(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort whose hospitals clip their updates themselves: in a sum all have one weight, as under any rule.

        Weights that a guarantee of privacy has fixed stay.
        """
        problem = cohort.problem
        if problem is None or problem.sent is None:
            return cohort
        from raysim.engine.attacks.robust_rule import check_ruled

        check_ruled(problem, self._job.name)
        privacy, weight = self._job.privacy, problem.sent.weight
        if weight is None or (privacy is not None and privacy.unit == "hospital"):
            return cohort
        if weight.ndim == 1:
            into = np.zeros(len(weight), dtype=np.int64) if problem.sent.sum_index is None else problem.sent.sum_index
            even = (np.bincount(into, weights=weight) / np.maximum(np.bincount(into), 1))[into]
        else:
            even = np.where(weight != 0, weight.sum(axis=0) / np.maximum((weight != 0).sum(axis=0), 1), 0.0)
        return replace(cohort, problem=weighed(problem, even))

    def _tampering(self, round: int) -> Tampering | None:
        """What some hospitals do to their rows and updates in a round: an attack, or the canaries of an audit."""
        if self._watch is not None:
            return self._watch.canaries
        return None if self._byzantine is None else self._byzantine.own_attack(round)

    def sent(
        self, partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids
    ) -> tuple[NDArray[np.int64] | None, int]:
        """The bits of each entry's update ``[H]`` (None: uncompressed), and the bytes that go down beside models."""
        if self.secure is not None and self._masking is not None:
            sent, down = self.secure.bytes(self._masking, problem, ids)
            return 8 * sent, down
        return (None if self._compressing is None else update_bits(partials)), 0

    def of_setup(self, hospitals: int, scalars: int) -> tuple[int, int] | None:
        """For a secure sum of ``scalars`` before the first round: the bytes that each of ``hospitals`` sends, and all
        bytes that go down. None: sums are not hidden.
        """
        return None if self.secure is None else self.secure.of_setup(hospitals, scalars)

    def opening(self, problem: LocalProblem, ids: Ids) -> Opening | None:
        """What opens the sums of a round; None where they are not hidden."""
        if self.secure is None or self._masking is None:
            return None
        return self.secure.opening(self._masking, problem, ids)

    def learned(self, round: int, update: Update, problem: LocalProblem, opening: Opening | None) -> Update | None:
        """The update as the strategy receives it; None where no sum could be opened and no noise is added centrally.

        Where noise hides who takes part, weights do not depend on the cohort, and sums are not rescaled.
        """
        if self._watch is not None:
            self._watch.see(update)
        privacy = self._job.privacy
        if self._bound is not None:
            update = replace(update, problem=problem)
        if opening is not None and (privacy is None or privacy.way != "central"):
            if not opening.scale.any():
                return None
            if privacy is None or privacy.own_steps:
                update = opening.scaled(update)
        if self._passes is not None:
            update = self._passes.median(update, problem)
        return update if self._byzantine is None else self._byzantine.learned(round, update, problem)

    @property
    def keeps_residuals(self) -> bool:
        """Whether hospitals remember residuals of compression."""
        return self._compressing is not None and self._compressing.remembers

    @property
    def seen(self) -> Floats | None:
        """What the server has seen of each canary, ``[rounds, M]``; None without canaries."""
        return None if self._watch is None else np.array(self._watch.rounds).reshape(len(self._watch.rounds), -1)

    def facts(self) -> dict[str, float]:
        """Figures of a finished run."""
        of_sums = {} if self.secure is None else self.secure.facts()
        return of_sums | ({} if self._byzantine is None else self._byzantine.facts())

    @property
    def memory(self) -> dict[str, Any] | None:
        """What is carried from round to round, in plain values; None where there is nothing."""
        if self._byzantine is None and self.secure is None:
            return None
        return {
            "byzantine": None if self._byzantine is None else self._byzantine.memory,
            "secure": None if self.secure is None else self.secure.memory,
        }

    def resume(self, memory: dict[str, Any] | None) -> None:
        """Go on from the ``memory`` of a checkpoint. Raises ``ValueError`` where parts are missing or impossible."""
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
