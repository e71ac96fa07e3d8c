"""The population stability index (PSI): how far each hospital's distribution lies from that of all together.

D. M. Jimenez-Gutierrez, M. Hassanzadeh, A. Anagnostopoulos, I. Chatzigiannakis, A. Vitaletti: *Clust-PSI-PFL: A
Population Stability Index Approach for Clustered Non-IID Personalized Federated Learning*, arXiv:2512.20363, 2025. The
paper has PSI over classes; over quantile bins of features (:func:`feature_terms`) and over sizes (:func:`size_terms`)
it is an addition. The engine's own non-IID metrics use this module too.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, Ids

Smoothing = float | Literal["counts"]
"""How empty bins are smoothed. A number is added to every share, without renormalising. ``counts`` adds half a row to
every bin instead, which weighs less the more rows a hospital has (Jeffreys' prior, renormalised)."""

EPSILON: Smoothing = 0.05
"""The default smoothing. It decides what an empty bin costs, about ``P ln(P / epsilon)`` for a class of share P.
Figures are comparable under one epsilon only. Hospitals cluster best with this one where all else is equal
(``benchmarks/psi_smoothing.py``); the authors' is 1e-6, with which a single row in an otherwise empty class outweighs
how the others are shared.
"""


def check_smoothing(epsilon: Smoothing) -> None:
    """Raise ``ValueError`` naming ``epsilon`` unless it is ``counts`` or a number in (0, 1]."""
    if epsilon != "counts" and not 0 < epsilon <= 1:
        raise ValueError(f"epsilon: {epsilon} is not a number in (0, 1] or counts, half a row in every bin")


def psi_terms(counts: NDArray[Any], reference: NDArray[Any] | None = None, epsilon: Smoothing = EPSILON) -> Floats:
    """``(P_c - p_ic) ln(P_c / p_ic)`` of each hospital and bin, the shape of ``counts``: ``[H, C]`` or ``[H, D, C]``.

    ``P`` are the shares of all hospitals' counts, or of ``reference`` (``counts`` without its first axis): test rows
    are held against the training rows' shares. Shares are smoothed by ``epsilon``. Bins that are empty in ``P`` are
    left out, and a hospital without counts has no skew: both give 0. Terms are unsigned, so that opposite skews can
    look alike.
    """
    rows = np.asarray(counts, dtype=np.float64)
    pool = rows.sum(axis=0) if reference is None else np.asarray(reference, dtype=np.float64)
    totals = rows.sum(axis=-1, keepdims=True)
    expected, actual = _smoothed(pool, pool, epsilon), _smoothed(rows, pool, epsilon)
    terms: Floats = (expected - actual) * np.log(expected / actual)
    shown: Floats = np.where((pool > 0) & (totals > 0), terms, 0.0)
    return shown


def _smoothed(counts: NDArray[Any], pool: NDArray[Any], epsilon: Smoothing) -> Floats:
    """Shares of ``counts [..., C]``, all above 0. The caller leaves out bins that are empty in ``pool [..., C]``."""
    totals = counts.sum(axis=-1, keepdims=True)
    if isinstance(epsilon, str):
        bins = (pool > 0).sum(axis=-1, keepdims=True)
        shares: Floats = (counts + 0.5) / (totals + 0.5 * np.maximum(bins, 1))
        return shares
    shares = counts / np.where(totals > 0, totals, 1.0) + epsilon
    return shares


def psi_rows(terms: Floats) -> Floats:
    """``[PSI_i, PSI_i1, ..., PSI_iC]`` from ``terms [H, C]``: what hospitals are clustered by, ``[H, 1 + C]``."""
    return np.column_stack([terms.sum(axis=1), terms])


def feature_terms(counts: NDArray[Any], epsilon: Smoothing = EPSILON) -> Floats:
    """PSI of each hospital and feature, ``[H, D]``, from ``counts [H, D, B]`` over the feature's bins."""
    summed: Floats = psi_terms(counts, epsilon=epsilon).sum(axis=2)
    return summed


def size_terms(sizes: Ids) -> Floats:
    """``|x_i - 1| ln x_i`` with ``x_i = n_i / mean n``, ``[H]``, for hospitals that have rows.

    The mean of the absolute values is the PSI between the shares of rows that hospitals hold and even shares. The sign
    is kept, because without it the smallest hospitals would look like the largest.
    """
    ratio = sizes / sizes.mean()
    terms: Floats = np.abs(ratio - 1.0) * np.log(ratio)
    return terms


def bin_indices(X: NDArray[Any], observed: NDArray[np.bool_], edges: Floats) -> NDArray[np.int64]:
    """The bin of each value, ``[n, D]``: 0 to Q by ``edges [D, Q]`` (ascending), and Q + 1 where it was not recorded.

    ``X [n, >= D]``, of which the first D columns are values; a value on an edge is in the bin above it.
    """
    columns = len(edges)
    index = np.zeros((len(X), columns), dtype=np.int64)
    for q in range(edges.shape[1]):
        index += X[:, :columns] >= edges[:, q]
    return np.where(observed, index, edges.shape[1] + 1)


def bin_counts(index: NDArray[np.int64], home: Ids, hospitals: int, bins: int) -> NDArray[np.int64]:
    """How often each hospital's values fall into each bin, ``[H, D, bins]``, from ``index [n, D]`` and ``home [n]``."""
    columns = index.shape[1]
    flat = (home[:, None] * columns + np.arange(columns)) * bins + index
    return np.bincount(flat.ravel(), minlength=hospitals * columns * bins).reshape(hospitals, columns, bins)
