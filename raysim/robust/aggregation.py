"""Robust aggregation: a named rule that replaces the server's average, with or without pre-aggregation.

Pre-aggregation replaces the ``m`` updates by weighted means before the rule is applied. It averages each update with
its nearest neighbours (NNM), or the updates within buckets.

Y. Allouah, S. Farhadkhani, R. Guerraoui, N. Gupta, R. Pinot, J. Stephan: *Fixing by Mixing: A Recipe for Optimal
Byzantine ML under Heterogeneity*, AISTATS 2023 (NNM). S. P. Karimireddy, L. He, M. Jaggi: *Byzantine-Robust Learning on
Heterogeneous Datasets via Bucketing*, ICLR 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from raysim.core.arrays import Floats, Ids
from raysim.robust import centres, selecting
from raysim.robust.rule import Aggregate, Rule, squared_distances


@dataclass(frozen=True)
class Aggregation:
    """A robust rule and its parameters."""

    name: str
    """The name of the robust rule, a key of :data:`raysim.robust.breakdown.NEEDS`."""
    assumed: float = 0.0
    """The assumed share of wrong updates. Among ``m`` updates, ``f = floor(assumed * m)`` are assumed to be wrong."""
    before: str = "none"
    """The pre-aggregation: ``none``, ``nnm`` or ``bucketing``."""
    radius: float | None = None
    """For ``centred_clipping``: the norm to which differences from the centre are clipped; None means their median
    norm."""
    passes: int = 1
    """For ``centred_clipping``: the number of iterations."""
    bound: float = 1.0
    """For ``norm_bound``: the 2-norm to which each update is clipped."""
    nu: float = 1e-6
    """For ``geometric_median``: an update closer than ``nu`` to the current point is weighted as if its distance were
    ``nu``."""
    kept: int | None = None
    """For ``multi_krum``: the number of updates that are averaged (at most all ``m``); None means ``m - f``."""

    def count(self, m: int) -> int:
        """Return how many of ``m`` updates are assumed to be wrong."""
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

        - ``centre [P]``: where centred clipping starts; None means 0.
        - ``root [P]``: the update that the server trusts, for FLTrust.
        - ``order [m]``: the order in which updates fill buckets; None means the order of ``updates``.
        - ``weights [m]``: the updates' weights. They are used only without pre-aggregation, and only by the rules in
          :data:`raysim.robust.breakdown.WEIGHTED`.

        If there are too few updates for the rule's formula, the number ``f`` of updates assumed to be wrong is lowered
        until the formula is defined. Bulyan of fewer than three updates is their mean. Raises ``ValueError`` if there
        are no updates, and for FLTrust without ``root``.
        """
        if not len(updates):
            raise ValueError("there is no update to aggregate")
        f, means = self.count(len(updates)), None
        if self.before == "nnm":
            means = nearest_neighbours(updates, f)
        elif self.before == "bucketing":
            given = np.arange(len(updates)) if order is None else order
            means = buckets(given, bucket_size(len(updates), f))
        rows = updates if means is None else mixed(means, updates)
        made = self._rule(centre, root, weights)(rows, self._computable(len(rows), f))
        if means is None or made.admitted is None:
            return made
        return replace(made, admitted=made.admitted @ means)

    def _computable(self, m: int, f: int) -> int:
        if self.name == "bulyan":
            return max(0, min(f, (m - 3) // 4))
        return min(f, (m - 1) // 2) if self.name == "trimmed_mean" else f

    def _rule(self, centre: Floats | None, root: Floats | None, weights: Floats | None) -> Rule:
        def clipped(updates: Floats, f: int) -> Aggregate:
            begin = np.zeros(updates.shape[1]) if centre is None else centre
            return centres.centred_clipping(updates, begin, self.radius, self.passes)

        def trusted(updates: Floats, f: int) -> Aggregate:
            if root is None:
                raise ValueError("root: is None, but FLTrust needs the update of a trusted hospital; give root")
            return selecting.fltrust(updates, root)

        def several(updates: Floats, f: int) -> Aggregate:
            return selecting.multi_krum(updates, f, None if self.kept is None else min(self.kept, len(updates)))

        rules: dict[str, Rule] = {
            "mean": lambda updates, f: _mean(updates),
            "median": lambda updates, f: centres.median(updates, weights),
            "trimmed_mean": partial(centres.trimmed_mean, weights=weights),
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


def nearest_neighbours(updates: Floats, f: int) -> Floats:
    """Return the weights ``[m, m]`` of nearest-neighbour mixing (NNM): each of the ``m`` updates is replaced by the
    mean of the ``m - f`` updates nearest to it, itself included.
    """
    m = len(updates)
    distances = squared_distances(updates)
    np.fill_diagonal(distances, -1.0)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : max(1, m - f)]
    means = np.zeros((m, m))
    np.put_along_axis(means, nearest, 1.0 / nearest.shape[1], axis=1)
    return means


def bucket_size(m: int, f: int) -> int:
    """Return the size of buckets of ``m`` updates, ``f`` of which are wrong.

    It is ``max(1, floor(m / (2 * f)))``, or 1 if ``f`` is 0. If ``m`` is a multiple of ``2 * f``, there are only
    ``2 * f`` buckets, which are too few for most rules.
    """
    return max(1, m // (2 * f)) if f else 1


def buckets(order: Ids, size: int) -> Floats:
    """Return weights that average the updates within each bucket, one row for each bucket. A bucket has ``size``
    consecutive updates in the order ``order [m]``; the last bucket may have fewer.
    """
    m = len(order)
    means = np.zeros((-(-m // size), m))
    for bucket, first in enumerate(range(0, m, size)):
        members = order[first : first + size]
        means[bucket, members] = 1.0 / len(members)
    return means


def mixed(means: Floats, updates: Floats) -> Floats:
    """Return ``k`` weighted means of ``updates [m, P]``, as the rows of ``[k, P]``. Row ``i`` of
    ``means [k, m]`` has the weights of mean ``i``.
    """
    first = updates[0]
    made: Floats = means @ (updates - first)
    made += first
    return made
