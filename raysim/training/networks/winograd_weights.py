"""The weights of Winograd's convolution at its 36 points, and the derivatives by them.

Points are ``[36, rows, columns]``, as :func:`raysim.training.networks.winograd.tiles` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from raysim.training.networks.compiled import compiled, inlined
from raysim.training.networks.winograd import POINTS, plane
from raysim.training.networks.written import Array

_F = np.float32
_2, _4 = _F(2), _F(4)


class Weights(NamedTuple):
    """The loops for a convolution from ``a`` channels to ``b``. All arrays are flat; ``strip [36 (a + b)]`` is overwritten.

    ``weight [b, a, 3, 3]``; points of rows beyond the channels are zero.
    """

    points: Callable[[Array, Array, Array], None]
    """``(weight, strip, points)``: store ``G w G'`` in ``points [36, a, b]``."""
    turned: Callable[[Array, Array, Array], None]
    """The same, in ``points [36, b, a]``."""
    by_weight: Callable[[Array, Array, Array], None]
    """``(by_points, strip, by_weight)``: store the derivatives by the weights, of those by ``points [36, a, b]``."""


@inlined
def _g(w0, w1, w2, sixth, twelfth, part):  # type: ignore[no-untyped-def]
    """Values at 0, 1, -1, 2, -2 and infinity, each divided; ``part`` is half a twelfth."""
    near, far, wide = sixth * (w0 + w2), part * (w0 + _4 * w2), twelfth * w1
    less = sixth * w1
    return w0 / _4, -near - less, less - near, far + wide, far - wide, w2


@inlined
def _g_transposed(v0, v1, v2, v3, v4, v5, sixth, twelfth, part):  # type: ignore[no-untyped-def]
    near, far = sixth * (v1 + v2), v3 + v4
    return v0 / _4 - near + part * far, sixth * (v2 - v1) + twelfth * (v3 - v4), sixth * far - near + v5


@lru_cache
def weights(channels: int, maps: int, rows: int) -> Weights:
    """For so many channels, ``maps`` that come from them, and ``rows`` of the points: channels, and some more."""
    u = np.uint64  # numbers without a sign, see winograd.transforms
    a, b, three, six, nine = u(channels), u(maps), u(3), u(6), u(9)

    def store(lines, columns, line_step, column_step, lacking, point):  # type: ignore[no-untyped-def]
        # Strips: the nine weights, then three of each of six rows.
        C, rest = columns, lacking * columns

        def loop(weight, strip, points):  # type: ignore[no-untyped-def]
            kind = weight.dtype.type
            sixth, twelfth, part = kind(1 / 6), kind(1 / 12), kind(1 / 24)
            for i in range(lines):
                for c in range(C):
                    for k in range(nine):
                        strip[k * C + c] = weight[i * line_step + c * column_step + k]
                for j in range(three):
                    for c in range(C):
                        q = j * C + c
                        v0, v1, v2, v3, v4, v5 = _g(
                            strip[q], strip[q + three * C], strip[q + six * C], sixth, twelfth, part
                        )
                        q = q + nine * C
                        strip[q], strip[q + three * C], strip[q + six * C] = v0, v1, v2
                        strip[q + nine * C], strip[q + u(12) * C], strip[q + u(15) * C] = v3, v4, v5
                for k in range(six):
                    for c in range(C):
                        q = (nine + k * three) * C + c
                        v0, v1, v2, v3, v4, v5 = _g(strip[q], strip[q + C], strip[q + u(2) * C], sixth, twelfth, part)
                        q = k * six * point + i * C + c
                        points[q], points[q + point], points[q + u(2) * point] = v0, v1, v2
                        points[q + three * point], points[q + u(4) * point], points[q + u(5) * point] = v3, v4, v5

            for k in range(u(POINTS)):
                for c in range(rest):
                    points[k * point + lines * C + c] = kind(0)

        return compiled(loop)

    point = u(plane(rows, maps))

    def by_weight(by_points, strip, by_weight):  # type: ignore[no-untyped-def]
        kind = by_weight.dtype.type
        sixth, twelfth, part = kind(1 / 6), kind(1 / 12), kind(1 / 24)
        for i in range(a):
            for k in range(six):
                for c in range(b):
                    q = k * point + i * b + c
                    v0, v1, v2 = _g_transposed(
                        by_points[q],
                        by_points[q + six * point],
                        by_points[q + u(12) * point],
                        by_points[q + u(18) * point],
                        by_points[q + u(24) * point],
                        by_points[q + u(30) * point],
                        sixth,
                        twelfth,
                        part,
                    )
                    q = k * b + c
                    strip[q], strip[q + six * b], strip[q + u(12) * b] = v0, v1, v2
            for k in range(three):
                for c in range(b):
                    q = k * six * b + c
                    v0, v1, v2 = _g_transposed(
                        strip[q],
                        strip[q + b],
                        strip[q + u(2) * b],
                        strip[q + three * b],
                        strip[q + u(4) * b],
                        strip[q + u(5) * b],
                        sixth,
                        twelfth,
                        part,
                    )
                    q = (u(18) + k * three) * b + c
                    strip[q], strip[q + b], strip[q + u(2) * b] = v0, v1, v2
            for c in range(b):
                for k in range(nine):
                    by_weight[(c * a + i) * nine + k] = strip[(u(18) + k) * b + c]

    return Weights(
        store(a, b, nine, nine * a, u(rows - channels), point),
        store(b, a, nine * a, nine, u(0), u(plane(maps, channels))),
        compiled(by_weight),
    )
