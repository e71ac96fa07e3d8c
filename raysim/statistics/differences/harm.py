"""The number of hospitals at which one model is demonstrably worse, or better, than another.

Each hospital's difference of AUROC is tested in both directions, with two variances
(:mod:`raysim.statistics.differences.one_hospital`); the larger p-value is used. With fewer than ten rows of the rarer
class the p-value is 1, and the hospital remains among the tested ones. The numbers of hospitals, and their names, are
corrected for multiplicity (:mod:`raysim.statistics.several`).

Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from raysim.core.arrays import Floats
from raysim.statistics.differences.one_hospital import Sent, one_seed
from raysim.statistics.discrimination.sketches import SUMS
from raysim.statistics.several import Bound, bound

ENOUGH = 10
"""Smallest number of rows of the rarer class for a test of a hospital's difference."""


class Harm(NamedTuple):
    """The hospitals that demonstrably lose (``losses``) or gain (``gains``). Losses and gains are tested at a level of
    5 % each.

    ``too_few``: the number of hospitals with a difference, but with too few rows of the rarer class for a test.
    """

    losses: Bound
    gains: Bound
    too_few: int


class OneSided(NamedTuple):
    """One-sided p-values of each hospital's ``difference [H]``: for a ``loss`` (below 0) and for a ``gain`` (above 0),
    ``[H]``.

    They are NaN if the difference is undefined, and 1 where ``few [H]`` marks too few rows for a test.
    """

    difference: Floats
    loss: Floats
    gain: Floats
    few: NDArray[np.bool_]


def harm(models: Sequence[Sent], against: Sequence[Sent]) -> Harm:
    """Test which hospitals a model harms, and which gain.

    ``models [S]`` and ``against [S]`` have the same seeds and hospitals. A hospital's p-value is the largest over
    seeds, without seeds in which it is undefined: every other seed has to demonstrate the difference.
    """
    seeds = [one_sided(one, other) for one, other in zip(models, against, strict=True)]
    # ``fmax`` ignores the NaN of seeds in which the difference is undefined.
    losses, gains = np.fmax.reduce([s.loss for s in seeds]), np.fmax.reduce([s.gain for s in seeds])
    return Harm(bound(losses), bound(gains), int(np.any([s.few for s in seeds], axis=0).sum()))


def one_sided(model: Sent, against: Sent) -> OneSided:
    """Test each hospital in one seed."""
    seed = one_seed(model, against)
    judged = np.isfinite(seed.difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_own, by_common = seed.difference / np.sqrt(seed.own), seed.difference / np.sqrt(seed.common)
    few = judged & (seed.rarer < ENOUGH)
    loss, gain = (
        np.where(few, 1.0, np.maximum(_tail(sign * by_own, SUMS), _tail(sign * by_common))) for sign in (1, -1)
    )
    return OneSided(seed.difference, np.where(judged, loss, np.nan), np.where(judged, gain, np.nan), few)


def _tail(statistic: Floats, draws: float = np.inf) -> Floats:
    """Return the probability of a value below ``statistic``; 1 for a difference of 0 without a variance.

    If the variance was estimated from ``draws`` numbers, Student's t with ``draws`` degrees of freedom is used.
    """
    below = ndtr(statistic) if np.isinf(draws) else stdtr(draws, statistic)
    return np.where(np.isnan(statistic), 1.0, below)
