"""The choice of the method that a comparison recommends.

:func:`raysim.report.judgement.compose.alone_is_taken` decides whether training alone is recommended instead.

The intervals of all pairs of methods hold jointly. A method is better than another if the interval of their difference
demonstrates it. Two methods are equivalent if neither is better, and the interval of their difference lies between
minus and plus :data:`raysim.statistics.differences.paired.EQUIVALENT`.

A method is unbeaten if no other method is better than it. The rules apply in this order:

- If the reference strategy is unbeaten, choose it: the user named it before any result was known.
- Else choose the unbeaten method with the best mean; methods better than the reference come first.
- If an unbeaten method has a simpler model than the chosen one, only unbeaten methods with the simplest model remain.
  Choose the reference if it is one of them, else the method with the best mean.
- An unbeaten method replaces the chosen one if both are equivalent, its model is not more complex, and it sends at most
  :data:`LESS` times as many bytes. Of several such methods, choose the one that sends the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Flags

Method = TypeVar("Method")

Why = Literal["better", "reference", "unbeaten", "simpler"]

LESS = 0.67
"""A method sends clearly fewer bytes than another if it sends at most this share of the other's bytes."""


@dataclass(frozen=True)
class Choice:
    """The recommended method and the reason for it."""

    index: int
    """The index of the recommended method among the compared methods."""
    why: Why
    """Why the method is recommended:

    - ``better``: it is demonstrably better than the reference strategy.
    - ``reference``: it is the reference strategy itself.
    - ``unbeaten``: it has the best mean of the methods that no other method beats.
    - ``simpler``: its model is simpler than that of the method chosen by the other rules.
    """
    equals: tuple[int, ...]
    """The indices of methods that are equivalent to the recommended method."""
    instead_of: int | None = None
    """The index of an equivalent method that sends clearly more bytes and was replaced; None if there is none."""


def cheaper(methods: Iterable[Method], than: Method, sends: Callable[[Method], float]) -> Method:
    """Return the method that sends the fewest bytes of those that send clearly fewer than ``than``; if none, ``than``.

    ``sends`` returns a method's bytes, NaN if unknown. Of equal methods, the first is returned.
    """
    fewer = (each for each in methods if sends(each) <= LESS * sends(than) < sends(than))
    return min(fewer, key=sends, default=than)


def choose(
    means: ArrayLike,
    better: Flags,
    equal: Flags,
    traffic: Sequence[float],
    reference: int | None,
    complexity: Sequence[int] | None = None,
) -> Choice:
    """Choose the method to recommend among ``E`` methods, ``E >= 1``.

    - ``means [E]``: each method's main metric, with a sign such that larger is better.
    - ``better [E, E]``: whether the row's method is demonstrably better than the column's method.
    - ``equal [E, E]``: whether two methods are equivalent; False where one of them is better.
    - ``traffic [E]``: the bytes that each method sends; NaN if unknown.
    - ``reference``: the index of the reference strategy's method; None if there is none.
    - ``complexity [E]``: the rank of each method's model, the simplest first; None if models are not ranked.
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
    cheapest = cheaper((i for i in equals if ranks[i] <= ranks[first]), first, traffic.__getitem__)
    if cheapest == first:
        return Choice(first, why, tuple(equals))
    others = tuple(i for i in range(len(values)) if i != cheapest and equal[i, cheapest])
    return Choice(cheapest, why, others, instead_of=first)


def _best(values: NDArray[np.float64], among: Sequence[int]) -> int:
    """Return the index in ``among`` with the largest of ``values``, or the first of equal ones; NaN ranks last."""
    return max(among, key=lambda i: (-np.inf if np.isnan(values[i]) else values[i], -i))
