"""The robust rule, which replaces the average in each weighted sum of updates, and counts of Byzantine updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raysim.config.sections.aggregation import AggregationSection
from raysim.core.errors import ConfigError
from raysim.core.plain_checks import check_vectors, whole_number
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.robust.aggregation import Aggregation
from raysim.robust.breakdown import kappa
from raysim.robust.rule import Aggregate
from raysim.strategies.base import Floats, Ids, LocalProblem, Mask


@dataclass
class Tally:
    """Counts of Byzantine and honest hospitals' updates over the rounds."""

    rejected: int = 0
    """The number of updates to which the robust rule gave no weight, counted only for rules that select updates."""
    rejected_bad: int = 0
    """The number of Byzantine hospitals' updates among those counted in ``rejected``."""
    bad: int = 0
    """The number of Byzantine hospitals' updates, counted only for rules that select updates."""
    admitted: float = 0.0
    """The share of an aggregate's weight that Byzantine updates have, added up over aggregates with known weights."""
    sums: int = 0
    """The number of aggregates whose shares were added up in ``admitted``."""
    largest: float = 0.0
    """The largest share of Byzantine hospitals in one sum, with or without a robust rule."""
    heaviest: float = 0.0
    """The largest share of one hospital in the total weight of a sum; 0 if weights are not capped."""
    kappa: float = 0.0
    """The largest coefficient of robustness (kappa) of the rule in any sum; infinite if it is unknown for a sum, and 0
    if no update is assumed to be wrong."""

    def resume(self, memory: dict[str, Any]) -> None:
        """Continue from the counts in a checkpoint. Raises ``ValueError`` for impossible counts."""
        shares = ("admitted", "largest", "heaviest", "kappa")
        counts = {name: whole_number(value, name, 2**53) for name, value in memory.items() if name not in shares}
        largest, admitted = float(memory["largest"]), float(memory["admitted"])
        if not (0 <= largest <= 1 and 0 <= admitted <= counts["sums"] * (1 + 1e-9)):
            raise ValueError(
                f"its largest share of Byzantine hospitals is {largest:g}, which must be 0 to 1, and its shares of "
                f"Byzantine updates in {counts['sums']} sums add up to {admitted:g}, which must be 0 to "
                f"{counts['sums']}"
            )
        heaviest, coefficient = float(memory["heaviest"]), float(memory["kappa"])
        if not (0 <= heaviest <= 1 + 1e-9 and coefficient >= 0):
            raise ValueError(
                f"its largest weight is {heaviest:g}, and its coefficient of robustness {coefficient:g}; "
                "the weight must be in 0 to 1, and the coefficient at least 0"
            )
        resumed = Tally(**counts, admitted=admitted, largest=largest, heaviest=heaviest, kappa=coefficient)
        vars(self).update(vars(resumed))


