"""The integer fractional program of CS-RCFL that forms coalitions, solved to proven optimality or to a stated gap.

X. Konti et al., *CS-RCFL*, program (11): with ``L_ij`` the (robust transfer) loss of hospital j's model at hospital i,
divide N hospitals into exactly K coalitions S with the smallest ``sum over S of (1/|S|) sum over i, j in S of L_ij``.

Local search gives the partition, and a spectral bound limits its distance from the optimum. If the bound does not prove
optimality, all partitions of up to 20 hospitals are enumerated by dynamic programming. With exact training and radius 0
the cost never rises with K. Therefore choose K by losses on held-out rows, not by the cost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Floats, Ids, at_least
from raysim.strategies.coalitions.solver.bound import spectral_bound
from raysim.strategies.coalitions.solver.enumeration import enumerate_coalitions
from raysim.strategies.coalitions.solver.search import coalition_cost, search_coalitions

ENUMERATED = 20
"""The largest number of hospitals for which all partitions are enumerated."""
TOLERANCE = 1e-6
"""A partition counts as optimal if its cost exceeds the lower bound by at most this share of the cost."""


@dataclass(frozen=True, eq=False)
class Coalitions:
    """A partition of the hospitals, with a lower bound on the cost of any partition into the same number of
    coalitions."""

    labels: Ids
    """The index of each hospital's coalition, ``[N]``: 0, 1, ... in the order of coalitions' smallest hospital ids."""
    value: float
    """The cost of this partition."""
    bound: float
    """A lower bound on the cost of any partition into the same number of coalitions."""
    seconds: float
    """The duration of search and proof, in seconds."""

    @property
    def gap(self) -> float:
        """The relative gap ``(value - bound) / |value|``, at least 0."""
        return max(0.0, self.value - self.bound) / max(abs(self.value), 1e-300)

    @property
    def proven(self) -> bool:
        """Whether the partition is proven optimal, up to a relative gap of :data:`TOLERANCE`."""
        return self.gap <= TOLERANCE


def find_coalitions(
    losses: Floats, coalitions: int, rng: np.random.Generator, *, seconds: float = 60.0, tolerance: float = TOLERANCE
) -> Coalitions:
    """Return the partition of N hospitals into exactly ``coalitions`` coalitions with the smallest cost found.

    The entry ``[i, j]`` of ``losses [N, N]`` is the loss of hospital j's model at hospital i. The search for the lower
    bound ends when the relative gap is within ``tolerance``, when the bound hardly rises, or after about ``seconds``.
    For up to 20 hospitals, all partitions are then enumerated if the gap is larger than ``tolerance`` and time is left.
    The local search is never interrupted, so for more than 20 hospitals the partition does not depend on the clock.
    Raises ``ValueError`` for more coalitions than hospitals, and for losses that are not a finite square matrix.
    """
    start = time.perf_counter()
    _check(losses, coalitions, seconds)
    losses = np.asarray(losses, np.float64)
    n = len(losses)

    def result(labels: Ids, bound: float) -> Coalitions:
        value = coalition_cost(losses, labels)
        return Coalitions(labels, value, min(bound, value), time.perf_counter() - start)

    def left() -> float:
        return max(0.0, start + seconds - time.perf_counter())

    if coalitions in (1, n):
        return result(np.zeros(n, np.int64) if coalitions == 1 else np.arange(n), np.inf)
    labels = search_coalitions(losses, coalitions, rng)
    bound = spectral_bound(losses, coalitions, coalition_cost(losses, labels), tolerance=tolerance, seconds=left())
    searched = result(labels, bound)
    if searched.gap <= tolerance or not left():
        return searched
    if n <= ENUMERATED:
        exact = enumerate_coalitions(losses, coalitions, seconds=left())
        return searched if exact is None else result(exact, np.inf)
    return searched


def coalition_models(models: Floats, labels: Ids) -> Floats:
    """Return the mean of the members' ``models [N, P]`` for each of K coalitions, ``[K, P]`` (eq. 6)."""
    sums = np.zeros((int(labels.max()) + 1, models.shape[1]))
    np.add.at(sums, labels, models)
    return np.asarray(sums / np.bincount(labels)[:, None])


def _check(losses: Floats, coalitions: int, seconds: float) -> None:
    if losses.ndim != 2 or losses.shape[0] != losses.shape[1]:
        raise ValueError(f"losses: shape {losses.shape} must be square; give one row and one column for each hospital")
    if not np.isfinite(losses).all():
        raise ValueError("losses: not all are finite; leave out hospitals without rows, and models that diverged")
    at_least("coalitions", coalitions, 1)
    if coalitions > len(losses):
        raise ValueError(f"coalitions: {coalitions} is more than the {len(losses)} hospitals; lower it")
    at_least("seconds", seconds, 0.0, finite=False)
