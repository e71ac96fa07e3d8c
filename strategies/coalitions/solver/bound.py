"""A scalable lower bound on program (11) of CS-RCFL, from eigenvalues and multipliers of linear inequalities.

Program (11) divides N hospitals into K coalitions S with the smallest
``sum over S of (1/|S|) sum over i, j in S of L_ij``, for losses ``L [N, N]``. A partition is written as a matrix Z:
``Z_ij = 1/|S|`` if i and j are both in S, else 0. Its cost is ``<C, Z>`` with ``C = (L + L')/2``. Z is a projection of
rank K that maps the vector of ones to itself. Therefore ``Z = J/N + Y``, where J is all ones and Y is a projection of
rank K - 1 orthogonal to the ones (J. Peng, Y. Wei: *Approximating K-means-type clustering via semidefinite
programming*, SIAM J. Optim. 18, 2007). Z also satisfies ``Z >= 0`` and the clique inequalities of
:mod:`raysim.strategies.coalitions.solver.cliques`. Take any multipliers ``V >= 0`` for the constraint ``Z >= 0``, and
``t_c >= 0`` for each clique inequality c. Let ``M = C - V + sum over c of t_c A_c``, with ``A_c`` the coefficients of Z
in inequality c. Then no partition costs less than

    ``1'M1/N + the sum of the K - 1 smallest eigenvalues of M on the space orthogonal to the ones``.

The bound is valid for any multipliers, so the search for good ones may stop at any time. The search is the alternating
direction method of multipliers. Violated clique inequalities are added during the search. Their multipliers change by
the primal-dual method of Condat (2013) and Vũ (2013). The converged bound is at least as high as the bound of a linear
program with the same inequalities. For 50 hospitals or more, it is also faster to compute.
"""

from __future__ import annotations

import time

import numpy as np

from raysim.core.host import one_thread
from raysim.strategies.base import Floats
from raysim.strategies.coalitions.solver.cliques import PATTERNS, Cliques, pace, violated_fours, violated_triangles

PENALTY = 100.0
"""The penalty ρ of the search, relative to the size of the differences between losses."""
CHECK = 50
"""The number of iterations between two evaluations of the lower bound."""
WITHOUT_CUTS = 400
"""The number of iterations before the first clique inequalities are added."""
BETWEEN_CUTS = 100
"""The number of iterations between two additions of clique inequalities."""
PATIENCE = 500
"""The search ends if this many iterations have closed less than a hundredth of the gap between bound and cost."""
VIOLATED = 1e-5
"""A clique inequality is added only if it is violated by more than this."""
ADDED = 50
"""The largest number of clique inequalities of each size that are added at once, divided by N."""


def spectral_bound(losses: Floats, coalitions: int, cost: float, *, tolerance: float, seconds: float) -> float:
    """Return a lower bound on the cost of any partition of N hospitals into K = ``coalitions`` coalitions, 1 < K < N.

    The entry ``[i, j]`` of ``losses [N, N]`` is the loss of hospital j's model at hospital i. ``cost`` is the cost of
    the best partition known. The search ends when the bound is within the relative ``tolerance`` of ``cost``, when it
    hardly rises any more, or after ``seconds``.
    """
    # One thread: the figures then do not depend on the number of cores, and these matrices are small.
    with one_thread():
        return _ascend(_Relaxation((losses + losses.T) / 2, coalitions), cost, tolerance, seconds)


def _ascend(relaxation: _Relaxation, cost: float, tolerance: float, seconds: float) -> float:
    start = time.perf_counter()
    if relaxation.scale <= 1e-14 * np.abs(relaxation.cost).max():
        return relaxation.bound()  # all partitions have the same cost, and no multiplier is needed
    best = marked = -np.inf
    iteration = 0
    while True:
        iteration += 1
        relaxation.step()
        if iteration % CHECK == 0 or time.perf_counter() - start > seconds:
            best = max(best, relaxation.bound())
            if cost - best <= tolerance * abs(cost) or time.perf_counter() - start > seconds:
                return best
        if iteration % PATIENCE == 0 and iteration > WITHOUT_CUTS:
            if best - marked < 0.01 * (cost - best):
                return best
            marked = best
        if iteration >= WITHOUT_CUTS and (iteration - WITHOUT_CUTS) % BETWEEN_CUTS == 0:
            relaxation.cut()


