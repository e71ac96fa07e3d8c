"""Winograd's transform of a convolution's weights, and its derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

from raysim.training.loops.winograd.points import POINTS, plane
from raysim.training.loops.winograd.sixes import put_six, six_of
from raysim.training.loops.writing import called

_F, _u = np.float32, np.uint64  # without a sign, see winograd.inputs
_2, _4 = _F(2), _F(4)
_TWO, _THREE, _SIX, _NINE = (_u(k) for k in (2, 3, 6, 9))
_BEHIND = _u(18)
"""The nine derivatives of a weight are in the strip behind so many numbers."""


@called
def _g(w0, w1, w2, sixth, twelfth):  # type: ignore[no-untyped-def]
    """The values at 0, 1, -1, 2, -2 and infinity of ``w0 + w1 t + w2 t^2``, divided by 4, -6, -6, 24, 24 and 1."""
    even, odd, far, wide = sixth * (w0 + w2), sixth * w1, twelfth / _2 * (w0 + _4 * w2), twelfth * w1
    return w0 / _4, -even - odd, odd - even, far + wide, far - wide, w2


@called
def _g_transposed(v0, v1, v2, v3, v4, v5, sixth, twelfth):  # type: ignore[no-untyped-def]
    near, far = sixth * (v1 + v2), v3 + v4
    return v0 / _4 - near + twelfth / _2 * far, sixth * (v2 - v1) + twelfth * (v3 - v4), sixth * far - near + v5


def of_weights(channels: int, maps: int, width: int, turned: bool, dtype: str) -> Any:
    """``(weight, strip, points)``: store ``G w G'`` of ``weight [b, a, 3, 3]`` in ``points [36, width, b]``.

    Rows beyond the a channels are zero. ``turned``: store it in ``points [36, b, a]``.
    """
    a, b = _u(channels), _u(maps)
    lines, C, line_step, column_step = (b, a, _NINE * a, _NINE) if turned else (a, b, _NINE, _NINE * a)
    rest, point = (
        _u(0 if turned else (width - channels) * maps),
        _u(plane(*(maps, channels) if turned else (width, maps))),
    )
    kind = np.dtype(dtype).type
    sixth, twelfth, nothing = kind(1 / 6), kind(1 / 12), kind(0)

    def of_weights(weight, strip, points):  # type: ignore[no-untyped-def]
        for i in range(lines):
            # The strip has nine weights of each column, then three numbers of each of six points.
            for c in range(C):
                for k in range(_NINE):
                    strip[k * C + c] = weight[i * line_step + c * column_step + k]
            for j in range(_THREE):
                for c in range(C):
                    q = j * C + c
                    six = _g(strip[q], strip[q + _THREE * C], strip[q + _SIX * C], sixth, twelfth)
                    put_six(six, strip, q + _NINE * C, _THREE * C)
            for k in range(_SIX):
                for c in range(C):
                    q = (_NINE + k * _THREE) * C + c
                    six = _g(strip[q], strip[q + C], strip[q + _TWO * C], sixth, twelfth)
                    put_six(six, points, k * _SIX * point + i * C + c, point)
        for k in range(_u(POINTS)):
            for c in range(rest):
                points[k * point + lines * C + c] = nothing

    return of_weights


def by_weights(channels: int, maps: int, width: int, dtype: str) -> Any:
    """``(by_points, strip, by_weight)``: store the derivatives by the weights ``[b, a, 3, 3]``.

    ``by_points [36, width, b]``: those by their points.
    """
    a, b, point = _u(channels), _u(maps), _u(plane(width, maps))
    kind = np.dtype(dtype).type
    sixth, twelfth = kind(1 / 6), kind(1 / 12)

    def by_weights(by_points, strip, by_weight):  # type: ignore[no-untyped-def]
        for i in range(a):
            for k in range(_SIX):
                for c in range(b):
                    six = six_of(by_points, k * point + i * b + c, _SIX * point)
                    v0, v1, v2 = _g_transposed(*six, sixth, twelfth)
                    q = k * b + c
                    strip[q], strip[q + _SIX * b], strip[q + _u(12) * b] = v0, v1, v2
            for k in range(_THREE):
                for c in range(b):
                    six = six_of(strip, k * _SIX * b + c, b)
                    v0, v1, v2 = _g_transposed(*six, sixth, twelfth)
                    q = (_BEHIND + k * _THREE) * b + c
                    strip[q], strip[q + b], strip[q + _TWO * b] = v0, v1, v2
            for c in range(b):
                for k in range(_NINE):
                    by_weight[(c * a + i) * _NINE + k] = strip[(_BEHIND + k) * b + c]

    return by_weights
