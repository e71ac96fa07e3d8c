"""The server's side of attacks and of robust rules: single updates between hospitals and the strategy.

Where a rule or an attack needs them, hospitals send their updates one by one. Bad hospitals that act together replace
theirs; then the rule stands for the average in each of the problem's sums: the sum of the weights times what the rule
makes of the updates. Without a rule the sums are those that hospitals' processes would have made, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.adversaries import collusion
from raysim.adversaries.who import ON_ROWS, ON_UPDATES, TOGETHER, bad_hospitals
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.core.errors import ConfigError
from raysim.core.exact import ExactSum, decode, largest_entry
from raysim.core.plain_checks import check_vectors, whole_number
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.updates.own_attacks import Measured, OwnAttack, within
from raysim.engine.updates.sums import heaviest
from raysim.robust.aggregation import Aggregation
from raysim.robust.breakdown import kappa
from raysim.robust.rule import Aggregate
from raysim.strategies.base import POOLED, Floats, Ids, LocalProblem, Mask, Update, Upload
from raysim.virtual_time.scheduling import ScheduledCohort

IPM = 0.5
"""The factor of inner product manipulation where none is given."""


@dataclass
class Tally:
    """What became of bad and honest updates over the rounds."""

    rejected: int = 0
    """Updates that a rule gave no share."""
    rejected_bad: int = 0
    """Those of them that were bad."""
    bad: int = 0
    """Bad updates that a selecting rule was given."""
    admitted: float = 0.0
    """The share of bad updates in what was learned, added up over sums and rounds."""
    sums: int = 0
    """In how many sums that share is known."""
    largest: float = 0.0
    """The largest share of bad ones among the hospitals of a sum, with and without a rule."""
    heaviest: float = 0.0
    """The largest share of a sum's weight that one hospital had under a rule with weights."""
    kappa: float = 0.0
    """The largest coefficient of robustness that the rule had in a sum; 0 where none is known."""


