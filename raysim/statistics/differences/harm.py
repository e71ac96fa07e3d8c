"""At how many hospitals one model is shown to be worse than another, and at how many better.

Each hospital's difference of AUROC is tested in both directions, with two variances
(:mod:`raysim.statistics.differences.one_hospital`); the larger p-value counts. Fewer than ten rows of the rarer class
tell nothing: the p-value is then 1, and the hospital is counted. Names and counts are corrected for being many
(:mod:`raysim.statistics.several`).

Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from raysim.statistics.differences.one_hospital import Sent, one_seed
from raysim.statistics.discrimination.sketches import SUMS
from raysim.statistics.several import Bound, bound

Floats = NDArray[np.float64]

ENOUGH = 10
"""Rows of its rarer class below which a hospital's difference is too uncertain to tell."""


class Harm(NamedTuple):
    """``losses`` and ``gains``: the hospitals that are shown to lose or gain, each at a level of 5 % of its own.

    ``too_few``: judged hospitals with too few rows of the rarer class to tell.
    """

    losses: Bound
    gains: Bound
    too_few: int


class OneSided(NamedTuple):
    """P-values of each hospital's ``difference [H]``, of being negative (``loss``) and positive (``gain``), ``[H]``.

    NaN where one of the models is not judged; 1 where ``few [H]`` says that there are too few rows to tell.
    """

    difference: Floats
    loss: Floats
    gain: Floats
    few: NDArray[np.bool_]


def harm(models: Sequence[Sent], against: Sequence[Sent]) -> Harm:
    """Whom a model harms, and who gains: ``models [S]`` and ``against [S]`` are of the same seeds and hospitals.

    A hospital's p-value is the largest over the seeds that judge it: every such seed has to show it.
    """
    seeds = [one_sided(one, other) for one, other in zip(models, against, strict=True)]
    # Where a seed judges no difference, ``fmax`` takes the others.
    losses, gains = np.fmax.reduce([s.loss for s in seeds]), np.fmax.reduce([s.gain for s in seeds])
    return Harm(bound(losses), bound(gains), int(np.any([s.few for s in seeds], axis=0).sum()))


def one_sided(model: Sent, against: Sent) -> OneSided:
    """The tests of each hospital in one seed."""
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
    """The chance of a smaller ``statistic``; 1 for a difference of 0 without a variance.

    A variance that is estimated by so many ``draws`` gives Student's t of as many degrees of freedom.
    """
    below = ndtr(statistic) if np.isinf(draws) else stdtr(draws, statistic)
    return np.where(np.isnan(statistic), 1.0, below)
