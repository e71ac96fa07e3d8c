"""The difference of two models' worst deciles: an interval that allows for other hospitals and training seeds.

Hospitals are resampled (bootstrap), each with the figures of both models. Seeds are too few to resample: the variance
due to seeds is estimated from the differences in each seed, as in :mod:`raysim.statistics.differences.paired`.
Coverage: ``docs/statistics.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.levels import LEVEL
from raysim.metrics.equity import paired_interval, worst_decile
from raysim.statistics.differences.paired import NAN, Limits
from raysim.statistics.intervals import stdtrit


def worst_decile_difference(
    first: ArrayLike,
    second: ArrayLike,
    rows: ArrayLike,
    rng: np.random.Generator,
    *,
    larger: bool = True,
    draws: int = 2000,
    level: float = LEVEL,
) -> Limits:
    """Return the interval of the difference between two models' worst deciles (means over the worst tenth of ``H``
    hospitals), ``first`` minus ``second``.

    ``first`` and ``second`` are the models' figures at each hospital, and ``rows`` the numbers of test rows. All three
    have the shape ``[S, H]``, for ``S`` training seeds. A hospital is left out in a seed in which it has no rows or one
    of its figures is NaN. With one seed, the interval does not cover differences between seeds. Limits are NaN for
    fewer than two hospitals.
    """
    a, b, r = (np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (first, second, rows))
    defined = (r > 0) & np.isfinite(a) & np.isfinite(b)
    low, high = paired_interval(a, b, r, rng, figure="worst_decile", larger=larger, draws=draws, level=level)
    of_seeds = np.array(
        [
            float(worst_decile(a[s, present], larger=larger) - worst_decile(b[s, present], larger=larger))
            for s, present in enumerate(defined)
            if present.any()
        ]
    )
    if np.isnan(low):
        return Limits(NAN, NAN)
    value, seeds = float(of_seeds.mean()), len(of_seeds)
    reach = 0.0
    if seeds > 1:
        reach = float(stdtrit(seeds - 1, (1 - level) / 2)) ** 2 * float(of_seeds.var(ddof=1)) / seeds
    below, above = max(value - low, 0.0), max(high - value, 0.0)
    return Limits(value - float(np.sqrt(below**2 + reach)), value + float(np.sqrt(above**2 + reach)))
