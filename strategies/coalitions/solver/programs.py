"""Program (11) of CS-RCFL as linear and integer programs for HiGHS: independent computations of the same figures.

:func:`size_indexed` proves optima for structured losses and more hospitals than enumeration can handle.
:func:`lp_bound` and :func:`set_partitioning` check the faster :mod:`raysim.strategies.coalitions.solver.bound` and
:mod:`raysim.strategies.coalitions.solver.enumeration`.
"""

from __future__ import annotations

import time
from itertools import combinations
from typing import Any

import numpy as np

from raysim.strategies.base import Floats, Ids
from raysim.strategies.coalitions.solver.cliques import violated_triangles
from raysim.strategies.shared.clustering import by_smallest_member

VIOLATED = 1e-6
"""The largest violation of an inequality that is ignored."""
PROVE = {"mip_rel_gap": 0.0}
"""Options of HiGHS: it runs until the optimum is proven."""
RISEN = 1e-6
"""The rise of a bound, relative to the largest loss, after which slack inequalities are dropped."""
CUTS = 200
"""Triangle inequalities added at once, per hospital: few rounds of larger programs are faster than many rounds."""


def lp_bound(losses: Floats, coalitions: int, *, seconds: float = np.inf) -> float:
    """Return the minimum of ``<L, Z>`` over a relaxation of partitions, a lower bound; the best found in ``seconds``.

    In a partition, Z_ij is 1/|S| where i and j are both in S, else 0. The relaxation has symmetric Z with
    ``sum_j Z_ij = 1``, ``trace Z = K``, ``0 <= Z_ij <= Z_ii`` and ``Z_ij + Z_ik <= Z_ii + Z_jk``. Inequalities of the
    last kind are added when they are violated. Slack inequalities are dropped when the bound has risen, and only then:
    if many Z cost the same, programs without them would repeat in turns. The search ends: no bound is above the cost of
    a partition, hence the bound rises finitely often. Between two rises each program has one inequality more, out of
    ``N (N - 1)(N - 2)/2``.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    deadline = time.perf_counter() + seconds
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
        left = deadline - time.perf_counter()
        if left <= 0:
            return bound
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
            options={"time_limit": left} if np.isfinite(left) else {},
        )
        if solved.status != 0:
            return bound
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


def size_indexed(losses: Floats, coalitions: int, *, seconds: float = np.inf) -> tuple[Ids | None, float]:
    """Return the best labels ``[N]`` found in ``seconds``, or None, and a lower bound. Labels at that cost are optimal.

    Variables are indexed by the size s of a coalition, which makes its fraction linear without numbered coalitions:
    ``b_is`` (i is in a coalition of size s), ``e_ijs`` (i < j are together in a coalition of size s), whole ``h_s``
    (the number of coalitions of size s). Then ``sum_s b_is = 1``, ``sum_i b_is = s h_s``, ``sum_s h_s = K``,
    ``sum_j e_ijs = (s - 1) b_is``, ``e_ijs <= b_is`` and ``b_js``, and with ``y_ij = sum_s e_ijs`` the triangles
    ``y_ij + y_jk - y_ik <= 1``.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n = len(losses)
    sizes = np.arange(1, n - coalitions + 2)
    m = len(sizes)
    first, second = np.triu_indices(n, 1)
    pairs = len(first)
    pair = np.empty((n, n), np.int64)
    pair[first, second] = pair[second, first] = np.arange(pairs)
    # Columns: b [N, m], e [pairs, m], h [m].
    b = np.arange(n * m).reshape(n, m)
    e = n * m + np.arange(pairs * m).reshape(pairs, m)
    h = n * m + pairs * m + np.arange(m)
    together = losses[first, second] + losses[second, first]
    cost = np.concatenate(
        [np.outer(losses.diagonal(), 1 / sizes).ravel(), np.outer(together, 1 / sizes).ravel(), 0 * h]
    )

    others = np.array([[pair[i, j] for j in range(n) if j != i] for i in range(n)]).reshape(n, n - 1)
    equal = [
        _rows([(b, 1.0)], np.ones(n)),
        _rows([(b.T, 1.0), (h[:, None], -sizes[:, None])], np.zeros(m)),
        _rows([(h[None, :], 1.0)], np.array([float(coalitions)])),
        _rows(
            [
                (e[others].transpose(0, 2, 1).reshape(n * m, n - 1), 1.0),
                (b.reshape(-1, 1), -np.tile(sizes - 1, n)[:, None]),
            ],
            np.zeros(n * m),
        ),
    ]
    low = [
        _rows([(e.reshape(-1, 1), 1.0), (b[end].reshape(-1, 1), -1.0)], np.zeros(pairs * m)) for end in (first, second)
    ]
    if n > 2:
        i, j, k = np.array(list(combinations(range(n), 3))).T
        ij, jk, ik = e[pair[i, j]], e[pair[j, k]], e[pair[i, k]]
        for minus, plus in ((ik, (ij, jk)), (ij, (jk, ik)), (jk, (ij, ik))):
            low.append(_rows([(plus[0], 1.0), (plus[1], 1.0), (minus, -1.0)], np.ones(len(i))))
    constraints = [LinearConstraint(_matrix(block, len(cost)), block[3], block[3]) for block in equal]
    constraints += [LinearConstraint(_matrix(block, len(cost)), -np.inf, block[3]) for block in low]
    solved = milp(
        cost,
        integrality=1,
        bounds=Bounds(0, np.r_[np.ones(n * m + pairs * m), np.full(m, float(coalitions))]),
        constraints=constraints,
        options=PROVE | ({"time_limit": seconds} if np.isfinite(seconds) else {}),
    )
    bound = -np.inf if solved.mip_dual_bound is None else float(solved.mip_dual_bound)
    if solved.x is None:
        return None, bound
    y = np.zeros((n, n))
    y[first, second] = y[second, first] = solved.x[e].sum(axis=1)
    np.fill_diagonal(y, 1.0)
    return by_smallest_member((y > 0.5).argmax(axis=1)), bound


Block = tuple[Ids, Ids, Floats, Floats]


def _rows(terms: list[tuple[Ids, Any]], right: Floats) -> Block:
    """Return constraint rows from terms ``(columns [R, c], their coefficients)``: row, column, coefficient,
    right side."""
    rows, columns, values = [], [], []
    for at, coefficient in terms:
        rows.append(np.repeat(np.arange(len(at)), at.shape[1]))
        columns.append(at.ravel())
        values.append(np.broadcast_to(coefficient, at.shape).astype(np.float64).ravel())
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values), right


def _matrix(block: Block, columns: int) -> Any:
    from scipy.sparse import csr_array

    row, column, value, right = block
    return csr_array((value, (row, column)), shape=(len(right), columns))
