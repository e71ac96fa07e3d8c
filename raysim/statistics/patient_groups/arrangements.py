"""Arrangements of group labels over a hospital's rows. Labels are permuted within each outcome, so that the number of
rows of each group and outcome does not change.

An arrangement assigns a group of patients to each row. The first arrangement is always the observed one. If there are
at most :data:`DRAWS` arrangements over all hospitals together, all are used. Otherwise each hospital uses a random
sample of its arrangements. Apart from its size, the sample depends only on the hospital's own rows and stream of random
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

Labels = NDArray[np.int8]

DRAWS = 1999
"""Largest number of sampled arrangements of group labels, in addition to the observed one."""

MOST_ENTRIES = 400_000_000
"""Largest product of the number of rows and the number of arrangements, unless :data:`FEWEST_DRAWS` requires more."""

FEWEST_DRAWS = 199
"""Smallest number of sampled arrangements of group labels."""

_CODE = np.uint64(0xFF)


def draws_for(rows: int) -> int:
    """Return the number of arrangements of group labels to sample for a federation with ``rows`` rows."""
    return max(FEWEST_DRAWS, min(DRAWS, MOST_ENTRIES // max(rows, 1) - 1))


def number(counts: ArrayLike) -> int:
    """Return in how many ways rows can be assigned to ``G`` groups of sizes ``counts [G]``. If ``counts`` has the shape
    ``[G, outcomes]``, the rows of each outcome are assigned separately.
    """
    columns = np.asarray(counts, dtype=np.int64)
    columns = columns.reshape(len(columns), -1)
    return prod(factorial(int(column.sum())) // prod(factorial(int(count)) for count in column) for column in columns.T)


def within_limit(counts: ArrayLike) -> int | None:
    """Return :func:`number` of ``counts``, or None if it is above :data:`DRAWS`."""
    columns = np.asarray(counts, dtype=np.int64)
    columns = columns.reshape(len(columns), -1)
    # Rows outside the largest group of an outcome: with 11 such rows there are at least 2^11 arrangements.
    if (columns.sum(axis=0) - columns.max(axis=0, initial=0)).sum() > 10 or columns.sum() > 10 * DRAWS:
        return None
    found = number(columns)
    return found if found <= DRAWS else None


def permuted(labels: ArrayLike, draws: int, rng: np.random.Generator) -> Labels:
    """Permute the group ``labels [n]`` of rows that have the same outcome. The first column of the result ``[n, 1 +
    draws]`` is ``labels``, and each other column is a random permutation of ``labels``.
    """
    codes = np.asarray(labels, dtype=np.int8)
    # Sorting random numbers that carry a label in their last bits permutes the labels.
    keys = rng.integers(0, 1 << 64, (draws, len(codes)), dtype=np.uint64)
    keys &= ~_CODE
    keys |= codes.astype(np.uint64)
    keys.sort(axis=1)
    taken = (keys & _CODE).astype(np.int8)
    return np.concatenate([codes[:, None], taken.T], axis=1)


def every(labels: ArrayLike) -> Labels:
    """Return all different orders of the group ``labels [n]`` of rows that have the same outcome, one order in each
    column. The first column is ``labels``.
    """
    codes = [int(code) for code in np.asarray(labels)]
    observed = tuple(codes)
    others = (arranged for arranged in _distinct(sorted(codes)) if arranged != observed)
    return np.array([observed, *others], dtype=np.int8).reshape(-1, len(codes)).T


def _distinct(codes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all different orders of ``codes``, which must be in ascending order."""
    if not codes:
        yield ()
    for i, code in enumerate(codes):
        if i and code == codes[i - 1]:
            continue
        for rest in _distinct([*codes[:i], *codes[i + 1 :]]):
            yield (code, *rest)
