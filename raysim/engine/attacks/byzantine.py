"""The server's side of attacks and robust rules.

If a rule or an attack needs each hospital's update, the server receives single updates instead of sums. Colluding
Byzantine hospitals replace their updates. The server then computes each weighted sum that the strategy requests: with a
robust rule, a sum is the total weight times the rule's aggregate. Without a rule, sums are the same, bit for bit, as if
hospitals had sent sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from raysim.adversaries.who import ON_ROWS, ON_UPDATES, TOGETHER, bad_hospitals
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.core.errors import ConfigError
from raysim.core.exact import ExactSum, decode, largest_entry
from raysim.data.federation import Federation
from raysim.engine.attacks.colluding import Colluders
from raysim.engine.attacks.own_attacks import FeatureScale, OwnAttack
from raysim.engine.attacks.robust_rule import RobustRule, Tally, check_ruled
from raysim.engine.messages.update_sums import by_sum, heaviest, uploading
from raysim.engine.pipeline.step import Step
from raysim.strategies.base import POOLED, Answers, Call, Floats, Ids, LocalProblem, Mask, Update
from raysim.virtual_time.scheduling import ScheduledCohort


class Byzantine(Step):
    """The attack and the robust rule of one job on ``federation``. Parameters in the mask ``private [P]`` never leave a
    hospital.
    """

    def __init__(
        self,
        adversary: AdversarySection | None,
        aggregation: AggregationSection | None,
        federation: Federation,
        seed: int,
        name: str,
        private: Mask | None,
    ) -> None:
        self._adversary, self._federation, self._seed, self._name = adversary, federation, seed, name
        share = 0.0 if adversary is None else adversary.share
        self.bad: Ids = bad_hospitals(seed, len(federation.hospitals), share)
        self._tally = Tally()
        self._robust_rule: RobustRule | None = None
        self._travels = slice(None) if private is None else ~private
        if aggregation is not None:
            travels = None if private is None else ~private
            self._robust_rule = RobustRule(aggregation, federation, seed, travels, self._tally)
        self._colluders: Colluders | None = None
        if len(self.bad) and adversary is not None and adversary.attack in TOGETHER:
            self._colluders = Colluders(adversary, federation)

    @property
    def lies(self) -> bool:
        """Whether Byzantine hospitals lie about their data before training (the attack ``signature_lie``)."""
        return len(self.bad) > 0 and self._adversary is not None and self._adversary.attack == "signature_lie"

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> OwnAttack | None:
        """Return the attack of Byzantine hospitals that act independently; None for other attacks."""
        return self._own_attack(round)

    def call_step(self, round: int, call: Call, number: int, name: str) -> OwnAttack | None:
        if len(call.ids):
            self._tally.largest = max(self._tally.largest, float(np.isin(call.ids, self.bad).mean()))
        return self._own_attack(round)

    def _own_attack(self, round: int) -> OwnAttack | None:
        section = self._adversary
        if section is None or not len(self.bad) or section.attack not in (*ON_ROWS, *ON_UPDATES, "signature_lie"):
            return None
        feature = None if section.feature is None else self._federation.features.index(section.feature)
        hospitals, classes = len(self._federation.hospitals), len(self._federation.classes)
        bad, measured = frozenset(self.bad.tolist()), FeatureScale()
        if section.attack == "units" and feature is not None:
            measured = FeatureScale.of(self._federation, feature)
        return OwnAttack(section, bad, self._seed, round, hospitals, classes, feature, measured)

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort. With a robust rule, or if Byzantine hospitals attack jointly, its local problem changes:
        the server then receives each hospital's update, not only sums.
        """
        problem = cohort.problem
        if problem is None or POOLED in cohort.ids or problem.sent is None:
            return cohort
        if self._robust_rule is None and self._colluders is None:
            return cohort
        if problem.sent.what == "parameters" and self._robust_rule is None:
            raise ConfigError(
                f"adversary.attack: strategy '{self._name}' sends whole models, not updates; choose another "
                "strategy or leave adversary out"
            )
        if self._robust_rule is not None:
            check_ruled(problem, self._name)
        return replace(cohort, problem=uploading(problem, single=True))

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update:
        """Return the update as the strategy receives it, after attack and robust rule."""
        sent = problem.sent
        if sent is None:
            return update
        weight = None if sent.weight is None else by_sum(sent)
        bad = np.isin(update.ids, self.bad)
        groups = [np.arange(len(bad))] if weight is None else [np.flatnonzero(column) for column in weight.T]
        shares = [float(bad[members].mean()) for members in groups if len(members)]
        self._tally.largest = max(self._tally.largest, *shares, 0.0)
        if update.deltas is None or (self._robust_rule is None and self._colluders is None):
            return update if update.problem is problem else self._as_asked(update, problem)
        deltas, sums = update.deltas.copy(), update.sums
        if self._colluders is not None:
            limit = largest_entry(heaviest(problem))
            server = partial(self._server, round, update.ids, groups, weight)
            self._colluders.replace(update.ids, deltas, bad, groups, limit, server)
        if weight is not None:
            exact = ExactSum(weight.shape[1], deltas.shape[1])
            if self._robust_rule is None:
                for g, members in enumerate(groups):
                    for j in members:
                        exact.add(g, float(weight[j, g]), deltas[j])
                sums = decode(exact.units)
            else:
                sums = self._robust_rule.sums(round, update.ids, deltas, bad, groups, weight)
        return self._as_asked(replace(update, deltas=deltas, sums=sums), problem)

    def lying(self, answers: Answers, target: Ids) -> Answers:
        """Return the ``answers`` with each Byzantine hospital's answer replaced by the mean answer of the honest
        hospitals in ``target``.
        """
        honest, bad = np.isin(answers.ids, target), np.isin(answers.ids, self.bad)
        if not honest.any():
            return answers
        each = {name: sent.copy() for name, sent in answers.each.items()}
        for sent in each.values():
            sent[bad] = sent[honest].mean(axis=0)
        return replace(answers, each=each)

    def facts(self) -> dict[str, float]:
        """Return numbers on the updates of Byzantine hospitals, by name. Undefined numbers are NaN."""
        of_rule = {} if self._robust_rule is None else self._robust_rule.facts()
        return {"bad_hospitals": float(len(self.bad)), "largest_bad_share": self._tally.largest} | of_rule

    @property
    def memory(self) -> dict[str, Any]:
        """The state that is stored in checkpoints."""
        return {
            "tally": {name: float(value) for name, value in vars(self._tally).items()},
            "centres": {} if self._robust_rule is None else self._robust_rule.memory,
        } | ({} if self._colluders is None else self._colluders.memory)

    def resume(self, memory: dict[str, Any] | None, size: int) -> None:
        """Continue from the state in a checkpoint, with models of ``size`` parameters. Raises ``ValueError`` if the
        state is missing or has impossible values.
        """
        if memory is None:
            raise ValueError("it has no state of attacks and rules, but the run uses them")
        self._tally.resume(memory["tally"])
        if self._robust_rule is not None:
            self._robust_rule.resume(memory["centres"], size)
        if self._colluders is not None:
            self._colluders.resume(memory, size)

    def _server(
        self, round: int, ids: Ids, groups: Sequence[Ids], weight: Floats | None, g: int, updates: Floats
    ) -> Floats:
        """Return the server's aggregate ``[P]`` of the ``updates`` in sum ``g``: their weighted mean, or the robust
        rule's aggregate.
        """
        members = groups[g]
        if self._robust_rule is None:
            return np.average(updates, axis=0, weights=None if weight is None else weight[members, g])
        made, whole = self._robust_rule.made(round, g, updates, ids[members]), np.zeros(updates.shape[1])
        if made is not None:
            whole[self._travels] = made.update
        return whole

    def _as_asked(self, update: Update, problem: LocalProblem) -> Update:
        sent = problem.sent
        if sent is None or not sent.single:
            update = replace(update, deltas=None)
        return replace(update, problem=problem)
