"""The number of hospitals at which one model is demonstrably worse, or better, than another.

Each hospital's difference in AUROC is tested in both directions. Of the two variances in
:mod:`raysim.statistics.differences.one_hospital`, the one with the larger p-value is used. The numbers and the lists of
hospitals are corrected for multiplicity (:mod:`raysim.statistics.several`).

Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from raysim.core.arrays import Floats
from raysim.statistics.differences.one_hospital import Sent, one_seed, own_freedom
from raysim.statistics.several import Bound, bound

ENOUGH = 10
"""Smallest number of test rows of the rarer class for a test of the difference in AUROC at a hospital."""


class Harm(NamedTuple):
    """At how many and at which hospitals one model has a demonstrably lower (``losses``) or higher (``gains``) AUROC
    than another.

    ``too_few``: the number of hospitals with a defined difference, but with too few rows of the rarer class for a test.
    """

    losses: Bound
    gains: Bound
    too_few: int


class OneSided(NamedTuple):
    """One-sided p-values of the ``difference [H]`` in AUROC at each of ``H`` hospitals.

    ``loss [H]`` tests whether the difference is below 0, and ``gain [H]`` whether it is above 0. Both are NaN if the
    difference is undefined. They are 1 where ``few [H]`` is True: too few rows for a test.
    """

    difference: Floats
    loss: Floats
    gain: Floats
    few: NDArray[np.bool_]


def harm(models: Sequence[Sent], against: Sequence[Sent]) -> Harm:
    """Test at which hospitals a model has a lower or a higher AUROC than another.

    ``models [S]`` are the hospitals' messages for the model in ``S`` training seeds, and ``against [S]`` those for the
    other model, with the same seeds and hospitals. A hospital's p-value is the largest over seeds.
    """
    seeds = [one_sided(one, other) for one, other in zip(models, against, strict=True)]
    # ``fmax`` ignores the NaN of seeds in which the difference is undefined.
    losses, gains = np.fmax.reduce([s.loss for s in seeds]), np.fmax.reduce([s.gain for s in seeds])
    return Harm(bound(losses), bound(gains), int(np.any([s.few for s in seeds], axis=0).sum()))


def one_sided(model: Sent, against: Sent) -> OneSided:
    """Test at each hospital whether ``model`` has a lower or a higher AUROC than ``against``, in one training seed."""
    seed = one_seed(model, against)
    judged = np.isfinite(seed.difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_own, by_common = seed.difference / np.sqrt(seed.own), seed.difference / np.sqrt(seed.common)
    few = judged & (seed.rarer < ENOUGH)
    loss, gain = (
        np.where(few, 1.0, np.maximum(_tail(sign * by_own, own_freedom(seed.rarer)), _tail(sign * by_common)))
        for sign in (1, -1)
    )
    return OneSided(seed.difference, np.where(judged, loss, np.nan), np.where(judged, gain, np.nan), few)


def _tail(statistic: Floats, freedom: Floats | None = None) -> Floats:
    """Return the probability of a value below ``statistic``, which is a difference divided by its standard error. The
    result is 1 for NaN.

    The distribution is normal or, with ``freedom``, Student's t with these degrees of freedom.
    """
    below = ndtr(statistic) if freedom is None else stdtr(freedom, statistic)
    return np.where(np.isnan(statistic), 1.0, below)
