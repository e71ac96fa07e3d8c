"""Which method a comparison takes: the one place that decides it.

The reference was named before anything was seen, so it stands unless another method is better by intervals that hold
together. Bytes decide between equals only: methods whose difference lies within :data:`EQUIVALENT` by such an interval.
That no difference was found makes two methods no equals. Between models (learners) the simplest stands as the reference
does: a more complex one has to be better.

===================================================== ======================================================
some methods are better than the reference            of these, the best mean that no method is better than
none is better than the reference                     the reference
there is no reference, or each of the first is beaten the best mean that no method is better than
then: no method is better than one of a simpler model of these of the simplest, the reference or the best mean
then: an equal one moves :data:`LESS` of its bytes,   the equal one that moves fewest
and its model is as simple or simpler
===================================================== ======================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Flags = NDArray[np.bool_]

Why = Literal["better", "reference", "unbeaten", "simpler"]

LESS = 0.67
"""The share of another's bytes from which on a method moves clearly fewer."""


@dataclass(frozen=True)
class Choice:
    """The method that is taken."""

    index: int
    """Its index among the methods."""
    why: Why
    """``better`` than the reference; the ``reference`` itself; the best mean of those that none is better than
    (``unbeaten``); of a ``simpler`` model than the one that would be taken for one of these reasons."""
    equals: tuple[int, ...]
    """The methods that are equal to it."""
    instead_of: int | None = None
    """The equal method in whose place it was taken because it moves clearly fewer bytes; None: bytes decided nothing.
    """


def choose(
    means: ArrayLike,
    better: Flags,
    equal: Flags,
    traffic: Sequence[float],
    reference: int | None,
    complexity: Sequence[int] | None = None,
) -> Choice:
    """The method to take of ``E``, of which there is at least one.

    - ``means [E]``: the headline figure of each, of which more is better.
    - ``better [E, E]``: whether the row's method is better than the column's.
    - ``equal [E, E]``: whether two are equal; symmetric, and False where either is better.
    - ``traffic [E]``: bytes that each moves. ``reference``: its index; None where it was not run.
    - ``complexity [E]``: the rank of each one's model, the simplest first; None: all have the same model.
    """
    ranks = [0] * len(traffic) if complexity is None else complexity
    values = np.asarray(means, dtype=np.float64)
    unbeaten = [i for i in range(len(values)) if not better[:, i].any()] or list(range(len(values)))
    why: Why
    winners = [] if reference is None else [i for i in unbeaten if better[i, reference]]
    if winners:
        first, why = _best(values, winners), "better"
    elif reference is not None and not better[:, reference].any():
        first, why = reference, "reference"
    else:
        first, why = _best(values, unbeaten), "unbeaten"
    simpler = [i for i in unbeaten if ranks[i] < ranks[first]]
    if simpler:
        simplest = [i for i in simpler if ranks[i] == min(ranks[k] for k in simpler)]
        first, why = reference if reference in simplest else _best(values, simplest), "simpler"
    equals = [i for i in unbeaten if i != first and equal[i, first]]
    cheapest = min((i for i in equals if ranks[i] <= ranks[first]), key=lambda i: (traffic[i], i), default=first)
    if cheapest == first or traffic[first] <= 0 or not traffic[cheapest] <= LESS * traffic[first]:
        return Choice(first, why, tuple(equals))
    others = tuple(i for i in range(len(values)) if i != cheapest and equal[i, cheapest])
    return Choice(cheapest, why, others, instead_of=first)


def _best(values: NDArray[np.float64], among: Sequence[int]) -> int:
    """The index of the largest mean, the first of equal ones; an undefined mean is the least."""
    return max(among, key=lambda i: (-np.inf if np.isnan(values[i]) else values[i], -i))
