"""The population stability index (PSI): how far each hospital's distribution lies from that of all together.

D. M. Jimenez-Gutierrez, M. Hassanzadeh, A. Anagnostopoulos, I. Chatzigiannakis, A. Vitaletti: *Clust-PSI-PFL: A
Population Stability Index Approach for Clustered Non-IID Personalized Federated Learning*, arXiv:2512.20363, 2025. The
paper has PSI over classes; over quantile bins of features (:func:`feature_terms`) and over sizes (:func:`size_terms`)
it is an addition. The engine's own non-IID metrics use this module too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, Ids

EPSILON = 1e-6
"""Added to every probability, without renormalising. It decides what an empty bin costs: ``P ln(P / epsilon)`` for a
class of share P. Figures are therefore comparable only under one epsilon."""


def psi_terms(counts: NDArray[Any], reference: NDArray[Any] | None = None) -> Floats:
    """``(P_c - p_ic) ln(P_c / p_ic)`` of each hospital and bin, the shape of ``counts``: ``[H, C]`` or ``[H, D, C]``.

    ``P`` are the shares of all hospitals' counts, or of ``reference`` (``counts`` without its first axis): test rows
    are held against the training rows' shares. Bins that are empty in ``P`` are left out, and a hospital without
    counts has no skew: both give 0. Terms are unsigned, so that opposite skews can look alike.
    """
    rows = np.asarray(counts, dtype=np.float64)
    pool = rows.sum(axis=0) if reference is None else np.asarray(reference, dtype=np.float64)
    totals = rows.sum(axis=-1, keepdims=True)
    expected = pool / np.maximum(pool.sum(axis=-1, keepdims=True), 1e-300) + EPSILON
    actual = rows / np.where(totals > 0, totals, 1.0) + EPSILON
    terms: Floats = (expected - actual) * np.log(expected / actual)
    shown: Floats = np.where((pool > 0) & (totals > 0), terms, 0.0)
    return shown


def psi_rows(terms: Floats) -> Floats:
    """``[PSI_i, PSI_i1, ..., PSI_iC]`` from ``terms [H, C]``: what hospitals are clustered by, ``[H, 1 + C]``."""
    return np.column_stack([terms.sum(axis=1), terms])


def feature_terms(counts: NDArray[Any]) -> Floats:
    """PSI of each hospital and feature, ``[H, D]``, from ``counts [H, D, B]`` over the feature's bins."""
    summed: Floats = psi_terms(counts).sum(axis=2)
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
