"""Robust aggregation: a named rule, and the pre-aggregation before it, instead of the server's average."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from raysim.robust import centres, coordinates, preaggregation, selecting
from raysim.robust.rule import Aggregate, Floats, Ids, Rule


@dataclass(frozen=True)
class Aggregation:
    """A robust rule and its parameters."""

    name: str
    """One of :data:`RULES`."""
    assumed: float = 0.0
    """The assumed share of wrong updates: ``f = floor(assumed * m)`` of ``m``."""
    before: str = "none"
    """Pre-aggregation: ``none``, ``nnm`` or ``bucketing``."""
    radius: float | None = None
    """Radius of centred clipping; None: the median of the distances."""
    passes: int = 1
    """Number of passes of centred clipping."""
    bound: float = 1.0
    """The largest 2-norm under the norm bound."""
    nu: float = 1e-6
    """Smoothing distance of the geometric median."""
    kept: int | None = None
    """Number of updates that Multi-Krum averages, all if there are fewer; None: ``m - f``."""

    def count(self, m: int) -> int:
        """Return the assumed number of wrong updates among ``m``."""
        # The addend undoes rounding: 0.29 of 100 comes to 28.999999999999996 in float64, and is 29.
        return int(np.floor(self.assumed * m + 1e-9))

    def aggregate(
        self,
        updates: Floats,
        *,
        centre: Floats | None = None,
        root: Floats | None = None,
        order: Ids | None = None,
        weights: Floats | None = None,
    ) -> Aggregate:
        """Return the aggregate of ``updates [m, P]``.

        ``centre [P]``: the start of centred clipping; None: 0. ``root [P]``: the server's own update, for FLTrust.
        ``order [m]``: the order in which updates fill buckets; None: as given. ``weights [m]``: for the rules in
        :data:`raysim.robust.breakdown.WEIGHTED`, without pre-aggregation. With too few updates for the rule's formula
        (a small cluster), ``f`` is lowered until it can be computed. Raises ``ValueError`` without updates, and for
        FLTrust without ``root``.
        """
        if not len(updates):
            raise ValueError("there is no update to aggregate")
        f, means = self.count(len(updates)), None
        if self.before == "nnm":
            means = preaggregation.nearest_neighbours(updates, f)
        elif self.before == "bucketing":
            given = np.arange(len(updates)) if order is None else order
            means = preaggregation.buckets(given, preaggregation.bucket_size(len(updates), f))
        rows = updates if means is None else preaggregation.mixed(means, updates)
        made = self._rule(centre, root, weights)(rows, self._computable(len(rows), f))
        if means is None or made.admitted is None:
            return made
        return replace(made, admitted=made.admitted @ means)

    def _computable(self, m: int, f: int) -> int:
        """Return the largest count up to ``f`` for which the rule's formula is defined."""
        if self.name == "bulyan":
            return max(0, min(f, (m - 3) // 4))
        return min(f, (m - 1) // 2) if self.name == "trimmed_mean" else f

    def _rule(self, centre: Floats | None, root: Floats | None, weights: Floats | None) -> Rule:
        def clipped(updates: Floats, f: int) -> Aggregate:
            begin = np.zeros(updates.shape[1]) if centre is None else centre
            return centres.centred_clipping(updates, begin, self.radius, self.passes)

        def trusted(updates: Floats, f: int) -> Aggregate:
            if root is None:
                raise ValueError("FLTrust needs an update of the server's own")
            return selecting.fltrust(updates, root)

        def several(updates: Floats, f: int) -> Aggregate:
            return selecting.multi_krum(updates, f, None if self.kept is None else min(self.kept, len(updates)))

        rules: dict[str, Rule] = {
            "mean": lambda updates, f: _mean(updates),
            "median": lambda updates, f: coordinates.median(updates, weights),
            "trimmed_mean": partial(coordinates.trimmed_mean, weights=weights),
            "krum": selecting.krum,
            "multi_krum": several,
            "bulyan": lambda updates, f: selecting.bulyan(updates, f) if len(updates) >= 3 else _mean(updates),
            "geometric_median": lambda updates, f: centres.geometric_median(updates, weights, nu=self.nu),
            "centred_clipping": clipped,
            "norm_bound": lambda updates, f: centres.norm_bound(updates, self.bound),
            "fltrust": trusted,
        }
        return rules[self.name]


def _mean(updates: Floats) -> Aggregate:
    return centres.norm_bound(updates, np.inf)