class RobustRule:
    """The robust aggregation rule of one job on ``federation``. ``travels [P]`` marks the parameters that hospitals
    send; None means all.
    """

    def __init__(
        self, section: AggregationSection, federation: Federation, seed: int, travels: Mask | None, tally: Tally
    ) -> None:
        self._section, self._seed, self._travels, self._tally = section, seed, travels, tally
        self._rule = section.make(Aggregation)
        self._sizes = federation.sizes("train")
        self._root = None if section.root is None else federation.hospitals.index(section.root)
        self._centres: dict[int, Floats] = {}

    def made(self, round: int, g: int, updates: Floats, ids: Ids) -> Aggregate | None:
        """Return the rule's aggregate of the ``updates [m, P]`` of the hospitals ``ids [m]`` in the weighted sum with
        index ``g``. None if the rule needs a trusted hospital whose update is not among them.
        """
        order = stream(self._seed, "buckets", round, g).permutation(len(updates))
        travelling = updates if self._travels is None else updates[:, self._travels]
        root = None
        if self._root is not None:
            held = np.flatnonzero(ids == self._root)
            if not len(held):
                return None  # nothing to trust
            root = travelling[held[0]]
        centre, weights = self._centres.get(g), self._capped(ids)
        return self._rule.aggregate(travelling, centre=centre, root=root, order=order, weights=weights)

    def _capped(self, ids: Ids) -> Floats | None:
        """Return the weights that the rule gives to updates of the hospitals ``ids [m]``; None means equal weights."""
        if self._section.weights != "capped":
            return None
        return np.minimum(self._sizes[ids], self._section.cap).astype(np.float64)

    def sums(self, round: int, ids: Ids, deltas: Floats, bad: Mask, groups: Sequence[Ids], weight: Floats) -> Floats:
        """Return the ``G`` weighted sums of updates, ``[G, P]``: each is its total weight times the robust rule's
        aggregate.

        A sum is 0 if the rule needs a trusted hospital whose update is not in the sum. ``groups`` has the rows of
        ``deltas [m, P]`` in each sum. ``bad [m]`` marks updates of Byzantine hospitals, and ``weight [m, G]`` has the
        weight of each update in each sum.
        """
        sums = np.zeros((weight.shape[1], deltas.shape[1]))
        travels = np.ones(deltas.shape[1], dtype=np.bool_) if self._travels is None else self._travels
        for g, members in enumerate(groups):
            made = self.made(round, g, deltas[members], ids[members]) if len(members) else None
            if made is None:
                continue  # the sum stays 0
            capped = self._capped(ids[members])
            if capped is not None:
                self._tally.heaviest = max(self._tally.heaviest, float(capped.max() / capped.sum()))
            m, assumed = len(members), self._rule.count(len(members))
            if assumed:
                # The coefficients are for single updates with equal weights, or for means of nearest neighbours.
                known = capped is None and self._section.before != "bucketing"
                bound = kappa(self._section.name, m, assumed, self._section.before == "nnm") if known else np.inf
                self._tally.kappa = max(self._tally.kappa, bound)
            if self._section.name == "centred_clipping":
                self._centres[g] = made.update
            sums[g, travels] = float(weight[members, g].sum()) * made.update
            self._count(made, bad[members])
        return sums

    def facts(self) -> dict[str, float]:
        """Return numbers on how the rule treated updates of Byzantine hospitals, by name. Undefined numbers are NaN."""
        tally, nan = self._tally, float("nan")
        return {
            "rejecting_precision": tally.rejected_bad / tally.rejected if tally.rejected else nan,
            "rejecting_recall": tally.rejected_bad / tally.bad if tally.bad else nan,
            "bad_share_admitted": tally.admitted / tally.sums if tally.sums else nan,
            "largest_weight": tally.heaviest if tally.heaviest else nan,
            "kappa": tally.kappa if 0 < tally.kappa < np.inf else nan,
        }

    @property
    def memory(self) -> dict[str, Any]:
        """The latest aggregate of each weighted sum, for rules that start from it in the next round."""
        return {str(g): centre for g, centre in self._centres.items()}

    def resume(self, memory: dict[str, Any], size: int) -> None:
        """Continue from the state in a checkpoint, with models of ``size`` parameters. Raises ``ValueError`` for
        impossible values.
        """
        self._centres = {int(g): centre for g, centre in memory.items()}
        travels = size if self._travels is None else int(self._travels.sum())
        check_vectors(self._centres.values(), travels, "centre of updates")

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


def check_ruled(problem: LocalProblem, name: str) -> None:
    """Raise ``ConfigError`` if no robust rule can replace the averages of the strategy called ``name``."""
    sent = problem.sent
    if sent is None:
        return
    if sent.what == "parameters":
        raise ConfigError(
            f"aggregation.name: strategy '{name}' sends whole models, not updates; choose another strategy "
            "or leave aggregation out"
        )
    if sent.weight is None:
        raise ConfigError(
            f"aggregation.name: strategy '{name}' averages single updates by its own rule, which no robust rule can "
            "replace; choose another strategy or leave aggregation out"
        )
    if problem.extra_numbers or problem.spread:
        extras = ", ".join(problem.extras) or "zeros"
        raise ConfigError(
            f"aggregation.name: strategy '{name}' also averages further numbers ({extras}), which no robust rule "
            "protects; choose another strategy or leave aggregation out"
        )
