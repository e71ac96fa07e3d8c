"""Trials under several objectives: the Pareto set, its hypervolume, and the recommended trial.

Points are ``values [n, d]``: ``n`` trials, ``d`` objectives; ``larger [d]`` marks the objectives that are maximised. A
trial with an undefined objective (NaN) is not in the Pareto set and dominates no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.metrics.equity import pareto_front


def signed(values: ArrayLike, larger: Sequence[bool]) -> Floats:
    """Return ``values [n, d]`` with the signs of minimised objectives changed, so that larger is always better."""
    points = np.asarray(values, dtype=np.float64).reshape(-1, len(larger))
    return points * np.where(larger, 1.0, -1.0)


def front(values: ArrayLike, larger: Sequence[bool]) -> NDArray[np.bool_]:
    """Return which trials are in the Pareto set, ``[n]``: no other trial dominates them. Equal trials do not dominate
    each other."""
    points = signed(values, larger)
    return pareto_front(points) if len(points) else np.empty(0, dtype=np.bool_)


def crowding(values: ArrayLike) -> Floats:
    """Compute the crowding distances ``[n]`` of the points of one front (Deb et al., NSGA-II, 2002, section III-B).

    A distance is the sum over objectives of the gap between a point's two neighbours, in units of the front's range. It
    is infinite for the ends of any objective. An objective with equal values at all points adds nothing.
    """
    points = np.asarray(values, dtype=np.float64)
    distance = np.zeros(len(points))
    for column in points.T:
        order = np.argsort(column, kind="stable")
        width = column[order[-1]] - column[order[0]] if len(order) else 0.0
        if width == 0:
            continue
        distance[order[[0, -1]]] = np.inf
        distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / width
    return distance


def hypervolume(values: ArrayLike, larger: Sequence[bool], reference: ArrayLike) -> float:
    """Compute the exact volume that the trials dominate above ``reference [d]``.

    It is 0 if no trial is better than the reference in every objective. The algorithm cuts the volume into slabs along
    the last objective. A slab's volume is its height times the volume of its points in the other objectives.
    """
    points = signed(values, larger) - signed(np.asarray(reference, dtype=np.float64)[None], larger)
    points = points[(points > 0).all(axis=1)]  # NaN > 0 is False
    return _volume(points[pareto_front(points)]) if len(points) else 0.0


def _volume(points: Floats) -> float:
    """Compute the volume of the union of the boxes between 0 and each of ``points [n, d]``, all positive."""
    if points.shape[1] == 1:
        return float(points.max())
    order = points[np.argsort(-points[:, -1], kind="stable")]
    heights = order[:, -1] - np.append(order[1:, -1], 0.0)
    if points.shape[1] == 2:
        return float(np.maximum.accumulate(order[:, 0]) @ heights)
    front: Floats = order[:0, :-1]
    total = 0.0
    for point, height in zip(order[:, :-1], heights, strict=True):
        if not (front >= point).all(axis=1).any():
            front = np.vstack([front[~(front <= point).all(axis=1)], point])
        if height > 0:
            total += _volume(front) * float(height)
    return total


@dataclass(frozen=True)
class Cost:
    """The cost of the recommended trial in one objective.

    ``gap >= 0`` is its distance from the best value, and ``share`` is the gap divided by the front's range of that
    objective. ``best`` is the index of the best trial.
    """

    gap: float
    share: float
    best: int


@dataclass(frozen=True)
class Knee:
    """The recommended trial: its index, its ``distance`` from the ideal point, and its costs by objective."""

    index: int
    distance: float
    costs: tuple[Cost, ...]


def knee(values: ArrayLike, larger: Sequence[bool]) -> Knee | None:
    """Return the trial of the front with the smallest Euclidean distance from the ideal point, or None without a front.

    Each objective is scaled so that 0 is the best value of any trial, and 1 the worst value of the front. The ideal
    point is 0 in all objectives. The first trial wins ties.
    """
    points = signed(values, larger)
    on = np.flatnonzero(front(values, larger))
    if not len(on):
        return None
    best = points[on].max(axis=0)
    width = best - points[on].min(axis=0)
    share = (best - points) / np.where(width > 0, width, 1.0)
    distances = np.sqrt((share[on] ** 2).sum(axis=1))
    index = int(on[np.argmin(distances)])
    costs = tuple(
        Cost(float(best[j] - points[index, j]), float(share[index, j]), int(on[np.argmax(points[on, j])]))
        for j in range(len(larger))
    )
    return Knee(index, float(distances.min()), costs)
