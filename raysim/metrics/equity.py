"""Equity of a model between hospitals: metrics over hospitals, and differences between strategies.

Sources: site equity is from Zhou, *CHiP-FL*, section 5.1. AD and SDAD (the mean and standard deviation of ``1 -
accuracy``) are from Jimenez-Gutierrez et al., *Clust-PSI-PFL*, arXiv:2512.20363, 2025. A hospital whose metric is
undefined (NaN, such as AUROC if its test rows have one class) is left out and counted; its metric is never treated as 0
or 0.5. Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats

NAN = float("nan")

BLOCK = 1 << 19
"""Largest number of entries (hospitals times bootstrap samples) of the matrix computed at a time, 4 MB. The matrix
is larger only with more than 8,192 hospitals."""

ROWS = 64
"""Bootstrap samples and hospitals are divided among matrices in multiples of this number.

BLAS computes rows and columns in groups. With complete groups, results are the same bit for bit with any :data:`BLOCK`.
"""


def equity(auroc: ArrayLike, test_rows: ArrayLike, stays: ArrayLike) -> dict[str, float]:
    """Summarise a metric over ``H`` hospitals, with larger values better; each argument is ``[H]``.

    ``auroc`` is a hospital's metric, NaN if undefined; ``test_rows`` the number of rows on which it was measured;
    ``stays`` the number of all rows of the hospital (``n_i``). The result has these values, computed over the ``M``
    hospitals with test rows and a defined metric:

    - ``auroc``: the mean weighted by test rows; ``mean_unweighted``: the unweighted mean;
    - ``worst_decile``: the mean of the ``ceil(M / 10)`` lowest metrics; ``p10``: the 10 % quantile, linearly
      interpolated;
    - ``gini``: the mean absolute difference of all pairs, divided by twice the mean; ``std``: the population standard
      deviation;
    - ``size_bias``: the least-squares slope of the metric on ``ln n_i``; **positive: larger hospitals do better**;
      ``size_bias_abs``: its absolute value;
    - ``undefined``: the number of hospitals with test rows and an undefined metric; ``hospitals``: ``M``.

    All except ``auroc`` are unweighted. For ``M = 0``, all except ``undefined`` and ``hospitals`` are NaN. For ``M <
    2``, ``gini``, ``std``, ``size_bias`` and ``size_bias_abs`` are NaN. Both size biases are NaN also if all sizes are
    equal or one is 0, and ``gini`` if the mean is 0.
    """
    return over_hospitals("auroc", auroc, test_rows, stays, larger=True)


def error_equity(mae: ArrayLike, test_rows: ArrayLike, stays: ArrayLike) -> dict[str, float]:
    """Summarise a metric for which smaller values are better; ``mae [H]`` is each hospital's metric.

    The result is that of :func:`equity`, but with ``mae`` instead of ``auroc``, and ``p90`` (the 90 % quantile) instead
    of ``p10``. ``worst_decile`` is the mean of the ``ceil(M / 10)`` **highest** of ``M`` hospitals. A **positive**
    ``size_bias`` means that larger hospitals have larger errors: **smaller hospitals do better**. An infinite metric
    counts as undefined.
    """
    return over_hospitals("mae", mae, test_rows, stays, larger=False)


def over_hospitals(
    name: str, metric: ArrayLike, test_rows: ArrayLike, stays: ArrayLike, *, larger: bool
) -> dict[str, float]:
    """Summarise any metric. If larger values are better (``larger``), the result is as in :func:`equity`, otherwise as
    in :func:`error_equity`.

    ``metric [H]`` is each hospital's value, NaN if undefined. The mean weighted by ``test_rows`` has the key ``name``.
    """
    values, rows, sizes = (np.asarray(a, dtype=np.float64) for a in (metric, test_rows, stays))
    if not values.shape == rows.shape == sizes.shape or values.ndim != 1:
        shapes = f"{values.shape}, {rows.shape}, {sizes.shape}"
        raise ValueError(f"{name}, test_rows, stays: shapes {shapes} must all be [H]")
    tested = rows > 0
    counted = tested & np.isfinite(values)
    a, v, n = values[counted], rows[counted], sizes[counted]
    slope = size_slope(a, n)
    quantile, share = ("p10", 0.1) if larger else ("p90", 0.9)
    return {
        name: float(v @ a / v.sum()) if len(a) else NAN,
        "mean_unweighted": float(a.mean()) if len(a) else NAN,
        "worst_decile": float(worst_decile(a, larger=larger)),
        quantile: float(np.quantile(a, share)) if len(a) else NAN,
        "gini": gini(a),
        "std": float(a.std()) if len(a) > 1 else NAN,
        "size_bias": slope,
        "size_bias_abs": abs(slope),
        "undefined": float(tested.sum() - counted.sum()),
        "hospitals": float(len(a)),
    }


def accuracy_equity(accuracy: ArrayLike, test_rows: ArrayLike) -> dict[str, float]:
    """Summarise accuracy over ``H`` hospitals; both arguments are ``[H]``.

    - ``accuracy``: the mean, weighted by test rows;
    - ``ad`` and ``sdad``: the mean and the population standard deviation of ``1 - accuracy``, unweighted;
    - ``accuracy_min``, ``accuracy_max`` and ``accuracy_range`` (their difference);
    - ``accuracy_cv``: the standard deviation divided by the unweighted mean.

    Hospitals without test rows or with NaN are left out. Without hospitals, all values are NaN; with one, ``sdad``,
    ``accuracy_range`` and ``accuracy_cv`` are NaN. ``accuracy_cv`` is NaN also if the mean is 0.
    """
    values, rows = (np.asarray(a, dtype=np.float64) for a in (accuracy, test_rows))
    counted = (rows > 0) & np.isfinite(values)
    a, v = values[counted], rows[counted]
    if not len(a):
        return dict.fromkeys(
            ("accuracy", "ad", "sdad", "accuracy_min", "accuracy_max", "accuracy_range", "accuracy_cv"), NAN
        )
    several, mean = len(a) > 1, float(a.mean())
    sdad = float(np.std(1.0 - a)) if several else NAN
    return {
        "accuracy": float(v @ a / v.sum()),
        "ad": float(np.mean(1.0 - a)),
        "sdad": sdad,
        "accuracy_min": float(a.min()),
        "accuracy_max": float(a.max()),
        "accuracy_range": float(np.ptp(a)) if several else NAN,
        "accuracy_cv": sdad / mean if mean > 0 else NAN,
    }


def worst_decile(values: NDArray[Any], *, larger: bool = True) -> Floats:
    """Return the mean of the worst ``ceil(M / 10)`` of ``M`` values, over the last axis of ``values [..., M]``; NaN for
    ``M = 0``. The worst values are the lowest if ``larger`` is true, otherwise the highest.
    """
    count = -(-values.shape[-1] // 10)
    if count == 0:
        return np.full(values.shape[:-1], NAN)
    ordered = np.sort(values, axis=-1)
    worst: Floats = (ordered[..., :count] if larger else ordered[..., -count:]).mean(axis=-1)
    return np.asarray(worst)


def gini(values: NDArray[Any]) -> float:
    """Return the Gini index ``sum_ij |a_i - a_j| / (2 M^2 mean a)`` of ``values [M]``; NaN for ``M < 2`` and for a mean
    of 0.
    """
    m = len(values)
    total = float(np.sum(values))
    if m < 2 or total == 0:
        return NAN
    ranks = 2.0 * np.arange(m) - (m - 1)
    return float(ranks @ np.sort(values)) / (m * total)


def size_slope(values: NDArray[Any], stays: NDArray[Any]) -> float:
    """Return the least-squares slope of ``values [M]`` on ``ln stays [M]``; NaN if ``stays`` are equal or one is 0."""
    if len(values) < 2 or np.ptp(stays) == 0 or np.min(stays) <= 0:
        return NAN
    x = np.log(stays)
    x -= x.mean()
    return float(x @ (values - values.mean()) / (x @ x))


def pareto_front(values: ArrayLike) -> NDArray[np.bool_]:
    """Return for each row of ``values [n, d]`` whether no other row dominates it; larger is better in every column.

    A row dominates another if none of its values is smaller and at least one is larger. A row with NaN is never on the
    front and dominates nothing.
    """
    v = np.asarray(values, dtype=np.float64)
    no_smaller = (v[:, None, :] >= v[None, :, :]).all(axis=2)
    larger = (v[:, None, :] > v[None, :, :]).any(axis=2)
    dominated = np.logical_or.reduce(no_smaller & larger, axis=0)
    return np.asarray(~(dominated | np.logical_or.reduce(np.isnan(v), axis=1)))


class Difference(NamedTuple):
    """A paired difference over seeds: ``mean``, sample standard deviation ``std`` (``ddof=1``), and number of
    ``pairs``.
    """

    mean: float
    std: float
    pairs: int


def paired_difference(a: ArrayLike, b: ArrayLike) -> Difference:
    """Summarise the differences ``a - b`` over ``S`` seeds; ``a`` and ``b`` are ``[S]``. Seeds with a NaN are left out.

    ``mean`` is NaN without pairs, and ``std`` with fewer than two pairs.
    """
    d = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    d = d[np.isfinite(d)]
    return Difference(float(d.mean()) if len(d) else NAN, float(d.std(ddof=1)) if len(d) > 1 else NAN, len(d))


def paired_interval(
    a: ArrayLike,
    b: ArrayLike,
    test_rows: ArrayLike,
    rng: np.random.Generator,
    *,
    figure: str = "auroc",
    larger: bool = True,
    draws: int = 2000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the paired bootstrap percentile interval of the difference ``a - b`` over hospitals.

    ``a`` and ``b`` are the metric at the same ``H`` hospitals under two strategies, ``[H]``, or ``[S, H]`` for ``S``
    seeds. If ``figure`` is ``worst_decile``, worst deciles are compared; otherwise, means weighted by ``test_rows`` are
    compared. ``test_rows`` has the shape of ``a``. ``larger`` says whether larger metrics are better.

    Hospitals are sampled with replacement ``draws`` times, with the same sample for ``a``, ``b`` and all seeds;
    differences are averaged over seeds. Only hospitals with test rows and a defined metric under both strategies count.
    A seed without such hospitals is left out. A bootstrap sample is left out if it has no such hospital in one of the
    remaining seeds.

    The limits are NaN for fewer than two hospitals.
    """
    left, right, rows = (np.atleast_2d(np.asarray(x, dtype=np.float64)) for x in (a, b, test_rows))
    counted = (rows > 0) & np.isfinite(left) & np.isfinite(right)
    defined = np.ix_(np.logical_or.reduce(counted, axis=1), np.logical_or.reduce(counted, axis=0))
    left, right, rows, counted = left[defined], right[defined], rows[defined], counted[defined]
    hospitals = left.shape[1]
    if hospitals < 2:
        return NAN, NAN
    if not larger:
        left, right = -right, -left  # the difference is the same, and the lowest values are now the worst
    total = np.zeros(draws)
    step = max(BLOCK // hospitals // ROWS, 1) * ROWS
    for first in range(0, draws, step):
        block = total[first : first + step]
        times = _times(rng, len(block), hospitals)
        # The number of hospitals in each sample whose metric is defined for the seed, [S, R].
        defines = counted.astype(np.float64) @ times.astype(np.float64)
        with np.errstate(invalid="ignore"):  # 0 / 0 if the seed defines no sampled hospital: left out
            for p, q, v, there, among in zip(left, right, rows, counted, defines, strict=True):
                columns = np.flatnonzero(there)
                if figure == "worst_decile":
                    worst = np.ceil(among / 10).astype(np.int32)
                    block += _lowest_of_samples(p, columns, times, worst) - _lowest_of_samples(q, columns, times, worst)
                else:
                    weights, p, q, v = times[columns].T.astype(np.float64), p[columns], q[columns], v[columns]
                    block += (weights @ (v * (p - q))) / (weights @ v)
    differences = total[np.isfinite(total)] / len(left)
    if not len(differences):
        return NAN, NAN
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _times(rng: np.random.Generator, draws: int, hospitals: int) -> NDArray[np.int32]:
    """Return how often each hospital is in each of ``draws`` bootstrap samples, ``[hospitals, draws]``."""
    places = rng.integers(hospitals, size=(draws, hospitals))
    places *= draws
    places += np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=hospitals * draws).reshape(hospitals, draws).astype(np.int32)


def _lowest_of_samples(
    values: Floats, columns: NDArray[np.int64], times: NDArray[np.int32], count: NDArray[np.int32]
) -> Floats:
    """Return the mean of the lowest values in each of ``R`` bootstrap samples of hospitals, ``[R]``. ``count [R]`` is
    the number of lowest values in each sample.

    ``columns`` are the indices of the hospitals that are considered, and ``times[h, r]`` is how often hospital ``h`` is
    in sample ``r``.
    """
    order = columns[np.argsort(values[columns])]
    wide = -(-len(order) // (5 * ROWS)) * ROWS
    copies = np.cumsum(times[order[:wide]], axis=0, dtype=np.int32)
    while wide < len(order) and (copies[-1] < count).any():
        wide *= 2
        copies = np.cumsum(times[order[:wide]], axis=0, dtype=np.int32)
    taken = np.diff(np.minimum(copies, count), axis=0, prepend=np.int32(0)).astype(np.float64)
    return (taken.T @ values[order[:wide]]) / count
