"""Trials under several objectives: the Pareto set, its hypervolume, and the recommended trial.

``values [n, d]`` are the values of ``n`` trials in ``d`` objectives, and ``larger [d]`` says which objectives are
maximised. A trial dominates another if it is at least as good in all objectives and better in one. A trial with an
undefined objective (NaN) is not in the Pareto set and dominates no other trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.metrics.equity import pareto_front


def signed(values: ArrayLike, larger: Sequence[bool]) -> Floats:
    """Change the signs of minimised objectives in ``values [n, d]``, so that larger is better, and return the
    result."""
    points = np.asarray(values, dtype=np.float64).reshape(-1, len(larger))
    return points * np.where(larger, 1.0, -1.0)


def front(values: ArrayLike, larger: Sequence[bool]) -> NDArray[np.bool_]:
    """Return a mask ``[n]`` of the trials in the Pareto set: those that no other trial dominates.

    ``values [n, d]`` has the d objectives of n trials, and ``larger [d]`` says which are maximised. Equal trials do not
    dominate each other.
    """
    points = signed(values, larger)
    return pareto_front(points) if len(points) else np.empty(0, dtype=np.bool_)


def crowding(values: ArrayLike) -> Floats:
    """Compute the crowding distances ``[n]`` of the points of a Pareto set (Deb et al., NSGA-II, 2002, section III-B).

    A point's distance is a sum over objectives: the gap between its two neighbours, divided by the range of the
    objective in the set. It is infinite for the first and the last point in the order of an objective, unless all
    points have the same value of this objective.
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
    """Compute the hypervolume: the volume between the reference point ``reference [d]`` and the Pareto set.

    It is exact, and 0 if no trial is better than the reference point in every objective. ``values [n, d]`` are the d
    objectives of n trials, and ``larger [d]`` says which are maximised.
    """
    points = signed(values, larger) - signed(np.asarray(reference, dtype=np.float64)[None], larger)
    points = points[(points > 0).all(axis=1)]  # NaN > 0 is False
    return _volume(points[pareto_front(points)]) if len(points) else 0.0


def _volume(points: Floats) -> float:
    """Compute the volume of the union of the boxes between 0 and each of the positive ``points [n, d]``."""
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
    """How far the recommended trial is from the best trial (index ``best``) in one objective.

    ``gap >= 0`` is the difference, and ``share`` the gap divided by the objective's range in the Pareto set.
    """

    gap: float
    share: float
    best: int


@dataclass(frozen=True)
class Knee:
    """The recommended trial: its index, its ``distance`` from the ideal point, and its :class:`Cost` in each objective.

    The ideal point has the best value in every objective.
    """

    index: int
    distance: float
    costs: tuple[Cost, ...]


def knee(values: ArrayLike, larger: Sequence[bool]) -> Knee | None:
    """Return the trial of the Pareto set that is nearest to the ideal point, or None if the set is empty.

    Distances are Euclidean, with each objective scaled so that 0 is the best value in the Pareto set, and 1 the worst.
    Of equally near trials, the first is returned.
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
