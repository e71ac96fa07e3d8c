"""The edges of the bins of a numeric column, computed from counts of rows alone.

Finite float32 numbers are mapped to unsigned integers of 32 bits in the same order (:func:`ordered`). The value with a
given rank is found 8 bits at a time, highest bits first. In each round, values that begin with the bits found so far
(the prefix) are counted by their next 8 bits. Hospitals' counts add up to those of the pooled rows, so edges do not
depend on which hospital has which rows.

With ``n`` recorded values and ``B`` bins, ``v_k`` (k = 1 to B - 1) is the smallest value for which at least ``k n / B``
of the values are not larger. ``w_k`` is the smallest value above ``v_k``. Edge ``k`` is the midpoint of ``v_k`` and
``w_k``. Equal edges count once, and there is no edge after the largest value.

With ``edges: exact`` all 32 bits are used. With ``edges: codes`` values with the same first 16 bits count as equal.
Edge ``k`` is then the midpoint of two numbers: the largest that begins with the bits of ``v_k``, and the smallest that
begins with the bits of ``w_k``. Recorded values between ``v_k`` and edge ``k`` differ from ``v_k`` by at most 1/128 of
``|v_k|``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats, Ints

STEP = 8
"""The number of bits that are found in one round of counting."""

WIDTH = 2**STEP

MISSING = 2**32 - 1
"""The integer of a missing value, larger than that of any finite number."""


@dataclass(frozen=True, eq=False)
class Prefixes:
    """A request to count rows by the next 8 bits of their values, for ``Q`` pairs of a column and a prefix.

    ``column [Q]`` are column indices, and ``prefix [Q]`` the first ``bits`` bits of values. The counts are ``[Q,
    256]``, one for each value of the next 8 bits.
    """

    column: Ints
    prefix: Ints
    bits: int


def ordered(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Map finite float32 ``values [n]`` to integers that have the same order. -0 counts as 0."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(2**31))


def unordered(codes: NDArray[Any]) -> Floats:
    """Return the numbers that :func:`ordered` mapped to ``codes``, in float64."""
    codes = codes.astype(np.uint32)
    bits = np.where(codes >> 31, codes & np.uint32(2**31 - 1), ~codes)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def ranked(X: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the values of each column of ``X [n, F]``, sorted and mapped to integers (:func:`ordered`), ``[F, n]``."""
    made = np.empty(X.shape[::-1], np.uint32)
    for column, values in zip(made, X.T, strict=True):
        column[:] = np.where(np.isnan(values), MISSING, ordered(values))
        column.sort()
    return made


def counts(ranks: NDArray[np.uint32], asked: Prefixes) -> Ints:
    """Return the requested counts ``[Q, 256]`` from sorted columns (:func:`ranked`).

    The pairs of ``asked`` must be sorted by column, and by prefix within a column.
    """
    made = np.empty((len(asked.column), WIDTH), np.int64)
    begin = (asked.prefix[:, None] * WIDTH + np.arange(WIDTH)) << (32 - asked.bits - STEP)
    columns, first, entries = np.unique(asked.column, return_index=True, return_counts=True)
    for column, start, count in zip(columns.tolist(), first.tolist(), entries.tolist(), strict=True):
        mine = slice(start, start + count)
        # Where the values of each prefix, and of the next prefix, begin. No number is as large as MISSING.
        bounds = np.append(begin[mine], (asked.prefix[mine][:, None] + 1) << (32 - asked.bits), axis=1)
        at = np.searchsorted(ranks[column], np.minimum(bounds, MISSING).astype(np.uint32))
        made[mine] = np.diff(at, axis=1)
    return made


def find_edges(columns: Ints, bins: int, *, exact: bool) -> Generator[Prefixes, Ints, dict[int, Floats]]:
    """Find the edges between the bins of the numeric ``columns``; return the ascending edges of each column.

    A column has at most ``bins - 1`` edges. The generator yields requests for counts of rows, and receives the counts.
    """
    bits = 32 if exact else 16
    first = yield Prefixes(columns, np.zeros_like(columns), 0)
    total = first.sum(axis=1)
    # The rank of quantile k, counted from 1; a column without values has no ranks.
    ranks = -(-np.arange(1, bins)[None, :] * total[:, None] // bins)
    low, upto = yield from _at_ranks(columns, ranks, total, first, bits)
    high, _ = yield from _at_ranks(columns, upto + 1, total, first, bits)
    found = {}
    for j, column in enumerate(columns.tolist()):
        inner = (ranks[j] >= 1) & (upto[j] < total[j])
        # The largest number with the lower prefix, and the least number with the higher prefix.
        below = unordered(((low[j, inner] + 1) << (32 - bits)) - 1)
        above = unordered(high[j, inner] << (32 - bits))
        found[column] = np.unique((below + above) / 2)
    return found


def _at_ranks(
    columns: Ints, ranks: Ints, total: Ints, first: Ints, bits: int
) -> Generator[Prefixes, Ints, tuple[Ints, Ints]]:
    """Find the value with each of the ``ranks [F, R]``, which count from 1; return the value's first ``bits`` bits.

    The second result is the number of values whose first ``bits`` bits are not larger. Both results are ``[F, R]``.
    ``total [F]`` is the number of recorded values of each column, and ``first [F, 256]`` how many of them begin with
    each combination of 8 bits. For ranks that are not between 1 and ``total``, results are meaningless.
    """
    F, R = ranks.shape
    which = np.repeat(np.arange(F), R)
    # A rank outside is replaced by the nearest rank inside, which needs no further count.
    rest = np.clip(ranks, 1, np.maximum(total, 1)[:, None]).ravel()
    prefix, below, counted, entry = np.zeros(F * R, np.int64), np.zeros(F * R, np.int64), first, which
    for done in range(0, bits, STEP):
        if done:
            asked, entry = np.unique(np.stack([which, prefix]), axis=1, return_inverse=True)
            counted = yield Prefixes(columns[asked[0]], asked[1], done)
            entry = entry.ravel()
        upto = np.cumsum(counted, axis=1)[entry]
        digit = np.minimum((upto < (rest - below)[:, None]).sum(axis=1), WIDTH - 1)
        at = np.arange(F * R)
        within = upto[at, digit]
        below = below + within - counted[entry, digit]
        prefix = prefix * WIDTH + digit
    reached = below + counted[entry, digit]
    return prefix.reshape(F, R), reached.reshape(F, R)


def pooled(asking: Generator[Prefixes, Ints, Any], X: NDArray[Any]) -> Any:
    """Return the result of the generator ``asking``, whose requests for counts are answered from the rows ``X [n,
    F]``."""
    ranks = ranked(X)
    return answered(asking, lambda asked: counts(ranks, asked))


def answered(asking: Generator[Any, Any, Any], answer: Callable[[Any], Any]) -> Any:
    """Return the result of the generator ``asking``; each request that it yields is answered by ``answer(request)``."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        return end.value
