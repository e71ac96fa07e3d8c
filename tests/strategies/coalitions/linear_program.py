"""A bound of CS-RCFL's program by linear programs for HiGHS, against which the spectral bound is checked."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import Floats
from raysim.strategies.coalitions.solver.cliques import violated_triangles

VIOLATED = 1e-6
"""The largest violation of an inequality that is ignored."""
RISEN = 1e-6
"""The rise of a bound, relative to the largest loss, after which slack inequalities are dropped."""
CUTS = 200
"""Triangle inequalities added at once, per hospital."""


def lp_bound(losses: Floats, coalitions: int) -> float:
    """Return the minimum of ``<L, Z>`` over a relaxation of partitions, a lower bound.

    In a partition, Z_ij is 1/|S| where i and j are both in S, else 0. The relaxation has symmetric Z with
    ``sum_j Z_ij = 1``, ``trace Z = K``, ``0 <= Z_ij <= Z_ii`` and ``Z_ij + Z_ik <= Z_ii + Z_jk``. Inequalities of the
    last kind are added when they are violated. Slack inequalities are dropped when the bound has risen, and only then:
    if many Z cost the same, programs without them would repeat in turns. The search ends: no bound is above the cost of
    a partition, hence the bound rises finitely often. Between two rises each program has one inequality more, out of
    ``N (N - 1)(N - 2)/2``.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n = len(losses)
    first, second = np.triu_indices(n)
    column = np.empty((n, n), np.int64)
    column[first, second] = column[second, first] = np.arange(len(first))
    cost = np.where(first == second, losses[first, second], losses[first, second] + losses[second, first])
    sums = np.concatenate([np.repeat(np.arange(n), n), np.full(n, n)])
    equal = csr_array((np.ones(n * n + n), (sums, np.r_[column.ravel(), column.diagonal()])), shape=(n + 1, len(first)))
    right = np.r_[np.ones(n), float(coalitions)]
    cuts = np.empty((0, 3), np.int64)
    code = n ** np.arange(3)
    bound = -np.inf
    while True:
        i, j, k = cuts.T
        rows = np.arange(len(cuts))
        entries = (np.tile(rows, 4), np.concatenate([column[i, j], column[i, k], column[i, i], column[j, k]]))
        below = csr_array((np.repeat([1.0, 1.0, -1.0, -1.0], len(cuts)), entries), shape=(len(cuts), len(first)))
        # Interior points: each round is a new program, and at 200 hospitals they are five times faster than simplex.
        solved = linprog(
            cost,
            below if len(cuts) else None,
            np.zeros(len(cuts)) if len(cuts) else None,
            equal,
            right,
            bounds=(0, 1),
            method="highs-ipm",
        )
        assert solved.status == 0
        # Z_ij <= Z_ii is the sum over k of the triangles with i and j, so only triangles are added.
        new, amounts = violated_triangles(solved.x[column], VIOLATED, CUTS)
        # An inequality that is already included is violated only by rounding; solving again does not help.
        added = ~np.isin(new @ code, cuts @ code)
        new, amounts = new[added], amounts[added]
        value = float(solved.fun)
        if len(cuts) and value > bound + RISEN * np.abs(losses).max():
            cuts = cuts[solved.ineqlin.residual < 1e-7]
        bound = max(bound, value)
        if not len(new):
            return bound
        cuts = np.concatenate([cuts, new[np.argsort(-amounts, kind="stable")[: CUTS * n]]])
