"""Coalitions by local search: an upper bound on program (11) of CS-RCFL, and usually its optimum.

The cost of a coalition S is ``c(S) = (1/|S|) sum over i, j in S of L_ij``, with ``L_ij`` the loss of hospital j's model
at hospital i. It depends on L only through ``L + L'``, with L' the transpose. After the first searches, others start at
the best partition found, with the members of up to three coalitions reassigned at random.
"""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import Floats, Ids
from raysim.strategies.shared.clustering import by_smallest_member

STARTS = 50
"""The number of searches that begin at a random partition or at k-medoids."""
KICKS = 400
"""The number of searches that begin at the best partition so far, changed at random."""
LEAST = 1e-10
"""A change must lower the cost by more than this share of the largest loss, so that rounding cannot cause an endless
loop."""


PAIRS = ["einsum_path", (0, 1), (0, 1)]
"""The order in which ``einsum`` multiplies the matrices. Otherwise ``einsum`` would search for the best order, which
takes as long as the multiplications."""


def coalition_cost(losses: Floats, labels: Ids) -> float:
    """Return the sum over coalitions S of ``(1/|S|) sum over i, j in S of losses[i, j]``; ``labels [N]`` are the
    coalitions."""
    member = np.eye(int(labels.max()) + 1)[labels]
    return float((np.einsum("ik,ij,jk->k", member, losses, member, optimize=PAIRS) / member.sum(axis=0)).sum())


def search_coalitions(
    losses: Floats, coalitions: int, rng: np.random.Generator, *, starts: int = STARTS, kicks: int = KICKS
) -> Ids:
    """Return the coalition of each of N hospitals, ``[N]``, in the best partition found by local searches.

    Half of the ``starts`` searches begin at k-medoids, half at random partitions. Then ``kicks`` searches begin at the
    best partition so far, changed at random. Coalitions are numbered 0, 1, ... by their smallest member; none is empty.
    """
    symmetric = (losses + losses.T) / 2
    best, least = _random_labels(len(losses), coalitions, rng), np.inf
    for start in range(starts + kicks):
        if start >= starts:
            labels = _dealt_again(best, coalitions, rng)
        elif start % 2:
            labels = _medoid_labels(symmetric, coalitions, rng)
        else:
            labels = _random_labels(len(losses), coalitions, rng)
        labels = _descend(symmetric, labels, coalitions)
        cost = coalition_cost(symmetric, labels)
        if cost < least:
            best, least = labels, cost
    return by_smallest_member(best)


def _descend(symmetric: Floats, labels: Ids, coalitions: int) -> Ids:
    """Lower the cost of a partition by moves of one hospital or, if none lowers it, by swaps of two.

    L is ``symmetric``. Coalition k has ``s_k`` hospitals, and ``A_k`` is the sum of ``L_ij`` over i and j in k. With
    ``r_k(i) = sum over j in k, j != i of (L_ij + L_ji)``, moving i from k to m changes the cost by
    ``(A_k - r_k(i) - L_ii)/(s_k - 1) - A_k/s_k + (A_m + r_m(i) + L_ii)/(s_m + 1) - A_m/s_m``.
    """
    diagonal = symmetric.diagonal()
    pair = 2 * symmetric
    np.fill_diagonal(pair, 0.0)
    labels = labels.copy()
    member = np.eye(coalitions)[labels]
    sizes = member.sum(axis=0)
    towards = pair @ member  # r, [N, K]
    totals = (member * towards).sum(axis=0) / 2 + diagonal @ member  # A, [K]
    rows = np.arange(len(labels))
    least = -LEAST * max(float(np.abs(symmetric).max()), 1e-300)
    while True:
        at = towards[rows, labels]
        size = sizes[labels]
        left = np.where(
            size > 1, (totals[labels] - at - diagonal) / np.maximum(size - 1, 1) - totals[labels] / size, np.inf
        )
        change = left[:, None] + (totals + towards + diagonal[:, None]) / (sizes + 1) - totals / sizes
        change[rows, labels] = np.inf
        i, m = divmod(int(change.argmin()), coalitions)
        if change[i, m] < least:
            k = labels[i]
            totals[k] -= towards[i, k] + diagonal[i]
            totals[m] += towards[i, m] + diagonal[i]
            sizes[k] -= 1
            sizes[m] += 1
            towards[:, k] -= pair[:, i]
            towards[:, m] += pair[:, i]
            labels[i] = m
            continue
        # The change of the cost of i's coalition if j replaces i; the transpose is the change of j's coalition.
        one_way = (towards[:, labels].T - pair + diagonal[None, :] - (at + diagonal)[:, None]) / size[:, None]
        swap = one_way + one_way.T
        swap[labels[:, None] == labels] = np.inf
        i, j = divmod(int(swap.argmin()), len(labels))
        if not swap[i, j] < least:
            return labels
        k, m = labels[i], labels[j]
        totals[k] += one_way[i, j] * size[i]
        totals[m] += one_way[j, i] * size[j]
        towards[:, k] += pair[:, j] - pair[:, i]
        towards[:, m] += pair[:, i] - pair[:, j]
        labels[i], labels[j] = m, k


def _random_labels(hospitals: int, coalitions: int, rng: np.random.Generator) -> Ids:
    """Return a random coalition for each hospital; no coalition is empty."""
    labels: Ids = np.concatenate([np.arange(coalitions), rng.integers(0, coalitions, hospitals - coalitions)])
    return rng.permutation(labels)


def _medoid_labels(symmetric: Floats, coalitions: int, rng: np.random.Generator) -> Ids:
    medoids = rng.permutation(len(symmetric))[:coalitions]
    while True:
        labels: Ids = symmetric[:, medoids].argmin(axis=1)
        labels[medoids] = np.arange(coalitions)
        inside = np.where(labels[:, None] == labels, symmetric, 0.0).sum(axis=1)
        # A medoid stays unless another member is strictly more central, so that ties do not alternate for ever.
        central = medoids.copy()
        for k in range(coalitions):
            members = np.flatnonzero(labels == k)
            candidate = members[inside[members].argmin()]
            if inside[candidate] < inside[medoids[k]]:
                central[k] = candidate
        if (central == medoids).all():
            return labels
        if _spread(symmetric, labels, central) >= _spread(symmetric, labels, medoids):
            return labels
        medoids = central


def _spread(symmetric: Floats, labels: Ids, medoids: Ids) -> float:
    return float(symmetric[np.arange(len(labels)), medoids[labels]].sum())


def _dealt_again(labels: Ids, coalitions: int, rng: np.random.Generator) -> Ids:
    """Reassign the members of up to three random coalitions to these coalitions at random."""
    again = rng.permutation(coalitions)[:3]
    members = np.flatnonzero(np.isin(labels, again))
    labels = labels.copy()
    labels[members] = again[_random_labels(len(members), len(again), rng)]
    return labels