class Byzantine:
    """Of one job on ``federation``; ``private [P]`` are the parameters that never leave a hospital."""

    def __init__(
        self,
        adversary: AdversarySection | None,
        aggregation: AggregationSection | None,
        federation: Federation,
        seed: int,
        name: str,
        private: Mask | None,
    ) -> None:
        self._adversary, self._aggregation, self._federation = adversary, aggregation, federation
        self._seed, self._name = seed, name
        self._travels = None if private is None else ~private
        share = 0.0 if adversary is None else adversary.share
        self.bad: Ids = bad_hospitals(seed, len(federation.hospitals), share)
        self._sizes = federation.sizes("train")
        self._tally = Tally()
        self._centres: dict[int, Floats] = {}
        self._direction: Floats | None = None
        self._directions = 0
        root = None if aggregation is None else aggregation.root
        self._root = None if root is None else federation.hospitals.index(root)

    @property
    def _together(self) -> bool:
        return len(self.bad) > 0 and self._adversary is not None and self._adversary.attack in TOGETHER

    @property
    def lies(self) -> bool:
        """Whether bad hospitals lie about their data before training."""
        return len(self.bad) > 0 and self._adversary is not None and self._adversary.attack == "signature_lie"

    def own_attack(self, round: int) -> OwnAttack | None:
        """What bad hospitals do on their own in a round, or None."""
        section = self._adversary
        if section is None or not len(self.bad) or section.attack not in (*ON_ROWS, *ON_UPDATES, "signature_lie"):
            return None
        feature = None if section.feature is None else self._federation.features.index(section.feature)
        hospitals, classes = len(self._federation.hospitals), len(self._federation.classes)
        bad, measured = frozenset(self.bad.tolist()), Measured()
        if section.attack == "units" and feature is not None:
            measured = Measured.of(self._federation, feature)
        return OwnAttack(section, bad, self._seed, round, hospitals, classes, feature, measured)

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort with its problem as hospitals are to be sent it: single updates where these are needed."""
        problem = cohort.problem
        if problem is None or POOLED in cohort.ids or problem.sent is None:
            return cohort
        if self._aggregation is None and not self._together:
            return cohort
        if problem.sent.what == "parameters" and self._aggregation is None:
            raise ConfigError(
                f"adversary.attack: strategy '{self._name}' sends whole models, not updates; choose another"
            )
        if self._aggregation is not None:
            check_ruled(problem, self._name)
        return replace(cohort, problem=uploading(problem, single=True))

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        """The update as the strategy is to have it; ``problem`` is the strategy's own."""
        sent = problem.sent
        if sent is None:
            return update
        weight = None if sent.weight is None else by_sum(sent)
        bad = np.isin(update.ids, self.bad)
        groups = [np.arange(len(bad))] if weight is None else [np.flatnonzero(column) for column in weight.T]
        shares = [float(bad[members].mean()) for members in groups if len(members)]
        self._tally.largest = max(self._tally.largest, *shares, 0.0)
        if update.deltas is None or (self._aggregation is None and not self._together):
            return update if update.problem is problem else self._as_asked(update, problem)
        deltas, sums = update.deltas.copy(), update.sums
        if self._together:
            self._attack(round, update.ids, deltas, bad, groups, largest_entry(heaviest(problem)))
        if weight is not None:
            exact = ExactSum(weight.shape[1], deltas.shape[1])
            if self._aggregation is None:
                for g, members in enumerate(groups):
                    for j in members:
                        exact.add(g, float(weight[j, g]), deltas[j])
                sums = decode(exact.units)
            else:
                sums = self._ruled(round, update.ids, deltas, bad, groups, weight)
        return self._as_asked(replace(update, deltas=deltas, sums=sums), problem)

    def lying(self, answers: Sequence[Floats], ids: Ids, target: Ids) -> list[Floats]:
        """The ``answers`` of hospitals ``ids`` where bad ones tell the mean of what honest ``target`` ones tell."""
        of_target = np.isin(ids, target)
        honest = [answer for answer, counts in zip(answers, of_target, strict=True) if counts]
        if not honest or any(answer.shape != honest[0].shape for answer in honest):
            return list(answers)
        lie = np.mean(honest, axis=0)
        return [
            lie.astype(answer.dtype) if bad and answer.shape == lie.shape else answer
            for answer, bad in zip(answers, np.isin(ids, self.bad), strict=True)
        ]

    def facts(self) -> dict[str, float]:
        """What became of bad updates; NaN where nothing is known of it."""
        tally = self._tally
        facts = {"bad_hospitals": float(len(self.bad)), "largest_bad_share": tally.largest}
        if self._aggregation is not None:
            nan = float("nan")
            facts["rejecting_precision"] = tally.rejected_bad / tally.rejected if tally.rejected else nan
            facts["rejecting_recall"] = tally.rejected_bad / tally.bad if tally.bad else nan
            facts["bad_share_admitted"] = tally.admitted / tally.sums if tally.sums else nan
            facts["largest_weight"] = tally.heaviest if tally.heaviest else nan
            facts["kappa"] = tally.kappa if tally.kappa else nan
        return facts

    @property
    def memory(self) -> dict[str, Any]:
        """What is carried from round to round, in plain values."""
        return {
            "tally": {name: float(value) for name, value in vars(self._tally).items()},
            "centres": {str(g): centre for g, centre in self._centres.items()},
            "direction": self._direction,
            "directions": self._directions,
        }

    def resume(self, memory: dict[str, Any] | None, size: int) -> None:
        """Go on from there with models of ``size`` scalars. Raises ``ValueError`` for what is none of it."""
        if memory is None:
            raise ValueError("it holds nothing of attacks and rules, which the run has")
        tally, shares = memory["tally"], ("admitted", "largest", "heaviest", "kappa")
        counts = {name: whole_number(value, name, 2**53) for name, value in tally.items() if name not in shares}
        largest, admitted = float(tally["largest"]), float(tally["admitted"])
        if not (0 <= largest <= 1 and 0 <= admitted <= counts["sums"] * (1 + 1e-9)):
            raise ValueError(f"its shares of bad updates are {largest:g} and {admitted:g} of {counts['sums']} sums")
        heaviest, coefficient = float(tally["heaviest"]), float(tally["kappa"])
        if not (0 <= heaviest <= 1 + 1e-9 and 0 <= coefficient < np.inf):
            raise ValueError(f"its largest weight is {heaviest:g}, and its coefficient of robustness {coefficient:g}")
        self._tally = Tally(**counts, admitted=admitted, largest=largest, heaviest=heaviest, kappa=coefficient)
        self._centres = {int(g): centre for g, centre in memory["centres"].items()}
        self._direction = memory["direction"]
        self._directions = whole_number(memory["directions"], "number of directions", 2**53)
        travels = size if self._travels is None else int(self._travels.sum())
        check_vectors(self._centres.values(), travels, "centre of updates")
        check_vectors(() if self._direction is None else (self._direction,), size, "direction of updates")

    def _as_asked(self, update: Update, problem: LocalProblem) -> Update:
        sent = problem.sent
        if sent is None or not sent.single:
            update = replace(update, deltas=None)
        return replace(update, problem=problem)

    def _attack(
        self, round: int, ids: Ids, deltas: Floats, bad: Mask, groups: Sequence[NDArray[Any]], limit: float
    ) -> None:
        """Replace the ``deltas`` of bad hospitals by what they send together, in each sum by itself."""
        honest = deltas.copy()
        everybody = self._adversary is not None and self._adversary.effective_knowledge == "all"
        for g, members in enumerate(groups):
            theirs = members[bad[members]]
            observed = members[~bad[members]] if everybody else theirs
            if len(theirs) and len(observed):
                sent = self._sent_together(round, g, ids, honest, members, theirs, observed)
                deltas[theirs] = within(sent, limit)

    def _sent_together(
        self, round: int, g: int, ids: Ids, honest: Floats, members: Ids, theirs: Ids, observed: Ids
    ) -> Floats:
        section = self._adversary
        if section is None:
            raise ValueError("nobody attacks")
        updates, m, f = honest[observed], len(members), len(theirs)
        if section.attack == "alie":
            return collusion.alie(updates, m, f, section.factor)
        if section.attack == "ipm":
            return collusion.ipm(updates, IPM if section.factor is None else section.factor)
        if section.attack == "min_max":
            return collusion.min_max(updates, section.deviation)
        if section.attack == "min_sum":
            return collusion.min_sum(updates, section.deviation)
        if section.attack == "mimic":
            copied: Floats = updates[self._mimicked(updates, ids[observed])]
            return copied
        assumed = honest[members]
        liars = np.isin(members, theirs)

        def server(sent: Floats) -> Floats:
            tried = np.where(liars[:, None], sent, assumed)
            return tried.mean(axis=0) if self._aggregation is None else self._made(round, g, tried).update

        return collusion.adaptive(updates, server)

    def _mimicked(self, updates: Floats, ids: Ids) -> int:
        """Whose update is copied: that of the hospital that is named, if it is among ``ids``, or else of the one that
        stands out along the main direction of all rounds so far.
        """
        named = None if self._adversary is None else self._adversary.hospital
        if named is not None and (at := np.flatnonzero(ids == self._federation.hospitals.index(named))).size:
            return int(at[0])
        self._directions += 1
        self._direction = collusion.principal_direction(updates, self._direction, self._directions)
        return collusion.mimicked(updates, self._direction)

    def _made(
        self, round: int, g: int, updates: Floats, root: Floats | None = None, weights: Floats | None = None
    ) -> Aggregate:
        """What the rule makes of the updates of sum ``g``."""
        if self._aggregation is None:
            raise ValueError("there is no rule")
        order = stream(self._seed, "buckets", round, g).permutation(len(updates))
        travelling = updates if self._travels is None else updates[:, self._travels]
        centre = self._centres.get(g)
        made = rule_of(self._aggregation).aggregate(travelling, centre=centre, root=root, order=order, weights=weights)
        return made

    def _ruled(
        self,
        round: int,
        ids: Ids,
        deltas: Floats,
        bad: Mask,
        groups: Sequence[NDArray[Any]],
        weight: Floats,
    ) -> Floats:
        """The sums ``[G, P]``, each of its weights times what the rule makes of its updates."""
        sums = np.zeros((weight.shape[1], deltas.shape[1]))
        travels = np.ones(deltas.shape[1], dtype=np.bool_) if self._travels is None else self._travels
        section = self._aggregation
        for g, members in enumerate(groups):
            root = None
            if self._root is not None:
                held = np.flatnonzero(ids[members] == self._root)
                if not len(held):
                    continue  # nothing to trust: the sum stays 0
                root = deltas[members[held[0]]][travels]
            if not len(members):
                continue
            capped = None
            if section is not None and section.weights == "capped":
                capped = np.minimum(self._sizes[ids[members]], section.cap).astype(np.float64)
                self._tally.heaviest = max(self._tally.heaviest, float(capped.max() / capped.sum()))
            if section is not None:
                rule, m = rule_of(section), len(members)
                bound = kappa(section.name, m, rule.count(m), section.before == "nnm")
                if rule.count(m) and np.isfinite(bound):
                    self._tally.kappa = max(self._tally.kappa, bound)
            made = self._made(round, g, deltas[members], root, capped)
            if section is not None and section.name == "centred_clipping":
                self._centres[g] = made.update
            sums[g, travels] = float(weight[members, g].sum()) * made.update
            self._count(made, bad[members])
        return sums

    def _count(self, made: Aggregate, bad: Mask) -> None:
        tally = self._tally
        if made.admitted is None:
            return
        total = made.admitted.sum()
        tally.sums += 1
        tally.admitted += float(made.admitted[bad].sum() / total) if total else 0.0
        if made.selects:
            rejected = made.admitted == 0
            tally.rejected += int(rejected.sum())
            tally.rejected_bad += int((rejected & bad).sum())
            tally.bad += int(bad.sum())


