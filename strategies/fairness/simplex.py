"""The nearest point of the probability simplex."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import Floats


def project_to_simplex(point: Floats) -> Floats:
    """The point of ``{x : x >= 0, sum x = 1}`` with the least distance to ``point [n]``, n >= 1.

    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra: *Efficient Projections onto the l1-Ball for Learning in High
    Dimensions*, ICML 2008, Figure 1: with u sorted descending, k is the largest for which
    ``u_k + (1 - sum_{j<=k} u_j) / k > 0``.
    """
    u = np.sort(point)[::-1]
    shift = (1.0 - np.cumsum(u)) / np.arange(1, len(u) + 1)
    k = np.flatnonzero(u + shift > 0)[-1]
    projected: Floats = np.maximum(point + shift[k], 0.0)
    return projected
