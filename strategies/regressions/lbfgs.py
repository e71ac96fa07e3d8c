"""Limited-memory BFGS: the curvature of a function from earlier steps.

D. C. Liu, J. Nocedal: *On the Limited Memory BFGS Method for Large Scale Optimization*, Mathematical Programming 1989.
"""

from __future__ import annotations

from collections.abc import Callable

from raysim.strategies.base import Floats

ARMIJO = 1e-4
"""The share of the predicted change of the loss that an accepted step must reach."""

Pairs = tuple[tuple[Floats, Floats], ...]
"""Pairs of an earlier step ``[p]`` and the decrease of the uphill gradient along this step, ``[p]``."""


def remembered(pairs: Pairs, moved: Floats, fell: Floats, most: int) -> Pairs:
    """Append a pair and return the last ``most`` pairs. A step along which the gradient grew is not appended."""
    return (*pairs, (moved, fell))[-most:] if float(moved @ fell) > 0 else pairs


def uphill(gradient: Floats, pairs: Pairs, curved: Callable[[Floats], Floats]) -> Floats:
    """Return the step ``[p]`` for an uphill ``gradient [p]``, by the two-loop recursion over earlier steps.

    Between the two loops, ``curved(rest)`` returns the step for the rest of the gradient, as a new array.
    """
    rest, shares = gradient.copy(), []
    for moved, fell in reversed(pairs):
        share = float(moved @ rest) / float(moved @ fell)
        rest -= share * fell
        shares.append(share)
    step = curved(rest)
    for (moved, fell), share in zip(pairs, reversed(shares), strict=True):
        step += (share - float(fell @ step) / float(moved @ fell)) * moved
    return step
