"""Non-IID metrics: how much hospitals differ in their labels, sizes and features.

Sources: PSI (the population stability index) and its weighted mean are from D. M. Jimenez-Gutierrez et al.,
*Clust-PSI-PFL*, arXiv:2512.20363, 2025; the Hellinger and Jensen-Shannon distances of a federation are as in the
library FedArtML; the weighted earth mover's distance is from Y. Zhao et al., *Federated Learning with Non-IID Data*,
2018.

Metrics of labels compare the shares of classes between hospitals that have rows. They are computed from
``counts [H, C]``, the number of rows of each class at each hospital. The Jensen-Shannon distance, and every mean over
pairs of hospitals, is NaN for fewer than two hospitals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.errors import DataError
from raysim.strategies.shared import psi
from raysim.strategies.shared.psi import EPSILON, Smoothing

if TYPE_CHECKING:
    import pandas as pd

    from raysim.data.federation import Federation

Counts = NDArray[Any]

EarthMover = Literal["tv", "pooled", "l1", "ordinal", "fedartml"]


@dataclass(frozen=True, eq=False)
class Stability:
    """Population stability index (PSI) of ``H`` hospitals over ``K`` classes or features.

    ``hospital [H]`` is the PSI of each hospital, the sum of its ``terms [H, K]`` over classes or features. Terms are
    NaN for hospitals without rows. ``weighted`` is the mean of the hospitals' PSI, weighted by rows (WPSI).
    """

    terms: Floats
    hospital: Floats
    weighted: float


@dataclass(frozen=True)
class Quantity:
    """How unevenly rows are distributed over hospitals.

    - ``psi``: population stability index (PSI) between the hospitals' shares of the rows and equal shares.
    - ``gini``: Gini coefficient, 0 for equal sizes.
    - ``effective``: the number of equally large hospitals that would have the same sum of squared shares.
    - ``largest``: share of all rows that the largest hospital has.
    """

    psi: float
    gini: float
    effective: float
    largest: float


def label_counts(federation: Federation, part: str = "train") -> NDArray[np.int64]:
    """Count the rows of each class at each hospital in ``part``, ``[H, C]``. Raises ``DataError`` for a real-valued
    label.
    """
    if not federation.classes:
        raise DataError("data.task: a label that is a number has no classes to count; choose a classification task")
    hospitals, classes = len(federation.hospitals), len(federation.classes)
    home, rows = _home(federation, part)
    flat = np.bincount(home * classes + federation.y[rows], minlength=hospitals * classes)
    return flat.reshape(hospitals, classes)


def label_spread(federation: Federation, part: str = "train") -> dict[str, float]:
    """Compute, by name, three measures of how much a real-valued label differs between hospitals that have rows of
    ``part``.

    ``std_between`` is the population standard deviation of hospitals' mean labels around the mean of all rows.
    ``std_within`` is the population standard deviation of rows around their hospital's mean. Hospitals are weighted by
    rows, so that the squares of the two standard deviations add up to the variance of all rows. ``between_share`` is
    the share of the variance that is between hospitals (the squared correlation ratio), NaN for a constant label.
    """
    home, rows = _home(federation, part)
    y = federation.y[rows]
    sizes = np.bincount(home, minlength=len(federation.hospitals))
    means = np.bincount(home, weights=y, minlength=len(sizes)) / np.maximum(sizes, 1)
    between = float(np.mean(np.square(means[home] - y.mean())))
    within = float(np.mean(np.square(y - means[home])))
    total = between + within
    share = between / total if total > 0 else float("nan")
    return {"std_between": between**0.5, "std_within": within**0.5, "between_share": share}


def label_metrics(counts: Counts, epsilon: Smoothing = EPSILON) -> dict[str, float]:
    """Compute, by name, all metrics of how much class shares differ between hospitals.

    ``counts [H, C]`` is the number of rows of each class at each hospital. ``epsilon`` smooths the shares in the
    weighted population stability index (WPSI).
    """
    metrics = {
        "wpsi": label_psi(counts, epsilon=epsilon).weighted,
        "hellinger": hellinger_distance(counts),
        "jensen_shannon": jensen_shannon_distance(counts),
    }
    kinds: tuple[EarthMover, ...] = ("tv", "pooled", "l1", "ordinal", "fedartml")
    return metrics | {f"emd_{kind}": earth_movers_distance(counts, kind) for kind in kinds}


def label_psi(counts: Counts, reference: Counts | None = None, epsilon: Smoothing = EPSILON) -> Stability:
    """Compute the population stability index (PSI) of the class shares of each hospital.

    ``counts [H, C]`` is the number of rows of each class at each hospital. The class shares of a hospital are compared
    with the shares computed from ``reference [C]``, the number of rows of each class (None: of the rows of all
    hospitals).
    """
    return _stability(psi.psi_terms(counts, reference, epsilon), counts.sum(axis=1))


def feature_psi(
    X: NDArray[Any], observed: NDArray[np.bool_], home: NDArray[np.int64], bins: int = 10, epsilon: Smoothing = EPSILON
) -> Stability:
    """Compute the population stability index (PSI) of each hospital and feature. Quantiles over all rows divide the
    values of a feature into ``bins`` bins. Missing values have an additional bin.

    The features are the first ``D`` columns of ``X``. ``observed [n, D]`` is a mask of recorded values, and
    ``home [n]`` is the index of each row's hospital. Raises ``ValueError`` for fewer than two bins.
    """
    if bins < 2:
        raise ValueError(f"bins: {bins} is not at least 2")
    columns, cuts = observed.shape[1], np.arange(1, bins) / bins
    edges = np.zeros((columns, bins - 1))
    for j in np.flatnonzero(observed.any(axis=0)):
        # Edges are values of the data: rounded edges could divide the rows of a common value between two bins.
        edges[j] = np.quantile(X[observed[:, j], j].astype(np.float64), cuts, method="inverted_cdf")
    hospitals = int(home.max(initial=-1)) + 1
    counts = psi.bin_counts(psi.bin_indices(X, observed, edges), home, hospitals, bins + 1)
    return _stability(psi.feature_terms(counts, epsilon), np.bincount(home, minlength=hospitals))


def federation_feature_psi(
    federation: Federation, part: str = "train", bins: int = 10, epsilon: Smoothing = EPSILON
) -> Stability:
    """Compute :func:`feature_psi` of the rows of ``part`` in a federation."""
    home, rows = _home(federation, part)
    psi = feature_psi(federation.X[rows], federation.observed[rows], home, bins, epsilon)
    idle = len(federation.hospitals) - len(psi.hospital)  # number of hospitals without rows at the end
    return Stability(
        np.pad(psi.terms, ((0, idle), (0, 0)), constant_values=np.nan),
        np.pad(psi.hospital, (0, idle), constant_values=np.nan),
        psi.weighted,
    )


def quantity(sizes: Counts) -> Quantity:
    """Compute how unevenly rows are distributed over the hospitals that have rows. ``sizes [H]`` is the number of rows
    of each hospital. All results are NaN if there are no rows.
    """
    n = np.sort(np.asarray(sizes, dtype=np.int64)[np.asarray(sizes) > 0])
    if not len(n):
        return Quantity(np.nan, np.nan, np.nan, np.nan)
    shares = n / n.sum()
    return Quantity(
        psi=float(np.abs(psi.size_terms(n)).mean()),
        gini=_mean_pair_difference(shares) * (len(n) - 1) / 2 if len(n) > 1 else 0.0,
        effective=float(1 / (shares**2).sum()),
        largest=float(shares[-1]),
    )


def hospital_table(federation: Federation, part: str = "train", epsilon: Smoothing = EPSILON) -> pd.DataFrame:
    """Return a table of each hospital's size and population stability index (PSI), computed from rows of ``part``.

    The columns are ``hospital``, ``rows`` and ``psi_of_features`` (PSI summed over features). For a label with classes
    there are also ``rows_<class>``, ``psi_<class>`` and ``psi`` (the sum of all ``psi_<class>``). PSI is NaN for a
    hospital without rows.
    """
    import pandas as pd

    table: dict[str, Any] = {"hospital": federation.hospitals, "rows": federation.sizes(part)}
    if federation.classes:
        counts = label_counts(federation, part)
        psi = label_psi(counts, epsilon=epsilon)
        table |= {f"rows_{name}": column for name, column in zip(federation.classes, counts.T, strict=True)}
        table["psi"] = psi.hospital
        table |= {f"psi_{name}": column for name, column in zip(federation.classes, psi.terms.T, strict=True)}
    table["psi_of_features"] = federation_feature_psi(federation, part, epsilon=epsilon).hospital
    return pd.DataFrame(table)


def hellinger_distance(counts: Counts) -> float:
    """Compute the root mean square, over pairs of hospitals, of the Hellinger distance between their class shares."""
    roots = np.sqrt(_shares(counts))
    if len(roots) < 2:
        return np.nan
    # The sum of |r_i - r_j|^2 over pairs i < j is H times the sum of |r_i - mean|^2.
    return float(np.sqrt(((roots - roots.mean(axis=0)) ** 2).sum() / (len(roots) - 1)))


def jensen_shannon_distance(counts: Counts) -> float:
    """Compute the square root of the generalised Jensen-Shannon divergence (base 2) of hospitals' class shares. All
    hospitals have equal weights.

    For ``H`` > 2 hospitals with rows, the divergence is divided by its upper bound ``log2 H``.
    """
    shares = _shares(counts)
    if len(shares) < 2:
        return np.nan
    middle = shares.mean(axis=0)
    present = shares > 0
    ratio = np.divide(shares, middle, out=np.ones_like(shares), where=present)
    divergence = (shares * np.log2(ratio)).sum() / len(shares)
    if len(shares) > 2:
        divergence /= np.log2(len(shares))
    return float(np.sqrt(max(divergence, 0.0)))


def earth_movers_distance(counts: Counts, kind: EarthMover = "tv") -> float:
    """Compute a variant of the earth mover's distance between hospitals' class shares. Below, p and q are the class
    shares of two hospitals.

    - ``tv``: mean over pairs of ``1/2 sum |p - q|``.
    - ``pooled``: mean of ``1/2 sum |p - q|`` over hospitals, weighted by rows, where q are the class shares of all
      rows.
    - ``l1`` (Zhao et al.): twice ``pooled``.
    - ``ordinal``: mean over pairs of ``sum |difference of the cumulative shares|``, for classes that have an order.
    - ``fedartml``: as in the library FedArtML, square root of the mean over pairs of
      ``sum |difference of the sorted shares| / C``. Two hospitals with one class each have distance 0 even if the
      classes differ. Use ``fedartml`` for reproduction only.
    """
    shares = _shares(counts)
    if kind in ("pooled", "l1"):
        sizes = counts.sum(axis=1)
        if not sizes.any():
            return np.nan
        apart = np.abs(shares - counts.sum(axis=0) / sizes.sum()).sum(axis=1)
        weighted = float((sizes[sizes > 0] / sizes.sum()) @ apart)
        return weighted if kind == "l1" else weighted / 2
    if len(shares) < 2:
        return np.nan
    if kind == "tv":
        return 0.5 * sum(map(_mean_pair_difference, shares.T))
    if kind == "ordinal":
        return sum(map(_mean_pair_difference, np.cumsum(shares, axis=1).T))
    if kind == "fedartml":
        return float(np.sqrt(sum(map(_mean_pair_difference, np.sort(shares, axis=1).T)) / shares.shape[1]))
    raise ValueError(f"kind: '{kind}' is not one of tv, pooled, l1, ordinal, fedartml")


def _mean_pair_difference(values: Floats) -> float:
    """Compute the mean of ``|v_i - v_j|`` over all pairs of entries of ``values [H]``, for H of at least 2."""
    n = len(values)
    below = np.arange(1, n)
    return float(np.diff(np.sort(values)) @ (below * (n - below)) / (n * (n - 1) / 2))


def _shares(counts: Counts) -> Floats:
    """Compute the class shares of the H' hospitals that have rows, ``[H', C]``."""
    sizes = counts.sum(axis=1)
    return np.asarray(counts[sizes > 0] / sizes[sizes > 0, None])


def _stability(terms: Floats, sizes: Counts) -> Stability:
    defined = np.where(sizes[:, None] > 0, terms, np.nan)
    weighted = float(sizes @ terms.sum(axis=1) / sizes.sum()) if sizes.any() else np.nan
    return Stability(defined, defined.sum(axis=1), weighted)


def _home(federation: Federation, part: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the hospital of every row of ``part``, and the row's position in the federation."""
    sizes = federation.sizes(part)
    home = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.array([federation.rows(h, part).start for h in range(len(sizes))], dtype=np.int64)
    within = np.arange(len(home)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return home, np.repeat(starts, sizes) + within
