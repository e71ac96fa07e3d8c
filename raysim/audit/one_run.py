"""A lower bound on epsilon from one run, by guessing which canaries were part of the training (Steinke 2023).

Canaries are rows made for the audit. A fair coin decides for each canary whether it is part of the training. An
auditor guesses these decisions for ``G`` of the ``M`` canaries. Under (epsilon, delta) differential privacy, the
number ``right`` of correct guesses satisfies, with ``q = 1 / (1 + exp(-epsilon))`` and for any ``v``:

    P[right >= v] <= P[Bin(G, q) >= v] + 2 M delta max_{1 <= i <= v} P[v > Bin(G, q) >= v - i] / i.

The lower bound is the largest epsilon that the guesses refute at the given significance level. The term with ``delta``
is necessary: without it, lower bounds on epsilon are too high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc

ERROR = 0.05
"""The largest probability with which the lower bound on epsilon may exceed the true epsilon."""

LARGEST = 50.0
"""The largest lower bound on epsilon that is reported."""


@dataclass(frozen=True)
class Guesses:
    """An auditor's guesses whether canaries were part of the training. There are ``canaries`` canaries and ``made``
    guesses, of which ``right`` are correct.
    """

    canaries: int
    made: int
    right: int


def chance(epsilon: float, guesses: Guesses, delta: float) -> float:
    """Return an upper bound on the probability of at least ``guesses.right`` correct guesses if the training is
    (``epsilon``, ``delta``) differentially private.
    """
    G, v, q = guesses.made, guesses.right, 1.0 / (1.0 + math.exp(-epsilon))
    if v <= 0:
        return 1.0
    at_least = float(bdtrc(v - 1, G, q))
    if not delta:
        return min(at_least, 1.0)
    i = np.arange(1, v + 1)
    below = bdtr(v - 1, G, q) - np.where(i < v, bdtr(np.maximum(v - i - 1, 0), G, q), 0.0)
    return min(at_least + 2.0 * guesses.canaries * delta * float((below / i).max()), 1.0)


def lower_bound(guesses: Guesses, delta: float) -> float:
    """Compute the lower bound on epsilon: the largest epsilon, up to :data:`LARGEST`, that ``guesses`` refute at
    significance level :data:`ERROR`, or 0 if they refute none.

    Raises ``ValueError`` for impossible numbers in ``guesses``.
    """
    if not 0 <= guesses.right <= guesses.made <= guesses.canaries:
        raise ValueError(
            f"guesses: {guesses.right} right of {guesses.made} made is impossible with {guesses.canaries} canaries; "
            "give 0 <= right <= made <= canaries"
        )
    if chance(0.0, guesses, delta) > ERROR:
        return 0.0
    if chance(LARGEST, guesses, delta) <= ERROR:
        return LARGEST
    return float(brentq(lambda epsilon: chance(epsilon, guesses, delta) - ERROR, 0.0, LARGEST, xtol=1e-10))


def ceiling(canaries: int, delta: float) -> float:
    """Compute the largest lower bound on epsilon that an audit with this number of ``canaries`` can reach: the bound if
    all guesses are correct.
    """
    made = 2 * _each(canaries)
    return lower_bound(Guesses(canaries, made, made), delta)


def guessed(scores: ArrayLike, included: ArrayLike) -> Guesses:
    """Guess that the quarter of canaries with the highest ``scores [M]`` was part of the training, and the quarter with
    the lowest scores was not. ``included [M]`` says which canaries were part of the training.
    """
    s, truth = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
    each = _each(len(s))
    order = np.argsort(s, kind="stable")
    right = int(truth[order[len(s) - each :]].sum() + (~truth[order[:each]]).sum())
    return Guesses(len(s), 2 * each, right)


def _each(canaries: int) -> int:
    """Return how many canaries are guessed to be part of the training; as many are guessed not to be."""
    return canaries // 4


def figures(guesses: Guesses, delta: float) -> dict[str, int | float]:
    """Return an audit's results by name, among them the number of correct guesses and the lower bound on epsilon."""
    return {
        "canaries": guesses.canaries,
        "guesses": guesses.made,
        "right": guesses.right,
        "delta": delta,
        "epsilon_at_least": lower_bound(guesses, delta),
        "ceiling": ceiling(guesses.canaries, delta),
    }
