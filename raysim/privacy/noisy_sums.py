"""Noisy sums over privacy units (patients or single rows): each unit's contribution is clipped.

Noisy statistics, metrics and sums for preprocessing use :func:`noisy_sum`. Model updates, sums of programs and the bits
of adaptive clipping do not use it. Adding or removing one unit changes a sum by at most the norm to which the unit was
clipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.privacy.clip import BELOW
from raysim.privacy.events import Gaussian, Laplace, Single
from raysim.privacy.noise import Origin, laplaces, normals

SUM_BITS = 30
"""The number of bits after the binary point of numbers in secure sums. A sum of 64 bits has room for four thousand
million rows."""


class Hidden(Protocol):
    """A protocol that adds hospitals' vectors and reveals only the total, such as secure aggregation."""

    def total(self, vectors: Sequence[NDArray[np.int64]], seed: int) -> NDArray[np.int64]:
        """Return the sum ``[K]`` of ``vectors``, one from each hospital."""


@dataclass(frozen=True)
class Bounds:
    """The norms to which the vector of each patient (or row) is clipped before the vectors are added."""

    absolute: float
    """The 1-norm, for Laplace noise."""
    euclidean: float
    """The 2-norm, for normal noise."""


@dataclass(frozen=True)
class Mechanism:
    """The noise on a sum, as a multiple of the largest change of the sum by one patient (or row)."""

    event: Single
    """The kind of noise (Laplace, or normal without sampling) and its multiplier."""
    origin: Origin

    def in_shares(self, hospitals: int) -> Mechanism:
        """Return the noise that each of ``hospitals`` hospitals adds to a secure sum.

        Normal noise is divided into shares. The shares of two thirds of the hospitals are enough noise, even against a
        hospital that knows its own share. Shares of Laplace noise do not add up to Laplace noise, so each hospital adds
        the whole noise.
        """
        if not isinstance(self.event, Gaussian):
            return self
        share = math.sqrt(max(2 * hospitals // 3 - 1, 1))
        return replace(self, event=replace(self.event, multiplier=self.event.multiplier / share))

    def bound(self, bounds: Bounds) -> float:
        """Return the bound that determines the noise: the 1-norm for Laplace noise, the 2-norm for normal noise."""
        return bounds.absolute if isinstance(self.event, Laplace) else bounds.euclidean

    def noise(self, size: int, seed: int, purpose: str, *key: int) -> Floats:
        """Return the noise of a release of ``size`` scalars, as a multiple of :meth:`bound`."""
        if isinstance(self.event, Laplace):
            standard = laplaces(self.origin, size, seed, purpose, *key)
        else:
            standard = normals(self.origin, (size,), seed, purpose, *key)
        return np.asarray(self.event.multiplier * standard)

    def lengths(self, vectors: Floats) -> Floats:
        """Return the norms ``[U]`` of ``vectors [U, K]``: 1-norms for Laplace noise, 2-norms for normal noise."""
        if isinstance(self.event, Laplace):
            lengths: Floats = np.abs(vectors).sum(axis=1)
        else:
            lengths = np.sqrt((vectors * vectors).sum(axis=1))
        return lengths


def noisy_sum(
    rows: Floats, unit: NDArray[np.int64], how: Mechanism, bounds: Bounds, seed: int, purpose: str, *key: int
) -> Floats:
    """Return the noisy sum ``[K]`` of ``rows [n, K]``.

    The sum of the rows of each privacy unit (a patient, or a single row) is clipped to ``bounds``. ``unit [n]`` has the
    unit of each row: 0, 1, ... in ascending order. ``seed``, ``purpose`` and ``key`` identify the random stream of the
    noise.
    """
    sums = clipped_sum(rows, unit, how, bounds)
    return sums + how.bound(bounds) * how.noise(len(sums), seed, purpose, *key)


def total_of(sums: Sequence[Floats], hidden: Hidden | None, seed: int) -> Floats:
    """Return the total of hospitals' noisy ``sums [K]``, computed with fixed-point numbers.

    ``hidden`` masks the sums with random streams of ``seed``, so that only the total is revealed. None means no masks,
    with the same total.
    """
    units = [np.rint(each * 2.0**SUM_BITS).astype(np.int64) for each in sums]
    whole = np.sum(units, axis=0) if hidden is None else hidden.total(units, seed)
    return np.multiply(whole, 2.0**-SUM_BITS, dtype=np.float64)


def clipped_sum(rows: Floats, unit: NDArray[np.int64], how: Mechanism, bounds: Bounds) -> Floats:
    """Return the sum ``[K]`` of the vectors of all privacy units, each clipped to ``bounds``.

    A unit's vector is the sum of its ``rows [n, K]``; ``unit [n]`` has the unit of each row, as in :func:`noisy_sum`.
    Vectors that are not finite add 0.
    """
    units, vectors = int(unit[-1]) + 1 if len(unit) else 0, rows
    if units < len(unit):
        vectors = np.zeros((units, rows.shape[1]))
        np.add.at(vectors, unit, rows)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths, bound = how.lengths(vectors), how.bound(bounds)
    finite = np.isfinite(lengths)
    vectors = np.where(finite[:, None], vectors, 0.0)
    long = finite & (lengths > bound)
    factors = np.where(long, np.divide(bound * BELOW, lengths, out=np.ones_like(lengths), where=long), 1.0)
    return np.asarray((vectors * factors[:, None]).sum(axis=0))
