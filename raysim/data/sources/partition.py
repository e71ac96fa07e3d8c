"""Divide pooled rows among hospitals; a parameter decides how much hospitals differ.

Dirichlet: M. Yurochkin et al., *Bayesian Nonparametric Federated Learning of Neural Networks*, ICML 2019, in the form
of Q. Li et al., *Federated Learning on Non-IID Data Silos*, ICDE 2022. Similarity: S. P. Karimireddy et al.,
*SCAFFOLD*, ICML 2020. Both rules are used by D. M. Jimenez-Gutierrez et al., *Clust-PSI-PFL*, 2025.

:func:`dirichlet` and :func:`similarity` return the hospital of each row.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ids, shared_out
from raysim.core.errors import DataError
from raysim.core.streams import stream

TRIES = 1000

TEST = 0.2
"""The share of a hospital's rows that become test rows."""


def dirichlet(labels: Ids, hospitals: int, alpha: float, seed: int, *, min_size: int = 10) -> Ids:
    """Return the hospital of each row, ``[n]``. Each class is divided among hospitals by shares from a symmetric
    Dirichlet distribution with parameter ``alpha``.

    A hospital that already has ``n / hospitals`` rows gets no rows of later classes. By rounding, the last hospital may
    nevertheless get a row of a later class. With small ``alpha``, hospitals have few classes; with large ``alpha``,
    their class shares are about those of all rows.

    Sampling is repeated up to 1000 times, until every hospital has at least ``min_size`` rows. Raises ``DataError`` if
    all tries fail, if there are too many hospitals for the number of rows, or if ``alpha`` is too large for sampling.
    """
    _check(labels, hospitals)
    if not np.isfinite(2 * alpha * hospitals):  # sampling would divide by a sum of about alpha * hospitals
        raise DataError(
            f"data.partition.alpha: {alpha:g} over {hospitals} hospitals is too large for sampling; use a smaller "
            "alpha (from 1e+06 on, hospitals are nearly equal)"
        )
    if hospitals * min_size > len(labels):
        raise DataError(
            f"data.clients: {hospitals} with at least {min_size} rows each need {hospitals * min_size:,} rows, but "
            f"there are {len(labels):,}; use fewer hospitals or a lower min_size"
        )
    classes, codes = np.unique(labels, return_inverse=True)
    of_class = np.bincount(codes, minlength=len(classes))
    best = -1
    for attempt in range(TRIES):
        parts = _draw(of_class, hospitals, alpha, stream(seed, "dirichlet", attempt))
        if parts is None:
            continue
        smallest = int(parts.sum(axis=0).min())
        if smallest >= min_size:
            return _dealt(codes, parts, seed, attempt)
        best = max(best, smallest)
    closest = f"; the smallest hospital had at best {best}" if best >= 0 else ""
    raise DataError(
        f"data.partition.alpha: {alpha:g} over {hospitals} hospitals and {len(classes)} classes left a hospital with "
        f"fewer than {min_size} rows in each of {TRIES} tries{closest}; use a larger alpha, fewer hospitals or a "
        "lower min_size"
    )


def similarity(labels: Ids, hospitals: int, share: float, seed: int) -> Ids:
    """Return the hospital of each row, ``[n]``. ``round(share * n)`` rows are divided at random, and the others in
    order of their labels.

    With a share of 1, all hospitals have about the same class shares. With a share of 0, each hospital has only one or
    a few classes.

    Raises ``DataError`` if a hospital would get no row.
    """
    _check(labels, hospitals)
    order = stream(seed, "similarity").permutation(len(labels))
    alike = round(share * len(labels))
    mixed, rest = order[:alike], order[alike:]
    home = np.empty(len(labels), dtype=np.int64)
    for rows in (mixed, rest[np.argsort(labels[rest], kind="stable")]):
        ends = np.arange(hospitals + 1) * len(rows) // hospitals
        home[rows] = np.repeat(np.arange(hospitals), np.diff(ends))
    without = int((np.bincount(home, minlength=hospitals) == 0).sum())
    if without:
        raise DataError(
            f"data.partition.share: {share:g} divides {len(mixed):,} rows at random and {len(rest):,} by label among "
            f"{hospitals} hospitals, which leaves {without} without a row; use fewer hospitals, or a share of 0 or 1"
        )
    return home


def holdout(labels: Ids, home: Ids, seed: int) -> NDArray[np.int8]:
    """Return the part of each row, ``[n]``: 0 for training, 2 for test. A fifth of each hospital's rows, rounded, are
    for test, and at least one is for training.

    The division is stratified by class, except at a hospital that has a class with a single row.
    """
    part = np.zeros(len(labels), dtype=np.int8)
    by_hospital = np.argsort(home, kind="stable")
    starts = np.searchsorted(home[by_hospital], np.arange(int(home.max(initial=-1)) + 2))
    for h, (start, stop) in enumerate(pairwise(starts)):
        rows = stream(seed, "holdout", h).permutation(by_hospital[start:stop])
        tested = min(int(TEST * len(rows) + 0.5), len(rows) - 1)
        if tested <= 0:
            continue
        _, codes, counts = np.unique(labels[rows], return_inverse=True, return_counts=True)
        if counts.min() < 2:
            part[rows[:tested]] = 2
            continue
        quota = shared_out(tested, counts)
        # The number of earlier rows of the same class for each row of the permutation.
        order = np.argsort(codes, kind="stable")
        before = np.empty(len(rows), dtype=np.int64)
        before[order] = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        part[rows[before < quota[codes]]] = 2
    return part


def _draw(of_class: Ids, hospitals: int, alpha: float, rng: np.random.Generator) -> Ids | None:
    """Sample the number of rows of each class at each hospital, ``[C, H]``. Return None if a class cannot be
    divided.
    """
    held = np.zeros(hospitals, dtype=np.int64)
    even = of_class.sum() / hospitals
    parts = np.zeros((len(of_class), hospitals), dtype=np.int64)
    for c, rows in enumerate(of_class):
        shares = np.where(held < even, rng.dirichlet(np.full(hospitals, alpha)), 0.0)
        total = shares.sum()
        if not total > 0:  # a tiny alpha underflows, or gives all rows to hospitals that are full
            return None
        cuts = np.floor(np.cumsum(shares / total)[:-1] * rows).astype(np.int64)
        parts[c] = np.diff(np.concatenate([[0], np.minimum(cuts, rows), [rows]]))
        held += parts[c]
    return parts


def _dealt(codes: Ids, parts: Ids, seed: int, attempt: int) -> Ids:
    """Return the hospital of each row, ``[n]``: hospitals get ``parts [C, H]`` rows of each class, in random order."""
    # Shuffles have a separate stream, so that rejected samples need no shuffle.
    rng = stream(seed, "dirichlet rows", attempt)
    home = np.empty(len(codes), dtype=np.int64)
    for c, sizes in enumerate(parts):
        home[rng.permutation(np.flatnonzero(codes == c))] = np.repeat(np.arange(len(sizes)), sizes)
    return home


def _check(labels: Ids, hospitals: int) -> None:
    if hospitals > len(labels):
        raise DataError(f"data.clients: {hospitals} is more than the {len(labels):,} rows; every hospital needs one")
