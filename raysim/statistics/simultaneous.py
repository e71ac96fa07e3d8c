"""Many differences at once: intervals that hold together, and what follows for which strategy to name.

With ten hospitals or more, the largest of all t statistics is drawn with random signs for hospitals (and for seeds from
five on), which keeps the strategies' dependence; with fewer, there are too few patterns of signs, and Bonferroni's
intervals are taken in Holm's order. Sources: multiplier bootstrap of a maximum, Chernozhukov, Chetverikov and Kato
2013; step-down, Holm 1979. Definitions and what was covered: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from raysim.statistics.levels import ALPHA
from raysim.statistics.paired import FEW_HOSPITALS, Limits, Paired

Floats = NDArray[np.float64]

DRAWS = 2000

ENOUGH_SEEDS = 5
"""Below so many seeds, random signs of seeds say nothing."""


class Family(NamedTuple):
    """Differences adjusted for being many: ``intervals`` in their order, and ``by`` which method."""

    intervals: list[Limits]
    by: Literal["max-t", "Holm"]


def adjusted(differences: Sequence[Paired], rng: np.random.Generator, draws: int = DRAWS) -> Family:
    """Intervals for hospitals like these of ``differences`` over the same hospitals and seeds, adjusted together.

    Those of equal models are 0 to 0 and take no part; one without a variance has NaN limits and takes none either.
    """
    tested = [k for k, pair in enumerate(differences) if pair.variance > 0]
    intervals = [pair.population() for pair in differences]
    if not tested:
        return Family(intervals, "Holm")
    pairs = [differences[k] for k in tested]
    if min(pair.hospitals for pair in pairs) < FEW_HOSPITALS:
        for k, level in zip(tested, _holm([pair.p for pair in pairs]), strict=True):
            intervals[k] = differences[k].population(level)
        return Family(intervals, "Holm")
    critical = _largest_t(pairs, rng, draws)
    for k, pair in zip(tested, pairs, strict=True):
        reach = max(critical, float(student.isf(ALPHA / 2, pair.df))) * float(np.sqrt(pair.variance))
        intervals[k] = Limits(pair.difference - reach, pair.difference + reach)
    return Family(intervals, "max-t")


def _holm(p: Sequence[float]) -> list[float]:
    """The level of each interval such that it excludes 0 exactly where Holm's procedure rejects."""
    order = np.argsort(p, kind="stable")
    levels = [0.0] * len(p)
    rejecting = True
    level = ALPHA / len(p)
    for rank, k in enumerate(order):
        if rejecting:
            level = ALPHA / (len(p) - rank)
            rejecting = p[k] <= level
        levels[k] = level
    return levels


def _largest_t(pairs: Sequence[Paired], rng: np.random.Generator, draws: int) -> float:
    """The 95 % quantile of the largest absolute t statistic when there is no difference."""
    deviation = np.array([np.sqrt(pair.variance) for pair in pairs])
    signs = rng.choice([-1.0, 1.0], size=(draws, len(pairs[0].hospital_parts)))
    t = signs @ np.array([pair.hospital_parts for pair in pairs]).T
    if min(pair.seeds for pair in pairs) >= ENOUGH_SEEDS:
        signs = rng.choice([-1.0, 1.0], size=(draws, len(pairs[0].seed_parts)))
        t += signs @ np.array([pair.seed_parts for pair in pairs]).T
    return float(np.quantile(np.abs(t / deviation).max(axis=1), 1 - ALPHA))
