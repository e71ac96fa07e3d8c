"""Each hospital's estimate drawn towards the mean as far as chance explains it, the spread itself being uncertain.

Shrinking by one estimate of the spread takes that for the truth: its intervals are too narrow exactly where the spread
is hard to see. Here every spread counts as far as the data support it. Sources: Rubin 1981; a spread that is uniform
beforehand, Gelman 2006.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

WIDEST = 0.5
"""The largest standard deviation that numbers between 0 and 1 can have."""

GRID = 200
"""Spreads that are tried, closer together the smaller they are."""


class Posterior(NamedTuple):
    """Mean and standard deviation of each hospital's true figure, ``[k]``, and of a further hospital's."""

    mean: Floats
    sd: Floats
    further_mean: float
    further_sd: float


def posterior(y: ArrayLike, v: ArrayLike) -> Posterior:
    """From estimates ``y [k]`` between 0 and 1 with variances ``v [k]``, normal around a normal distribution.

    Its mean may be anything, and its standard deviation anything up to :data:`WIDEST`, equally likely beforehand.
    """
    estimates, variances = np.asarray(y, dtype=np.float64), np.asarray(v, dtype=np.float64)
    steps = (np.arange(GRID) + 0.5) / GRID
    taus = WIDEST * steps**2
    log_weight = np.empty(GRID)
    for place, tau in enumerate(taus):
        w = 1.0 / (variances + tau**2)
        mu = w @ estimates / w.sum()
        log_weight[place] = 0.5 * (np.log(w).sum() - np.log(w.sum()) - w @ np.square(estimates - mu))
    weight = steps * np.exp(log_weight - log_weight.max())  # a step of the grid is as wide as it is far from 0
    weight /= weight.sum()
    mean, square = np.zeros((2, len(estimates)))
    further = np.zeros(2)
    for share, tau in zip(weight, taus, strict=True):
        w = 1.0 / (variances + tau**2)
        mu, shrinkage = w @ estimates / w.sum(), tau**2 * w
        centre = mu + shrinkage * (estimates - mu)
        mean += share * centre
        square += share * (variances * shrinkage + np.square(1 - shrinkage) / w.sum() + np.square(centre))
        further += share * np.array([mu, tau**2 + 1.0 / w.sum() + mu**2])
    further_mean, further_square = further.tolist()
    return Posterior(
        mean, np.sqrt(square - np.square(mean)), further_mean, float(np.sqrt(further_square - further_mean**2))
    )
