"""Formulas for the bytes that each hospital of a group sends and receives under secure aggregation."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Flags

KEYS, PUBLIC = 64, 64
"""The bytes of two public keys: ``KEYS`` are sent by each hospital, and ``PUBLIC`` are received from each neighbour."""

SHARES = 2 * 33 + 8 + 16 + 12
"""The bytes of an encrypted message to a neighbour: two shares, the ids of sender and receiver, the tag and the
nonce."""

REVEALED = 33
"""The bytes of a revealed share."""

WORD = 8
"""The bytes of one entry of a masked vector."""


@overload
def up(p: int, around: int, *, shares: bool = True, masked: bool = True, reveals: bool = True) -> int: ...
@overload
def up(p: int, around: int, *, shares: Flags, masked: Flags, reveals: Flags) -> NDArray[np.int64]: ...
def up(
    p: int, around: int, *, shares: bool | Flags = True, masked: bool | Flags = True, reveals: bool | Flags = True
) -> int | NDArray[np.int64]:
    """Return the bytes that a hospital with ``around`` neighbours sends in a secure sum of ``p`` parameters.

    ``shares``, ``masked`` and ``reveals`` say whether the hospital has sent secret shares, sent its masked vector,
    and revealed shares. For ``m`` hospitals, these flags and the result are arrays ``[m]``.
    """
    return KEYS + around * SHARES * shares + WORD * (p + 1) * masked + REVEALED * around * reveals


@overload
def down(around: int, *, shares: bool = True) -> int: ...
@overload
def down(around: int, *, shares: Flags) -> NDArray[np.int64]: ...
def down(around: int, *, shares: bool | Flags = True) -> int | NDArray[np.int64]:
    """Return the bytes that a hospital with ``around`` neighbours receives in a secure sum: its neighbours' public keys
    and, if it has sent secret shares itself (``shares``), its neighbours' shares.
    """
    return PUBLIC * around + around * SHARES * shares