class _Relaxation:
    """The current point of the search: the relaxed partition ``Z [N, N]``, the multipliers, and the clique
    inequalities."""

    def __init__(self, cost: Floats, coalitions: int) -> None:
        n = len(cost)
        self.cost, self.rank = cost, coalitions - 1
        # A Householder reflection maps the first axis to the ones; its other columns are a basis orthogonal to them.
        mirror = np.full(n, n**-0.5)
        mirror[0] += 1.0
        mirror /= np.linalg.norm(mirror)
        self.across = (np.eye(n) - 2 * np.outer(mirror, mirror))[:, 1:]
        self.scale = float(np.linalg.norm(self.across.T @ cost @ self.across)) / n
        self.penalty = PENALTY * self.scale
        self.Z = np.full((n, n), 1.0 / n)
        self.positive = self.Z
        self.negative = np.zeros((n, n))
        self.triangles, self.fours = (Cliques.none(size, n) for size in PATTERNS)
        self.term = np.zeros((n, n))

    def step(self) -> None:
        """Project ``Z`` onto the relaxed partitions and onto ``Z >= 0``, then update the multipliers of the
        inequalities."""
        target = self.positive - self.negative - (self.cost + self.term) / self.penalty
        values, vectors = np.linalg.eigh(self.across.T @ target @ self.across)
        shares = _capped_simplex(values, self.rank)
        used = shares > 1e-14
        basis = self.across @ vectors[:, used]
        last, self.Z = self.Z, 1.0 / len(self.cost) + (basis * shares[used]) @ basis.T
        shifted = self.Z + self.negative
        self.positive = np.maximum(0.0, shifted)
        self.negative = np.minimum(0.0, shifted)
        if len(self.triangles.at) or len(self.fours.at):
            ahead = 2 * self.Z - last
            self.triangles.move(ahead)
            self.fours.move(ahead)
            self.term = self.triangles.term() + self.fours.term()

    def bound(self) -> float:
        """Return the lower bound that the current multipliers prove."""
        M = self.cost + self.term + self.penalty * self.negative
        values = np.linalg.eigvalsh(self.across.T @ M @ self.across)
        return float(M.sum() / len(M) + values[: self.rank].sum())

    def cut(self) -> None:
        """Drop the clique inequalities with multiplier 0, and add those that ``Z`` violates most."""
        most = ADDED * len(self.cost)
        self.triangles = self.triangles.renewed(*violated_triangles(self.Z, VIOLATED, 8 * ADDED), most)
        self.fours = self.fours.renewed(*violated_fours(self.Z, VIOLATED, 2 * ADDED), most)
        pace((self.triangles, self.fours), self.penalty)


def _capped_simplex(values: Floats, total: int) -> Floats:
    """Return the point nearest to ``values [m]`` with entries in [0, 1] and sum ``total``."""
    breaks = np.sort(np.concatenate([values, values - 1.0]))
    # The sum falls with the shift from m to 0, linear between the breaks: bisect over these, then interpolate. At
    # ``low`` it is at least the total, at ``high`` below it.
    low, high = 0, len(breaks) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if np.clip(values - breaks[middle], 0.0, 1.0).sum() >= total:
            low = middle
        else:
            high = middle
    sums = [float(np.clip(values - breaks[at], 0.0, 1.0).sum()) for at in (low, high)]
    share = (sums[0] - total) / (sums[0] - sums[1])
    return np.asarray(np.clip(values - (breaks[low] + share * (breaks[high] - breaks[low])), 0.0, 1.0))
