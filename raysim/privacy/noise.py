"""Noise for sums that are held as integers, from streams that can be repeated or from the operating system."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.exact import FRACTION_BITS
from raysim.core.streams import Streams, stream

Floats = NDArray[np.float64]

Origin = Literal["seeded", "system"]
"""Where noise comes from."""


def normals(origin: Origin, size: tuple[int, ...], seed: int, purpose: str, *key: int) -> Floats:
    """Standard normal numbers of shape ``size``: of the stream ``(seed, purpose, *key)``, or the operating system's."""
    if origin == "seeded":
        return stream(seed, purpose, *key).standard_normal(size)
    from scipy.special import ndtri

    drawn = np.frombuffer(os.urandom(8 * int(np.prod(size))), dtype=np.uint64) >> np.uint64(11)
    normal: Floats = ndtri((drawn.astype(np.float64) + 0.5) * 2.0**-53).reshape(size)
    return normal


class Normals:
    """``Normals(origin, seed, purpose, *key)(step, size)`` is ``normals(origin, (size,), seed, purpose, *key, step)``,
    quicker where it is asked for many steps.
    """

    def __init__(self, origin: Origin, seed: int, purpose: str, *key: int) -> None:
        self._origin: Origin = origin
        self._streams = Streams(seed, purpose, *key)

    def __call__(self, step: int, size: int) -> Floats:
        """Standard normal numbers ``[size]``."""
        if self._origin == "seeded":
            return self._streams.at(step).standard_normal(size)
        return normals(self._origin, (size,), 0, "")


def laplaces(origin: Origin, size: int, seed: int, purpose: str, *key: int) -> Floats:
    """Laplace numbers of scale 1, ``[size]``, of the same origins."""
    if origin == "seeded":
        return stream(seed, purpose, *key).laplace(size=size)
    uniform = (np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(11)).astype(np.float64)
    centred = (uniform + 0.5) * 2.0**-53 - 0.5
    laplace: Floats = -np.sign(centred) * np.log1p(-2.0 * np.abs(centred))
    return laplace


def grid_units(noise: Floats) -> NDArray[np.int64]:
    """``noise`` in steps of the grid that exact sums are on, rounded to it."""
    return np.rint(noise * 2.0**FRACTION_BITS).astype(np.int64)


def with_rounding(clip: float, size: int, share: float) -> float:
    """How long a clipped message of ``size`` scalars can be once it is on the grid, in units before its weight.

    ``share`` is the weight that it has in the sum, above 0.
    """
    return clip + float(np.sqrt(size)) * 2.0**-FRACTION_BITS / 2.0 / share
