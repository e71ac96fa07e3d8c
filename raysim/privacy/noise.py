"""Random numbers for noise, from seeded streams or from the operating system."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.exact import FRACTION_BITS
from raysim.core.streams import quick_stream, stream

Origin = Literal["seeded", "system"]
"""Where the random numbers of noise come from: a stream of the seed (``seeded``), or the operating system
(``system``)."""

TOGETHER = 2**13
"""The largest number of random numbers that are generated together for several steps."""


def normals(origin: Origin, size: tuple[int, ...], seed: int, purpose: str, *key: int) -> Floats:
    """Return standard normal numbers of shape ``size``, from the random stream ``(seed, purpose, *key)`` or from the
    operating system.
    """
    if origin == "seeded":
        return stream(seed, purpose, *key).standard_normal(size)
    from scipy.special import ndtri

    uniform_bits = np.frombuffer(os.urandom(8 * int(np.prod(size))), dtype=np.uint64) >> np.uint64(11)
    return np.asarray(ndtri((uniform_bits.astype(np.float64) + 0.5) * 2.0**-53).reshape(size))


class StepNormals:
    """Standard normal numbers for each of the ``steps`` steps of a local update with DP-SGD, from the same sources as
    :func:`normals`.

    Numbers from a stream are in float32. They are computed by the transformation of G. E. P. Box, M. E. Muller: *A Note
    on the Generation of Random Normal Deviates*, Ann. Math. Statist. 29, 1958. This takes a third of the time of
    ``standard_normal``.
    """

    def __init__(self, origin: Origin, steps: int, seed: int, purpose: str, *key: int) -> None:
        self._origin: Origin = origin
        self._steps, self._seed, self._purpose, self._key = steps, seed, purpose, key
        self._at: tuple[int, int] | None = None
        self._squares, self._numbers = np.empty(0), np.empty((0, 0), np.float32)

    def __call__(self, step: int, size: int) -> NDArray[np.floating]:
        """Return the ``size`` numbers of ``step`` (from 0); a later call may overwrite them."""
        if self._origin == "system":
            return normals("system", (size,), self._seed, self._purpose)
        together = max(1, min(self._steps, TOGETHER // size))
        block, place = divmod(step, together)
        if self._at != (block, size):
            self._draw(quick_stream(self._seed, self._purpose, *self._key, block), together * size)
            self._at = block, size
        return self._numbers.reshape(-1)[place * size : (place + 1) * size]

    def _draw(self, generator: np.random.Generator, count: int) -> None:
        """Write ``count`` random numbers to reused memory."""
        pairs = (count + 1) // 2
        if len(self._squares) != pairs:
            self._squares, self._numbers = np.empty(pairs), np.empty((2, pairs), np.float32)
        squares, (x, y) = self._squares, self._numbers
        generator.standard_exponential(out=squares)
        generator.random(out=y, dtype=np.float32)
        np.add(squares, squares, x, casting="same_kind")
        np.sqrt(x, x)
        np.multiply(y, np.float32(2 * np.pi), y)
        cosines = squares.view(np.float32)[:pairs]
        np.cos(y, cosines)
        np.sin(y, y)
        np.multiply(y, x, y)
        np.multiply(x, cosines, x)


def laplaces(origin: Origin, size: int, seed: int, purpose: str, *key: int) -> Floats:
    """Return ``size`` numbers with the Laplace distribution of scale 1, from the same sources as :func:`normals`."""
    if origin == "seeded":
        return stream(seed, purpose, *key).laplace(size=size)
    uniform = (np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(11)).astype(np.float64)
    centred = (uniform + 0.5) * 2.0**-53 - 0.5
    return np.asarray(-np.sign(centred) * np.log1p(-2.0 * np.abs(centred)))


def grid_units(noise: Floats) -> NDArray[np.int64]:
    """Round ``noise`` to fixed-point numbers; return them as integers, whose sums are exact."""
    return np.rint(noise * 2.0**FRACTION_BITS).astype(np.int64)


def with_rounding(clip: float, size: int, share: float) -> float:
    """Return the largest norm that a message of ``size`` scalars, clipped to ``clip``, can have after rounding to fixed
    point.

    The norm refers to the message before it is weighted. ``share`` is the message's weight in the sum, above 0.
    """
    return clip + float(np.sqrt(size)) * 2.0**-FRACTION_BITS / 2.0 / share
