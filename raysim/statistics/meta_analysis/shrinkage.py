"""Empirical-Bayes (shrunken) estimate of each hospital, the spread itself being uncertain.

Shrinking by one estimate of the spread takes that for the truth: its intervals are too narrow exactly where the spread
is hard to see. Here every spread counts as far as the data support it. Sources: Rubin 1981; what is uniform beforehand,
Gelman 2006.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

WIDEST = 0.5
"""The largest standard deviation that numbers between 0 and 1 can have."""

GRID = 200
"""Spreads that are tried, closer together the smaller they are."""

AT_ONCE = 8192
"""Hospitals whose numbers at all spreads are in memory at once."""


class Posterior(NamedTuple):
    """Mean and standard deviation of each hospital's true figure, ``[k]``, and of a further hospital's."""

    mean: Floats
    sd: Floats
    further_mean: float
    further_sd: float


def posterior(y: ArrayLike, v: ArrayLike, widest: float = WIDEST) -> Posterior:
    """From estimates ``y [k]`` with variances ``v [k]``, normal around a normal distribution.

    Its mean may be anything, and its variance anything up to the square of ``widest``, equally likely beforehand. A
    standard deviation that is equally likely beforehand is too often close to 0: its intervals cover too little.
    """
    estimates, variances = np.asarray(y, dtype=np.float64), np.asarray(v, dtype=np.float64)
    steps = (np.arange(GRID) + 0.5) / GRID
    taus = widest * steps**2
    squared = np.square(taus)
    blocks = [slice(low, low + AT_ONCE) for low in range(0, len(estimates), AT_ONCE)]

    @lru_cache(maxsize=1)  # where there is one block, it is computed once
    def precisions(first: int) -> Floats:
        return 1.0 / (variances[first : first + AT_ONCE] + squared[:, None])

    total, weighted, logs, residuals = (np.zeros(GRID) for _ in range(4))
    for block in blocks:
        w = precisions(block.start)
        total += w.sum(axis=1)
        weighted += _dot(w, estimates[block])
        logs += np.log(w).sum(axis=1)
    mu = weighted / total
    for block in blocks:
        residuals += _dot(precisions(block.start), np.square(estimates[block] - mu[:, None]))
    log_weight = 0.5 * (logs - np.log(total) - residuals)
    # A step of the grid is as wide as its place is far from 0, and the variance changes by it times the spread.
    weight = steps * taus * np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean, sd = np.empty_like(estimates), np.empty_like(estimates)
    # Variances are of distances from the mean: a mean square less the mean's has no digits left where they are small.
    for block in blocks:
        shrinkage = squared[:, None] * precisions(block.start)
        centre = mu[:, None] + shrinkage * (estimates[block] - mu[:, None])
        mean[block] = (weight[:, None] * centre).sum(axis=0)
        variance = variances[block] * shrinkage + np.square(1 - shrinkage) / total[:, None]
        variance += np.square(centre - mean[block])
        sd[block] = np.sqrt((weight[:, None] * variance).sum(axis=0))
    further = (weight * mu).sum()
    variance = (weight * (squared + 1.0 / total + np.square(mu - further))).sum()
    return Posterior(mean, sd, float(further), float(np.sqrt(variance)))


def _dot(a: Floats, b: Floats) -> Floats:
    """The product of each row of ``a [T, k]`` with ``b [k]``, or with its row of ``b [T, k]``, ``[T]``."""
    return np.asarray(np.matmul(a[:, None, :], np.broadcast_to(b, a.shape)[:, :, None])[:, 0, 0])
