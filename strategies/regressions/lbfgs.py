"""The curvature of earlier steps, as limited-memory BFGS takes it.

D. C. Liu, J. Nocedal: *On the Limited Memory BFGS Method for Large Scale Optimization*, Mathematical Programming 1989.
"""

from __future__ import annotations

from collections.abc import Callable

from raysim.strategies.base import Floats

ARMIJO = 1e-4
"""The share of the predicted change that a step must reach."""

Pairs = tuple[tuple[Floats, Floats], ...]
"""Earlier steps ``[p]``, and by how much the gradient uphill fell in each."""


def remembered(pairs: Pairs, moved: Floats, fell: Floats, most: int) -> Pairs:
    """``pairs`` with one more, the last ``most`` of them; a step along which the gradient rose is left out."""
    return (*pairs, (moved, fell))[-most:] if float(moved @ fell) > 0 else pairs


def uphill(gradient: Floats, pairs: Pairs, curved: Callable[[Floats], Floats]) -> Floats:
    """The step ``[p]`` from a ``gradient [p]``, by the two loops over earlier steps.

    ``curved(rest)``: the step from what they leave of the gradient, an array of its own.
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
