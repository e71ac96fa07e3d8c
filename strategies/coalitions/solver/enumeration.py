"""The optimum of program (11) of CS-RCFL for up to about 20 hospitals and any losses, by dynamic programming.

For a subset M of the N hospitals, ``f_1(M) = c(M)`` is the cost of M as one coalition, and ``f_k(M)`` is the smallest
cost of M in k coalitions. Then ``f_k(M) = min over S of f_a(S) + f_b(M without S)`` with a + b = k. S runs over the
proper subsets of M that contain the last hospital of M. For odd k, (a, b) is (1, k - 1). For even k it is (k/2, k/2),
so that only few of the functions f_k are needed. One (min, +) subset convolution over the hospitals 0 to h - 1 gives
this minimum for all M whose last hospital has the index h (from 0). For K coalitions, the time is at most
proportional to ``log2(K) 3^(N-1)``, and the memory to ``log2(K) 2^N``.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from raysim.strategies.base import Floats, Ids
from raysim.strategies.shared.clustering import by_smallest_member

BLOCK = 9
"""The largest number h of hospitals in a convolution that uses a table of all ``3^h`` pairs of subsets. Larger tables
do not fit the cache."""


def enumerate_coalitions(losses: Floats, coalitions: int, *, seconds: float = np.inf) -> Ids | None:
    """Return the coalition of each of N hospitals, ``[N]``, in the partition with the smallest cost; None if the search
    takes longer than ``seconds``.

    The entry ``[i, j]`` of ``losses [N, N]`` is the loss of hospital j's model at hospital i.
    """
    deadline = time.perf_counter() + seconds
    n = len(losses)
    costs = subset_costs(losses)
    if coalitions == 1:
        return np.zeros(n, np.int64)
    # The last hospital is assigned at the end, so that tables of the other hospitals are sufficient.
    tables = {1: costs}
    for k in _orders(coalitions - 1):
        a, b = _parts(k)
        tables[k] = np.full(2 ** (n - 1), np.inf)
        for h in range(k - 1, n - 1):
            lower, upper = slice(0, 2**h), slice(2**h, 2 ** (h + 1))
            if not _convolve(tables[a][upper], tables[b][lower], tables[k][upper], deadline):
                return None
    labels = np.empty(n, np.int64)
    first, rest = _split(tables, 2**n - 1, 1, coalitions - 1)
    _assign(tables, labels, first, 1, 0)
    _assign(tables, labels, rest, coalitions - 1, 1)
    return by_smallest_member(labels)


def _parts(k: int) -> tuple[int, int]:
    """Return how many of k coalitions the part with the last hospital forms, and how many the rest forms."""
    return (k // 2, k // 2) if k % 2 == 0 else (1, k - 1)


def _orders(k: int) -> list[int]:
    """Return all j from 2 to k, ascending, for which ``f_j`` is needed to compute ``f_k``."""
    return [] if k == 1 else [*_orders(_parts(k)[1]), k]


def subset_costs(losses: Floats) -> Floats:
    """Return the cost of each subset of N hospitals as one coalition, ``[2^N]``.

    A subset's index is its bit mask; the empty subset costs infinity.
    """
    n = len(losses)
    pair = losses + losses.T
    sums, sizes = np.zeros(2**n), np.zeros(2**n)
    for h in range(n):
        towards = np.zeros(2**h)
        for j in range(h):
            towards[2**j : 2 ** (j + 1)] = towards[: 2**j] + pair[h, j]
        sums[2**h : 2 ** (h + 1)] = sums[: 2**h] + towards + losses[h, h]
        sizes[2**h : 2 ** (h + 1)] = sizes[: 2**h] + 1
    sums[0], sizes[0] = np.inf, 1.0
    return np.asarray(sums / sizes)


def _convolve(first: Floats, rest: Floats, out: Floats, deadline: float) -> bool:
    """Compute ``out[M] = min(out[M], min over S within M of first[S] + rest[M without S])`` for subsets of h hospitals.

    Arrays are ``[2^h]``. Returns False if the ``deadline`` passed before the result was complete.
    """
    size = len(first)
    if size <= 2**BLOCK:
        part, complement, starts = _pairs(size)
        pairs = rest.take(complement)
        pairs += first.take(part)
        np.minimum(out, np.minimum.reduceat(pairs, starts), out=out)
        return True
    if time.perf_counter() > deadline:
        return False
    half = size // 2
    return (
        _convolve(first[:half], rest[:half], out[:half], deadline)
        and _convolve(first[half:], rest[:half], out[half:], deadline)
        and _convolve(first[:half], rest[half:], out[half:], deadline)
    )


@cache
def _pairs(size: int) -> tuple[Ids, Ids, Ids]:
    """Return all subsets of each bit mask M below ``size``, their complements in M, and the index of each M's first
    subset."""
    masks = np.arange(size)
    whole, part = np.nonzero((masks[None, :] & ~masks[:, None]) == 0)
    return part, whole - part, np.flatnonzero(np.r_[True, np.diff(whole) > 0])


def _assign(tables: dict[int, Floats], labels: Ids, mask: int, k: int, label: int) -> None:
    """Write the best k coalitions of the hospitals in the bit mask ``mask`` into ``labels``, numbered from ``label``
    on."""
    if k == 1:
        labels[_bits(mask)] = label
        return
    a, b = _parts(k)
    first, rest = _split(tables, mask, a, b)
    _assign(tables, labels, first, a, label)
    _assign(tables, labels, rest, b, label + a)


def _split(tables: dict[int, Floats], mask: int, a: int, b: int) -> tuple[int, int]:
    """Return bit masks of the two parts into which the hospitals in the bit mask ``mask`` are best divided.

    The first part has the last hospital and forms ``a`` coalitions. The second part forms ``b`` coalitions.
    """
    rests = _subsets(mask - (1 << (mask.bit_length() - 1)))
    rest = int(rests[(tables[a][mask - rests] + tables[b][rests]).argmin()])
    return mask - rest, rest


def _subsets(mask: int) -> Ids:
    subsets = np.zeros(1, np.int64)
    for bit in _bits(mask):
        subsets = np.concatenate([subsets, subsets + (1 << bit)])
    return subsets


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
