"""Secret sharing: any ``t`` shares give the secret, and ``t - 1`` shares reveal nothing about it.

A. Shamir: *How to Share a Secret*, Communications of the ACM 22(11), 1979.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PRIME = 2**256 + 297
"""The modulus of all computations with shares: the smallest prime above 2^256, so above every secret of 32 bytes."""


def split(secret: int, coefficients: Sequence[int], points: Sequence[int], prime: int = PRIME) -> dict[int, int]:
    """Divide ``secret`` into shares ``{point: value}``, one for each of ``points``. The values are those of a
    polynomial modulo ``prime``. Its constant term is ``secret``; the ``coefficients`` of the other terms are in
    ascending order of degree.

    The number of shares needed to compute the secret is the number of ``coefficients`` plus one. Raises ``ValueError``
    if a point is 0 modulo ``prime``.
    """
    if any(point % prime == 0 for point in points):
        raise ValueError(
            "points: a share at the point 0 would be the secret itself; use points that are not 0 modulo prime"
        )
    shares = {}
    for point in points:
        value = 0
        for coefficient in reversed([secret, *coefficients]):
            value = (value * point + coefficient) % prime
        shares[point] = value
    return shares


def combine(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Compute the secret from enough ``shares {point: value}``."""
    weights = lagrange(tuple(shares), prime)
    return sum(weight * value for weight, value in zip(weights, shares.values(), strict=True)) % prime


def lagrange(points: Sequence[int], prime: int = PRIME) -> list[int]:
    """Return the Lagrange coefficients of ``points``: the secret is the sum of the shares times these coefficients,
    modulo ``prime``.
    """
    weights = []
    for i in points:
        above = below = 1
        for j in points:
            if j != i:
                above, below = above * j % prime, below * (j - i) % prime
        weights.append(above * pow(below, -1, prime) % prime)
    return weights
