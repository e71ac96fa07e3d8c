"""The difference of two models' AUROC at each hospital separately, from the hospital's messages.

The variance over a hospital's patients is estimated in two ways. The estimate that gives the wider interval, or the
larger p-value, is used.

- The own variance is DeLong's variance of the difference, from sketches of both models
  (:mod:`raysim.statistics.discrimination.sketches`). With few rows of the rarer class it varies much, so its t quantile
  has few degrees of freedom.
- The common variance is proportional to ``1 / events + 1 / non-events``. Its factor is averaged over all hospitals.

Definitions and coverage: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.levels import ALPHA
from raysim.statistics.discrimination.auroc import PairSums, u_statistics
from raysim.statistics.discrimination.sketches import SUMS
from raysim.statistics.intervals import stdtrit
from raysim.statistics.over_seeds import OverSeeds, mean_of, squared_reach


class Sent(NamedTuple):
    """The messages of ``H`` hospitals about one model trained with one seed. ``pairs`` are sums over pairs of rows,
    which give the AUROC. ``sketches [H, B]`` are ``B`` randomly weighted sums over rows, from which variances are
    estimated.
    """

    pairs: PairSums
    sketches: NDArray[np.float32]


class OneSeed(NamedTuple):
    """The difference in AUROC of two models with one training seed, at each of ``H`` hospitals.

    - ``difference [H]``, and two estimates of its variance, ``own [H]`` and ``common [H]``. All three are NaN if the
      AUROC of one of the models is undefined.
    - ``rarer [H]``: the number of rows of the rarer class.
    - ``sums [H, B]``: the differences of the two models' randomly weighted sums, from which ``own`` is estimated.
    """

    difference: Floats
    own: Floats
    common: Floats
    rarer: Floats
    sums: Floats


def one_seed(model: Sent, against: Sent) -> OneSeed:
    """Compute the AUROC of ``model`` minus that of ``against`` at each hospital, and two estimates of this difference's
    variance, for one training seed. ``common`` is NaN if no hospital has two rows of each class.
    """
    difference = u_statistics(model.pairs).auroc - u_statistics(against.pairs).auroc
    judged = np.isfinite(difference)
    sums = np.where(judged[:, None], model.sketches.astype(np.float64) - against.sketches, np.nan)
    m, n = (np.where(judged, count, np.nan) for count in (model.pairs.events, model.pairs.non_events))
    own, size, rarer = np.square(sums).mean(axis=1), 1 / m + 1 / n, np.minimum(m, n)
    weight = np.where(judged, rarer - 1, 0.0)
    total = weight.sum()
    factor = np.where(weight > 0, own / size, 0.0) @ weight / total if total else np.nan
    return OneSeed(difference, own, factor * size, rarer, sums)


def own_freedom(rarer: Floats) -> Floats:
    """Return the degrees of freedom of the own variance, ``[H]``; ``rarer [H]`` are the numbers of rows of the rarer
    class.
    """
    with np.errstate(divide="ignore"):
        return 1 / (1 / SUMS + 1 / np.maximum(rarer - 1, 0.0))


def gain(models: Sequence[Sent], against: Sequence[Sent]) -> OverSeeds:
    """Compute the mean over seeds of the difference in AUROC of two models at each hospital, with its 95 % interval.

    ``models`` and ``against`` are the hospitals' messages about each model, with the same seeds and hospitals. The
    half-width due to patients is computed from each of the two variances in :class:`OneSeed`, and the larger is used.
    Patients who are tested in several seeds count once.

    Limits are clipped to -1 and 1 only. Even if the observed AUROC of ``against`` is 1, the upper limit can be above 0:
    with few events, an observed AUROC is often 1 although the true AUROC is not. Limits are NaN at a hospital that has
    only one row of a class in some seed.
    """
    seeds = [one_seed(one, other) for one, other in zip(models, against, strict=True)]
    each = np.stack([seed.difference for seed in seeds])
    defined = np.isfinite(each)
    mean = mean_of(each, defined)
    together = mean_of(np.stack([seed.sums for seed in seeds]), defined[:, :, None])
    own, of_seeds = np.square(together).mean(axis=1), mean_of(np.stack([seed.own for seed in seeds]), defined)
    with np.errstate(invalid="ignore", divide="ignore"):
        shared = np.where(of_seeds > 0, own / of_seeds, 1.0)
    common = shared * mean_of(np.nan_to_num([seed.common for seed in seeds]), defined)
    rarer = np.fmin.reduce([seed.rarer for seed in seeds])
    single = np.where(rarer < 2, np.nan, 1.0)  # a single row's own influence is unknown
    of_own = stdtrit(own_freedom(rarer), ALPHA / 2) ** 2 * own
    patients = single * np.fmax(of_own, float(stdtrit(SUMS, ALPHA / 2)) ** 2 * common)
    reach = np.sqrt(patients + squared_reach(each, mean, defined))
    return OverSeeds(mean, np.maximum(mean - reach, -1.0), np.minimum(mean + reach, 1.0), defined.sum(axis=0))
