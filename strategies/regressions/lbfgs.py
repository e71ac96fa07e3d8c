"""Limited-memory BFGS: the curvature of a function from earlier steps.

D. C. Liu, J. Nocedal: *On the Limited Memory BFGS Method for Large Scale Optimization*, Mathematical Programming 1989.
"""

from __future__ import annotations

from collections.abc import Callable

from raysim.strategies.base import Floats

ARMIJO = 1e-4
"""A step must improve the function by at least this share of the improvement that the gradient predicts."""

Pairs = tuple[tuple[Floats, Floats], ...]
"""Earlier steps ``[p]``, each with the decrease ``[p]`` of the uphill gradient over the step."""


def remembered(pairs: Pairs, moved: Floats, fell: Floats, most: int) -> Pairs:
    """Append a new pair to ``pairs``, and return the last ``most`` pairs.

    The new pair is the step ``moved`` and the decrease ``fell`` of the uphill gradient over this step. The pair is left
    out if the slope along the step did not decrease.
    """
    return (*pairs, (moved, fell))[-most:] if float(moved @ fell) > 0 else pairs


def uphill(gradient: Floats, pairs: Pairs, curved: Callable[[Floats], Floats]) -> Floats:
    """Return the L-BFGS ascent step of a function with this ``gradient [p]``, by the two-loop recursion.

    ``pairs`` has the earlier steps. ``curved`` is called between the two loops. From a gradient, it computes the step
    under the initial curvature, as a new array.
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
