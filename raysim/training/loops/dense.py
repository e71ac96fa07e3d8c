"""Passes over a batch through fully connected layers with ReLU, and the step that follows.

``t`` is a table of whole numbers: those of :data:`HEAD`, then those of :data:`LAYER` for each layer, then room for what
BLAS is given. ``f`` has the factors of products: 1, 0, the step's, and what is kept of weights and of biases.
Activations and residuals of a layer are ``[width, b]`` at its place in ``act`` and ``res``; the first place in ``act``
is that of the rows. A product is computed in pieces of a layer's outputs, see :mod:`raysim.training.products`.
"""

from __future__ import annotations

import numpy as np

from raysim.training.loops.blas_product import NO, YES, multiply
from raysim.training.loops.writing import at, called

HEAD = ("layers", "rows", "bytes", "product", "turned")
"""How many layers; rows of the batch; bytes of a number; BLAS's product; whether rows are turned before products."""
LAYER = ("inputs", "outputs", "pieces", "pieces_back", "weight", "from", "to")
"""Widths; pieces of the product forward, and of that back; where its parameters begin, what it receives and gives."""

_LAYERS, _ROWS, _BYTES, _PRODUCT, _TURNED = (np.uint64(k) for k in range(len(HEAD)))
_INPUTS, _OUTPUTS, _PIECES, _BACK, _WEIGHT, _FROM, _TO = (np.uint64(k) for k in range(len(LAYER)))
_HEAD, _WIDE = np.uint64(len(HEAD)), np.uint64(len(LAYER))
_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(k) for k in range(9))
ONE, ZERO, SCALE, KEEP, KEEP_BIAS = _0, _1, _2, _3, _4


@called
def _layer(t, k):  # type: ignore[no-untyped-def]
    """Where a layer's numbers begin."""
    return _HEAD + k * _WIDE


@called
def _multiply(t, f, turns, shape, factor, a, b, kept, c, apart):  # type: ignore[no-untyped-def]
    """``c = factor a b + kept c``; see :mod:`raysim.training.loops.blas_product`."""
    one, other = at(f) + factor * t[_BYTES], at(f) + kept * t[_BYTES]
    multiply(t[_PRODUCT], t, _layer(t, t[_LAYERS]), turns, shape, one, a, b, other, c, apart)


def forward(t, f, theta, rows, act):  # type: ignore[no-untyped-def]
    """Fill the activations of a batch of ``rows [b, F]``; those of the last layer without ReLU."""
    b, size, zero = t[_ROWS], t[_BYTES], f[ZERO]
    if t[_TURNED]:
        width = t[_layer(t, _0) + _INPUTS]
        for j in range(width):
            for i in range(b):
                act[j * b + i] = rows[i * width + j]
    for k in range(t[_LAYERS]):
        layer = _layer(t, k)
        inputs, outputs, weight, z = t[layer + _INPUTS], t[layer + _OUTPUTS], t[layer + _WEIGHT], t[layer + _TO]
        width = outputs // t[layer + _PIECES]
        turn, received, apart = NO, at(act) + t[layer + _FROM] * size, b
        if k == _0 and not t[_TURNED]:
            turn, received, apart = YES, at(rows), inputs
        for p in range(t[layer + _PIECES]):
            matrix, into = at(theta) + (weight + p * width * inputs) * size, at(act) + (z + p * width * b) * size
            shape = b, width, inputs
            _multiply(t, f, (turn, NO), shape, ONE, received, matrix, ZERO, into, (apart, inputs, b))
        bias, last = weight + inputs * outputs, k + _1 == t[_LAYERS]
        for j in range(outputs):
            of_all, here = theta[bias + j], z + j * b
            if last:
                for i in range(b):
                    act[here + i] += of_all
            else:
                for i in range(b):
                    value = act[here + i] + of_all
                    act[here + i] = zero if value <= zero else value  # not a number stays what it is


