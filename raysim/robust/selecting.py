"""Rules that choose updates: Krum, Multi-Krum and Bulyan by distances between updates, FLTrust by one trusted
update.

P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer: *Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent*, NeurIPS 2017 (Krum). E. M. El Mhamdi, R. Guerraoui, S. Rouault: *The Hidden Vulnerability of Distributed
Learning in Byzantium*, ICML 2018 (Bulyan). X. Cao, M. Fang, J. Liu, N. Z. Gong: *FLTrust: Byzantine-robust Federated
Learning via Trust Bootstrapping*, NDSS 2021.
"""

from __future__ import annotations

import numpy as np

from raysim.core.arrays import Floats, Ids
from raysim.robust.rule import Aggregate, by_columns, squared_distances, uniform


def krum_scores(distances: Floats, f: int) -> Floats:
    """Return the Krum score of each update, ``[m]``: the sum of its squared distances to the ``max(1, m - f - 2)``
    nearest other updates.

    ``distances [m, m]`` are the squared distances between updates, of which ``f`` are assumed to be wrong.
    """
    m = len(distances)
    others = np.sort(distances + np.diag(np.full(m, np.inf)), axis=1)
    return np.asarray(others[:, : min(max(1, m - f - 2), m - 1)].sum(axis=1))


def krum(updates: Floats, f: int) -> Aggregate:
    """Return the update with the smallest Krum score, assuming ``f`` wrong updates."""
    return _mean_of(updates, np.array([np.argmin(krum_scores(squared_distances(updates), f))]))


def multi_krum(updates: Floats, f: int, kept: int | None = None) -> Aggregate:
    """Return the mean of the updates with the smallest Krum scores. ``kept`` is the number of these updates; None means
    ``m - f`` of ``m`` updates. Raises ``ValueError`` unless ``kept`` is between 1 and ``m``.
    """
    m = len(updates)
    count = max(1, m - f) if kept is None else kept
    if not 1 <= count <= m:
        raise ValueError(f"kept: {count} is not from 1 to {m}, the number of updates")
    scores = krum_scores(squared_distances(updates), f)
    return _mean_of(updates, np.sort(np.argsort(scores, kind="stable")[:count]))


def bulyan(updates: Floats, f: int) -> Aggregate:
    """Return Bulyan's aggregate of ``m`` updates, of which ``f`` are assumed to be wrong.

    Bulyan chooses ``m - 2f`` updates one after the other, each by Krum among the remaining ones. In each coordinate it
    then averages the ``m - 4f`` chosen values nearest to their median. Raises ``ValueError`` if ``m < 4f + 3``.
    """
    chosen = bulyan_selection(updates, f)
    selected = updates[chosen]
    counts = np.zeros(len(chosen), np.int64)

    def mean_of_nearest(part: Floats) -> Floats:
        nearest = np.argsort(np.abs(part - np.median(part, axis=0)), axis=0, kind="stable")[: len(chosen) - 2 * f]
        counts[:] += np.bincount(nearest.ravel(), minlength=len(chosen))
        return uniform(np.take_along_axis(part, nearest, axis=0))

    made, admitted = by_columns(mean_of_nearest, selected), np.zeros(len(updates))
    admitted[chosen] = counts / counts.sum()
    return Aggregate(made, admitted, selects=True)


def bulyan_selection(updates: Floats, f: int) -> Ids:
    """Return the indices of the ``m - 2f`` updates that Bulyan chooses, in the order in which they are chosen."""
    m = len(updates)
    if m < 4 * f + 3:
        raise ValueError(f"{m} updates are fewer than the {4 * f + 3} that Bulyan needs for {f} wrong ones")
    distances, remaining, chosen = squared_distances(updates), np.arange(m), []
    for _ in range(m - 2 * f):
        scores = krum_scores(distances[np.ix_(remaining, remaining)], f)
        winner = int(np.argmin(scores))
        chosen.append(int(remaining[winner]))
        remaining = np.delete(remaining, winner)
    return np.array(chosen, dtype=np.int64)


def _mean_of(updates: Floats, chosen: Ids) -> Aggregate:
    admitted = np.zeros(len(updates))
    admitted[chosen] = 1.0 / len(chosen)
    return Aggregate(uniform(updates[chosen]), admitted, selects=True)


def trust_scores(updates: Floats, root: Floats) -> Floats:
    """Return FLTrust's trust score of each update: its cosine with ``root [P]``, or 0 if the cosine is negative or a
    norm is 0.
    """
    lengths = np.linalg.norm(updates, axis=1) * np.linalg.norm(root)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.where(lengths > 0, updates @ root / lengths, 0.0)
    return np.maximum(cosines, 0.0)


def fltrust(updates: Floats, root: Floats) -> Aggregate:
    """Scale each update to the norm of ``root [P]``. Return the mean of the scaled updates, weighted by
    :func:`trust_scores`. The result is 0 if all scores are 0.

    In raysim the root is a participant's update, so it is also one of ``updates``, with score 1. In the paper it is the
    server's own update, which serves only as a reference.
    """
    trust = trust_scores(updates, root)
    if not trust.any():
        return Aggregate(np.zeros(updates.shape[1]), np.zeros(len(updates)), selects=True)
    norms = np.linalg.norm(updates, axis=1)
    shares = trust / trust.sum()
    factor = np.divide(np.linalg.norm(root), norms, out=np.zeros_like(norms), where=norms > 0)
    return Aggregate((shares * factor) @ updates, shares, selects=True)
