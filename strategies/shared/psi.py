"""The population stability index (PSI): the distance of each hospital's distribution from the distribution over all
hospitals.

D. M. Jimenez-Gutierrez, M. Hassanzadeh, A. Anagnostopoulos, I. Chatzigiannakis, A. Vitaletti: *Clust-PSI-PFL: A
Population Stability Index Approach for Clustered Non-IID Personalized Federated Learning*, arXiv:2512.20363, 2025. The
paper computes PSI over classes. PSI over quantile bins of features (:func:`feature_terms`) and PSI over hospitals'
sizes (:func:`size_terms`) are not in the paper.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, Ids

Smoothing = float | Literal["counts"]
"""How shares are smoothed, so that no share is 0. A number is added to every share, without renormalising. ``counts``
adds half a row to every bin (Jeffreys' prior).
"""

EPSILON: Smoothing = 0.05
"""The default smoothing. If a bin is empty at a hospital and has the share P over all hospitals, it contributes about
``P ln(P / epsilon)``, so only PSI values with the same epsilon are comparable. docs/heterogeneity.md compares clusters
for several values of epsilon."""


def check_smoothing(epsilon: Smoothing) -> None:
    """Raise ``ValueError`` naming ``epsilon`` unless it is ``counts`` or a number in (0, 1]."""
    if epsilon != "counts" and not 0 < epsilon <= 1:
        raise ValueError(
            f"epsilon: {epsilon} is neither a number in (0, 1] nor the word 'counts', which adds half a row to every "
            "bin"
        )


def psi_terms(counts: NDArray[Any], reference: NDArray[Any] | None = None, epsilon: Smoothing = EPSILON) -> Floats:
    """Return the term ``(P_c - p_ic) ln(P_c / p_ic)`` of each hospital i and bin c; a hospital's PSI is its terms' sum.

    ``counts [H, C]`` has each hospital's number of rows in each bin; for D features, the shape is ``[H, D, C]``. The
    result has the shape of ``counts``. ``p_ic`` is the share of bin c at the hospital, and ``P_c`` its share over all
    hospitals. With ``reference`` (counts without the axis of hospitals), ``P_c`` is the share in ``reference``. Shares
    are smoothed by ``epsilon``. Terms are never negative. They are 0 for hospitals without rows, and for bins whose
    ``P_c`` is 0 before smoothing.
    """
    rows = np.asarray(counts, dtype=np.float64)
    pool = rows.sum(axis=0) if reference is None else np.asarray(reference, dtype=np.float64)
    totals = rows.sum(axis=-1, keepdims=True)
    expected, actual = _smoothed(pool, pool, epsilon), _smoothed(rows, pool, epsilon)
    terms: Floats = (expected - actual) * np.log(expected / actual)
    return np.asarray(np.where((pool > 0) & (totals > 0), terms, 0.0))


def _smoothed(counts: NDArray[Any], pool: NDArray[Any], epsilon: Smoothing) -> Floats:
    """Return the smoothed shares of ``counts [..., C]``. If ``epsilon`` is ``counts``, the denominator includes half a
    row only for each bin that has rows in ``pool [..., C]``."""
    totals = counts.sum(axis=-1, keepdims=True)
    if isinstance(epsilon, str):
        bins = (pool > 0).sum(axis=-1, keepdims=True)
        return np.asarray((counts + 0.5) / (totals + 0.5 * np.maximum(bins, 1)))
    shares = counts / np.where(totals > 0, totals, 1.0) + epsilon
    return shares


def psi_rows(terms: Floats) -> Floats:
    """Return ``terms [H, C]`` with their sum, each hospital's PSI, as a new first column."""
    return np.column_stack([terms.sum(axis=1), terms])


def feature_terms(counts: NDArray[Any], epsilon: Smoothing = EPSILON, reference: NDArray[Any] | None = None) -> Floats:
    """Return the PSI ``[H, D]`` of each hospital and feature.

    ``counts [H, D, B]`` has the number of rows in each of a feature's B bins. ``epsilon`` and ``reference`` are as in
    :func:`psi_terms`.
    """
    return np.asarray(psi_terms(counts, reference, epsilon).sum(axis=2))


def size_terms(sizes: Ids, mean: float | None = None) -> Floats:
    """Return ``|x_i - 1| ln x_i`` with ``x_i = n_i / mean`` for the numbers of rows ``n_i > 0`` in ``sizes``, ``[H]``.

    Values are negative for hospitals with fewer than ``mean`` rows. If ``mean`` is None, it is the mean of ``sizes``;
    the mean of the absolute values is then the PSI between hospitals' shares of all rows and equal shares.
    """
    ratio = sizes / (sizes.mean() if mean is None else mean)
    return np.asarray(np.abs(ratio - 1.0) * np.log(ratio))


def bin_indices(X: NDArray[Any], observed: NDArray[np.bool_], edges: Floats) -> NDArray[np.int64]:
    """Return the index of each value's bin, ``[n, D]``: 0 to Q, or Q + 1 for a missing value.

    The values are the first D columns of ``X``. Bins are separated by the ascending ``edges [D, Q]``; a value on an
    edge is in the bin above it.
    """
    columns = len(edges)
    index = np.zeros((len(X), columns), dtype=np.int64)
    for q in range(edges.shape[1]):
        index += X[:, :columns] >= edges[:, q]
    return np.where(observed, index, edges.shape[1] + 1)


def bin_counts(index: NDArray[np.int64], home: Ids, hospitals: int, bins: int) -> NDArray[np.int64]:
    """Return the number of values of each hospital and feature in each bin, ``[H, D, bins]``.

    ``index [n, D]`` has the bin of each value, and ``home [n]`` the hospital of each row.
    """
    columns = index.shape[1]
    flat = (home[:, None] * columns + np.arange(columns)) * bins + index
    return np.bincount(flat.ravel(), minlength=hospitals * columns * bins).reshape(hospitals, columns, bins)
