"""The bytes that each hospital of a group sends and receives in a secure sum, by formula."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]

KEYS, PUBLIC = 64, 64
"""Bytes: two public keys up, and two of each neighbour down."""

SHARES = 2 * 33 + 8 + 16 + 12
"""Bytes of a sealed message to a neighbour: two shares, whose they are, the tag and the nonce."""

REVEALED = 33
"""Bytes of a revealed share."""

WORD = 8
"""Bytes of an entry of the masked sum, which has ``p`` parameters and the weight."""


@overload
def up(p: int, around: int, *, shares: bool = True, masked: bool = True, reveals: bool = True) -> int: ...
@overload
def up(p: int, around: int, *, shares: Flags, masked: Flags, reveals: Flags) -> NDArray[np.int64]: ...
def up(
    p: int, around: int, *, shares: bool | Flags = True, masked: bool | Flags = True, reveals: bool | Flags = True
) -> int | NDArray[np.int64]:
    """Bytes that a hospital with ``around`` neighbours sends for ``p`` parameters.

    The flags say how far it came: whether it sent shares, its masked vector, and revealed shares. For ``m`` hospitals
    they are arrays ``[m]``, and so are the bytes.
    """
    return KEYS + around * SHARES * shares + WORD * (p + 1) * masked + REVEALED * around * reveals


@overload
def down(around: int, *, shares: bool = True) -> int: ...
@overload
def down(around: int, *, shares: Flags) -> NDArray[np.int64]: ...
def down(around: int, *, shares: bool | Flags = True) -> int | NDArray[np.int64]:
    """Bytes that a hospital receives: its neighbours' public keys and, if it sent shares itself, their shares."""
    return PUBLIC * around + around * SHARES * shares
