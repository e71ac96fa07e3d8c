"""The number of wrong updates that each rule tolerates, and its coefficient of robustness.

Coefficients: Y. Allouah, S. Farhadkhani, R. Guerraoui, N. Gupta, R. Pinot, J. Stephan: *Fixing by Mixing: A Recipe for
Optimal Byzantine ML under Heterogeneity*, AISTATS 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NEEDS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "mean": ("no Byzantine hospital", lambda m, f: False),
    "median": ("more than 2f", lambda m, f: m > 2 * f),
    "trimmed_mean": ("more than 2f", lambda m, f: m > 2 * f),
    "geometric_median": ("more than 2f", lambda m, f: m > 2 * f),
    "centred_clipping": ("more than 2f", lambda m, f: m > 2 * f),
    "krum": ("at least 2f + 3", lambda m, f: m >= 2 * f + 3),
    "multi_krum": ("at least 2f + 3", lambda m, f: m >= 2 * f + 3),
    "bulyan": ("at least 4f + 3", lambda m, f: m >= 4 * f + 3),
    "norm_bound": ("any number", lambda m, f: True),
    "fltrust": ("any number", lambda m, f: True),
}
"""For each robust rule, the number ``m`` of updates that it needs to tolerate ``f`` wrong ones: in words, and as a
function of ``m`` and ``f`` that returns whether ``m`` updates are enough."""

WEIGHTED = ("median", "trimmed_mean", "geometric_median")
"""The robust rules that accept weights of hospitals' updates."""


def bears(rule: str, m: int, f: int) -> bool:
    """Return whether the robust ``rule`` tolerates ``f`` wrong updates among ``m``."""
    return f == 0 or NEEDS[rule][1](m, f)


def kappa(rule: str, m: int, f: int, neighbours: bool = False) -> float:
    """Return the coefficient of robustness of a ``rule`` for ``f`` wrong updates among ``m``; infinite if it is unknown
    or if ``m`` updates are too few.

    The squared distance between the aggregate and the mean of the honest updates is at most kappa times the variance of
    the honest updates. With ``neighbours``, the rule is applied after nearest-neighbour mixing (NNM).
    """
    if m <= 2 * f or not bears(rule, m, f):
        return math.inf
    ratio = f / (m - 2 * f)
    coefficients = {
        "trimmed_mean": 6 * ratio * (1 + ratio),
        "krum": 6 * (1 + ratio),
        "median": 4 * (1 + ratio) ** 2,
        "geometric_median": 4 * (1 + ratio) ** 2,
    }
    value = coefficients.get(rule, math.inf)
    return 8 * f / (m - f) * (value + 1) if neighbours else value
