"""Equity of a model between hospitals: figures over hospitals, and differences between strategies.

Sources: site equity is Zhou, CHiP-FL, section 5.1; AD and SDAD are Jimenez-Gutierrez et al., Clust-PSI-PFL. A hospital
with an undefined metric (NaN: its test rows have one class) is left out and counted, never treated as 0 or 0.5.
Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats

NAN = float("nan")

BLOCK = 1 << 19
"""Largest number of entries of the matrix of a block of samples, 4 MB. A block has at least :data:`ROWS` samples."""

ROWS = 64
"""The number of samples in a block, and the number of lowest hospitals that are considered, are multiples of this. BLAS
works on groups of rows and columns; complete groups give the same bits in any block, and additional columns of zeros
change no bit."""


def equity(auroc: ArrayLike, test_rows: ArrayLike, stays: ArrayLike) -> dict[str, float]:
    """Compute figures over ``H`` hospitals of a metric for which larger is better, each argument ``[H]``.

    ``auroc`` is NaN if undefined. ``test_rows`` are the rows on which it was measured (weights ``v_i``; 0 leaves the
    hospital out), and ``stays`` all rows of the hospital (``n_i``). The result has these figures by name, over the
    ``M`` hospitals with test rows and a defined metric:

    - ``auroc``: mean weighted by test rows; ``mean_unweighted``;
    - ``worst_decile``: mean of the ``ceil(M / 10)`` lowest; ``p10``: the 10 % quantile, linearly interpolated;
    - ``gini``: mean absolute difference of all pairs over twice the mean; ``std``: population standard deviation;
    - ``size_bias``: least-squares slope on ``ln n_i``, per unit of ``ln``; **positive: larger hospitals do better**;
      ``size_bias_abs`` is its absolute value;
    - ``undefined``: hospitals with test rows and no defined metric; ``hospitals``: ``M``.

    All except ``auroc`` are unweighted. For ``M = 0``, all except the two counts are NaN. For ``M < 2``, ``gini``,
    ``std`` and the slopes are NaN; the slopes also if all hospitals have the same size.
    """
    return over_hospitals("auroc", auroc, test_rows, stays, larger=True)


def error_equity(mae: ArrayLike, test_rows: ArrayLike, stays: ArrayLike) -> dict[str, float]:
    """Compute the figures of :func:`equity` for a metric for which smaller is better, here ``mae [H]``.

    The names are the same, with ``mae`` instead of ``auroc`` and these differences: ``worst_decile`` is the mean of the
    ``ceil(M / 10)`` **highest**; ``p90``, the 90 % quantile, replaces ``p10``; and a **positive** ``size_bias`` means
    that larger hospitals have larger errors: **smaller hospitals do better**.
    """
    return over_hospitals("mae", mae, test_rows, stays, larger=False)


def over_hospitals(
    name: str, metric: ArrayLike, test_rows: ArrayLike, stays: ArrayLike, *, larger: bool
) -> dict[str, float]:
    """Compute the figures of :func:`equity` (or, if not ``larger``, of :func:`error_equity`) for any ``metric``.

    ``metric [H]`` is NaN if undefined; ``name`` is the key of its mean weighted by ``test_rows``.
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
    """Compute figures of accuracy over hospitals.

    ``accuracy`` is weighted by test rows. ``ad`` and ``sdad`` are the mean and the population standard deviation of ``1
    - accuracy``. The others are the least and greatest accuracy, their difference (``accuracy_range``), and the
    standard deviation divided by the mean (``accuracy_cv``). Arguments are ``[H]``; hospitals without test rows, or
    with NaN, are left out. If no hospital is left, all figures are NaN; if one is left, the standard deviations and the
    difference are NaN.
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
    """Return the mean of the ``ceil(M / 10)`` lowest of ``values [..., M]``, ``[...]``; NaN for ``M = 0``.

    If not ``larger``, it is the mean of the highest.
    """
    count = -(-values.shape[-1] // 10)
    if count == 0:
        return np.full(values.shape[:-1], NAN)
    ordered = np.sort(values, axis=-1)
    worst: Floats = (ordered[..., :count] if larger else ordered[..., -count:]).mean(axis=-1)
    return np.asarray(worst)


def gini(values: NDArray[Any]) -> float:
    """Return ``sum_ij |a_i - a_j| / (2 M^2 mean a)`` of ``values [M]``; NaN for ``M < 2`` and for a mean of 0.

    It is computed from the sorted values, where the sum over pairs is a sum over ranks: ``sum_k (2 k - M + 1) a_(k)``.
    """
    m = len(values)
    total = float(np.sum(values))
    if m < 2 or total == 0:
        return NAN
    ranks = 2.0 * np.arange(m) - (m - 1)
    return float(ranks @ np.sort(values)) / (m * total)


def size_slope(values: NDArray[Any], stays: NDArray[Any]) -> float:
    """Return the least-squares slope of ``values [M]`` on ``ln stays [M]``; NaN if all sizes are equal or one is 0."""
    if len(values) < 2 or np.ptp(stays) == 0 or np.min(stays) <= 0:
        return NAN
    x = np.log(stays)
    x -= x.mean()
    return float(x @ (values - values.mean()) / (x @ x))


def pareto_front(values: ArrayLike) -> NDArray[np.bool_]:
    """Return which rows of ``values [n, d]`` no other row dominates, ``[n]``; larger is better in every column.

    A row dominates another if it is nowhere smaller and somewhere larger; equal rows do not dominate each other. A row
    with NaN is never on the front and dominates nothing.
    """
    v = np.asarray(values, dtype=np.float64)
    no_smaller = (v[:, None, :] >= v[None, :, :]).all(axis=2)
    larger = (v[:, None, :] > v[None, :, :]).any(axis=2)
    dominated = np.logical_or.reduce(no_smaller & larger, axis=0)
    return np.asarray(~(dominated | np.logical_or.reduce(np.isnan(v), axis=1)))


class Difference(NamedTuple):
    """A paired difference over seeds: ``mean``, sample ``std`` (``ddof=1``) and the number of ``pairs``."""

    mean: float
    std: float
    pairs: int


def paired_difference(a: ArrayLike, b: ArrayLike) -> Difference:
    """Return ``a - b`` over seeds, both ``[S]`` in the same order of seeds; pairs with a NaN are left out.

    ``mean`` is NaN without pairs, ``std`` with fewer than two.
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
    """Return the paired bootstrap percentile interval of a figure's difference ``a - b`` over hospitals.

    ``a`` and ``b`` ``[H]``, or ``[S, H]`` for ``S`` seeds, are the metric at the same hospitals under two strategies;
    ``figure`` is ``worst_decile``, or any other name for the mean. Hospitals are sampled with replacement ``draws``
    times, with the same sample for both sides and all seeds. A sample's figure is the difference of the worst deciles,
    or of the means weighted by ``test_rows`` (of the shape of ``a``). The figure is computed over the sampled hospitals
    with test rows and both sides defined, and averaged over seeds. The interval is around the mean of
    :func:`paired_difference` and measures how much that mean depends on the hospitals. Seeds without any such hospital
    are left out of the interval and of the mean. ``larger`` says whether larger metrics are better. NaN, NaN for fewer
    than two hospitals.
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
    """Return how often each hospital is in each of ``draws`` bootstrap samples, ``[hospitals, draws]``.

    Samples are adjacent in memory, so that one sum over hospitals computes all samples.
    """
    places = rng.integers(hospitals, size=(draws, hospitals))
    places *= draws
    places += np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=hospitals * draws).reshape(hospitals, draws).astype(np.int32)


def _lowest_of_samples(
    values: Floats, columns: NDArray[np.int64], times: NDArray[np.int32], count: NDArray[np.int32]
) -> Floats:
    """Return the mean of the ``count [R]`` lowest of the hospitals' ``values`` in each bootstrap sample, ``[R]``.

    ``times[h, r]`` is how often hospital ``h`` of ``columns`` is in sample ``r``. Values are sorted once. In a sample,
    each value is repeated as often as its hospital is in the sample. The lowest ``count`` values of a sample therefore
    belong to the first few hospitals in this order.
    """
    order = columns[np.argsort(values[columns])]
    wide = -(-len(order) // (5 * ROWS)) * ROWS
    copies = np.cumsum(times[order[:wide]], axis=0, dtype=np.int32)
    while wide < len(order) and (copies[-1] < count).any():
        wide *= 2
        copies = np.cumsum(times[order[:wide]], axis=0, dtype=np.int32)
    taken = np.diff(np.minimum(copies, count), axis=0, prepend=np.int32(0)).astype(np.float64)
    return (taken.T @ values[order[:wide]]) / count
