"""Program (11) of CS-RCFL as an integer program for HiGHS.

It proves optima for structured losses and more hospitals than enumeration can handle.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from raysim.strategies.base import Floats, Ids
from raysim.strategies.shared.clustering import by_smallest_member

PROVE = {"mip_rel_gap": 0.0}
"""Options of HiGHS: it runs until the optimum is proven."""


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
