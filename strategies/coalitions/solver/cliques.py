"""Linear inequalities that partitions satisfy, for the bounds on program (11) of CS-RCFL.

A partition is written as a matrix Z: ``Z_ij = 1/|S|`` if i and j are both in S, else 0. For a hospital i and a set T of
others, ``sum over t in T of Z_it - sum over pairs t, u in T of Z_tu <= Z_ii``. If q members of T are in i's coalition
S, the left side is at most ``(q - q (q - 1)/2) / |S|``, and therefore at most ``1/|S| = Z_ii``. In this module T has
two members (triangles) or three (fours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from raysim.strategies.base import Floats, Ids

# By the size of an inequality: the pairs of positions in (i, j, k) or (i, j, k, l) of its Z, and their coefficients.
PATTERNS = {
    3: (((0, 1), (0, 2), (0, 0), (1, 2)), (1.0, 1.0, -1.0, -1.0)),
    4: (((0, 1), (0, 2), (0, 3), (0, 0), (1, 2), (1, 3), (2, 3)), (1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0)),
}


@dataclass(eq=False)
class Cliques:
    """Linear inequalities on the matrix Z of a partition of hospitals.

    Each row of ``at`` has the hospitals of one inequality: i, then two or three others, ascending.
    """

    at: Ids
    multipliers: Floats
    hospitals: int
    steps: Floats = field(init=False)

    def __post_init__(self) -> None:
        pairs, coefficients = PATTERNS[self.at.shape[1]]
        self.coefficients = np.array(coefficients)
        self.flat = np.stack([self.at[:, a] * self.hospitals + self.at[:, b] for a, b in pairs])
        self.steps = np.zeros(len(self.at))

    @staticmethod
    def none(size: int, hospitals: int) -> Cliques:
        """Return an empty set of inequalities with ``size`` hospitals each (3 or 4), for N = ``hospitals``."""
        return Cliques(np.empty((0, size), np.int64), np.empty(0), hospitals)

    def move(self, Z: Floats) -> None:
        """Raise the multipliers of inequalities that ``Z [N, N]`` violates, and lower the others, but not below 0."""
        self.multipliers = np.maximum(0.0, self.multipliers + self.steps * (self.coefficients @ Z.ravel()[self.flat]))

    def term(self) -> Floats:
        """Return the coefficients of Z, summed over inequalities with the multipliers as weights, ``[N, N]``."""
        return self._spread(self.multipliers, self.coefficients)

    def busy(self) -> Floats:
        """Return how many inequalities involve each entry of Z, ``[N, N]``.

        An inequality that involves a pair i, j counts half for ``Z_ij`` and half for ``Z_ji``.
        """
        return self._spread(np.ones(len(self.at)), np.abs(self.coefficients))

    def renewed(self, new: Ids, amounts: Floats, most: int) -> Cliques:
        """Return the inequalities with positive multipliers, and up to ``most`` others from ``new [m, size]``: those
        with the largest violations ``amounts [m]``."""
        code = self.hospitals ** np.arange(self.at.shape[1])
        positive = self.multipliers > 0
        old = self.at[positive]
        fresh = ~np.isin(new @ code, old @ code)
        added = new[fresh][np.argsort(-amounts[fresh], kind="stable")[:most]]
        multipliers = np.concatenate([self.multipliers[positive], np.zeros(len(added))])
        return Cliques(np.concatenate([old, added]), multipliers, self.hospitals)

    def _spread(self, weights: Floats, coefficients: Floats) -> Floats:
        halves = np.outer(coefficients / 2, weights).ravel()
        upper = np.bincount(self.flat.ravel(), halves, self.hospitals**2).astype(np.float64, copy=False)
        upper = upper.reshape(self.hospitals, self.hospitals)
        return upper + upper.T


def pace(all_cliques: Sequence[Cliques], penalty: float) -> None:
    """Set the step sizes of the multipliers so that the search (module ``bound``) converges."""
    busy = np.sum([cliques.busy() for cliques in all_cliques], axis=0).ravel()
    for cliques in all_cliques:
        cliques.steps = penalty / (len(cliques.coefficients) * busy[cliques.flat].max(axis=0, initial=1.0))


def violated_triangles(Z: Floats, least: float, most: int) -> tuple[Ids, Floats]:
    """Return the hospitals ``(i, j, k)`` of violated triangle inequalities, ``[m, 3]``, and the amounts by which
    ``Z [N, N]`` violates them, ``[m]``.

    The amounts exceed ``least``. At most ``most`` inequalities are returned for each i.
    """
    violated, amounts = [np.empty((0, 3), np.int64)], [np.empty(0)]
    for i in range(len(Z)):
        amount = _triangles_of(Z, i)
        j, k = np.nonzero(amount > least)
        by = amount[j, k]
        if len(by) > most:
            top = np.argpartition(-by, most)[:most]
            j, k, by = j[top], k[top], by[top]
        violated.append(np.column_stack([np.full(len(j), i), j, k]))
        amounts.append(by)
    return np.concatenate(violated), np.concatenate(amounts)


def violated_fours(Z: Floats, least: float, most: int) -> tuple[Ids, Floats]:
    """Return the hospitals ``(i, j, k, l)`` of violated inequalities of four hospitals, ``[m, 4]``, and the amounts by
    which ``Z [N, N]`` violates them, ``[m]``.

    The amounts exceed ``least``. The search is not exhaustive. For each i, it starts from the ``most`` triangle
    inequalities that are most violated or closest to a violation, and adds the best fourth hospital to each.
    """
    n = len(Z)
    violated, amounts = [np.empty((0, 4), np.int64)], [np.empty(0)]
    for i in range(n):
        amount = _triangles_of(Z, i)
        pairs = np.argpartition(-amount, most, axis=None)[:most] if most < n * n else np.arange(n * n)
        j, k = np.divmod(pairs[np.isfinite(amount.ravel()[pairs])], n)
        rows = np.arange(len(j))
        extended = amount[j, k][:, None] + Z[i] - Z[j] - Z[k]
        extended[:, i] = extended[rows, j] = extended[rows, k] = -np.inf
        best = extended.argmax(axis=1) if len(rows) else rows
        by = extended[rows, best]
        three, first = np.unique(np.sort(np.column_stack([j, k, best])[by > least], axis=1), axis=0, return_index=True)
        violated.append(np.column_stack([np.full(len(three), i), three]))
        amounts.append(by[by > least][first])
    return np.concatenate(violated), np.concatenate(amounts)


def _triangles_of(Z: Floats, i: int) -> Floats:
    """Return ``Z_ij + Z_ik - Z_ii - Z_jk`` for all j < k other than i, ``[N, N]``; minus infinity elsewhere."""
    amount: Floats = Z[i][:, None] + Z[i][None, :] - Z[i, i] - Z
    amount[np.tri(len(Z), dtype=np.bool_)] = -np.inf
    amount[i] = -np.inf
    amount[:, i] = -np.inf
    return amount