def rule_of(section: AggregationSection) -> Aggregation:
    """The rule that a section names."""
    return Aggregation(
        name=section.name,
        assumed=section.assumed,
        before=section.before,
        radius=section.radius,
        passes=section.passes,
        bound=section.bound,
        kept=section.kept,
    )


def check_ruled(problem: LocalProblem, name: str) -> None:
    """Raise ``ConfigError`` where no rule can take the place of what the strategy called ``name`` makes of updates."""
    sent = problem.sent
    if sent is None:
        return
    if sent.what == "parameters":
        raise ConfigError(f"aggregation.name: strategy '{name}' sends whole models, not updates; choose another")
    if sent.weight is None:
        raise ConfigError(
            f"aggregation.name: strategy '{name}' averages single updates in a way of its own, which no rule can "
            "replace; choose another strategy or leave aggregation out"
        )
    if problem.objective.variates is not None:
        raise ConfigError(
            f"aggregation.name: strategy '{name}' also averages control variates, which no rule guards; choose another "
            "strategy or leave aggregation out"
        )


def uploading(problem: LocalProblem, *, single: bool) -> LocalProblem:
    """The problem with an upload that sends each update by itself."""
    if problem.upload is not None:
        return replace(problem, upload=replace(problem.upload, single=single))
    return problem if problem.then is None else replace(problem, then=uploading(problem.then, single=single))


def by_sum(sent: Upload) -> Floats:
    """The weights of each entry in each sum, ``[H, G]``."""
    weight = sent.weight
    if weight is None:
        raise ValueError("nothing is summed")
    if weight.ndim == 2:
        return weight
    spread = np.zeros((len(weight), sent.sums))
    spread[np.arange(len(weight)), 0 if sent.into is None else sent.into] = weight
    return spread