@called
def returned(t, f, theta, res, k):  # type: ignore[no-untyped-def]
    """Fill the residuals of the layer below ``k``, as if it had no ReLU."""
    layer, b, size = _layer(t, k), t[_ROWS], t[_BYTES]
    inputs, outputs, weight = t[layer + _INPUTS], t[layer + _OUTPUTS], t[layer + _WEIGHT]
    width = inputs // t[layer + _BACK]
    for p in range(t[layer + _BACK]):
        matrix, into = at(theta) + (weight + p * width) * size, at(res) + (t[layer + _FROM] + p * width * b) * size
        shape, residuals = (b, width, outputs), at(res) + t[layer + _TO] * size
        _multiply(t, f, (NO, YES), shape, ONE, residuals, matrix, ZERO, into, (b, inputs, b))


@called
def masked(t, f, act, res, k):  # type: ignore[no-untyped-def]
    """Set residuals of the layer below ``k`` to 0 where its ReLU gave 0."""
    layer = _layer(t, k)
    begin, zero = t[layer + _FROM], f[ZERO]
    for i in range(begin, begin + t[layer + _INPUTS] * t[_ROWS]):
        res[i] = zero if act[i] <= zero else res[i]


def backward(t, f, theta, act, res, top):  # type: ignore[no-untyped-def]
    """Fill the residuals of the layers below ``top``, from its own."""
    for down in range(top):
        k = top - down
        returned(t, f, theta, res, k)
        masked(t, f, act, res, k)


def step(t, f, act, res, rows, target, room):  # type: ignore[no-untyped-def]
    """``target <- keep target + scale gradient`` for all layers; ``room`` is for a copy of what one receives."""
    b, size = t[_ROWS], t[_BYTES]
    for down in range(t[_LAYERS]):
        k = t[_LAYERS] - _1 - down
        layer = _layer(t, k)
        inputs, outputs, weight = t[layer + _INPUTS], t[layer + _OUTPUTS], t[layer + _WEIGHT]
        received, residuals = at(act) + t[layer + _FROM] * size, at(res) + t[layer + _TO] * size
        pieces = t[layer + _PIECES]
        if k > _0 and (f[KEEP] == f[ONE] or pieces == _1):
            shape, into = (inputs, outputs, b), at(target) + weight * size
            _multiply(t, f, (YES, NO), shape, SCALE, received, residuals, KEEP, into, (b, b, inputs))
        else:
            # OpenBLAS multiplies a large target by another factor in a pass of its own, a small one in none.
            by_rows = at(rows)
            if k > _0:
                begin = t[layer + _FROM]
                for i in range(b):
                    for j in range(inputs):
                        room[i * inputs + j] = act[begin + j * b + i]
                by_rows = at(room)
            width = outputs // pieces
            for p in range(pieces):
                shape, into = (inputs, width, b), at(target) + (weight + p * width * inputs) * size
                of_piece = residuals + p * width * b * size
                _multiply(t, f, (NO, NO), shape, SCALE, by_rows, of_piece, KEEP, into, (inputs, b, inputs))
        keep, scale = f[KEEP_BIAS], f[SCALE]
        for j in range(outputs):
            of_all = weight + inputs * outputs + j
            target[of_all] = keep * target[of_all] + scale * _sum(res, t[layer + _TO] + j * b, b, f[ZERO])


@called
def _sum(numbers, begin, count, zero):  # type: ignore[no-untyped-def]
    """The sum of so many numbers, as eight sums that a processor may compute at once."""
    a = b = c = d = e = f = g = h = zero
    whole = begin + count // _8 * _8
    for i in range(begin, whole, _8):
        a += numbers[i]
        b += numbers[i + _1]
        c += numbers[i + _2]
        d += numbers[i + _3]
        e += numbers[i + _4]
        f += numbers[i + _5]
        g += numbers[i + _6]
        h += numbers[i + _7]
    for i in range(whole, begin + count):
        a += numbers[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))
