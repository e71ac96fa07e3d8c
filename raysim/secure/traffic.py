"""The bytes of a secure sum, by formula: what each hospital of a group sends and receives beside the model."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]

KEYS, PUBLIC = 64, 64
"""Two public keys up, and two of each neighbour down."""

SHARES = 2 * 33 + 8 + 16 + 12
"""Two shares for a neighbour, whose they are, the seal's tag and its nonce."""

REVEALED = 33
"""A share that is revealed."""

WORD = 8
"""An entry of the masked sum; behind ``p`` of them the weight."""


@overload
def up(p: int, around: int, *, shares: bool = True, masked: bool = True, reveals: bool = True) -> int: ...
@overload
def up(p: int, around: int, *, shares: Flags, masked: Flags, reveals: Flags) -> NDArray[np.int64]: ...
def up(
    p: int,
    around: int,
    *,
    shares: bool | Flags = True,
    masked: bool | Flags = True,
    reveals: bool | Flags = True,
) -> int | NDArray[np.int64]:
    """Bytes that a hospital with ``around`` neighbours sends, as far as it came; flags may be of many, ``[m]``."""
    return KEYS + around * SHARES * shares + WORD * (p + 1) * masked + REVEALED * around * reveals


@overload
def down(around: int, *, shares: bool = True) -> int: ...
@overload
def down(around: int, *, shares: Flags) -> NDArray[np.int64]: ...
def down(around: int, *, shares: bool | Flags = True) -> int | NDArray[np.int64]:
    """Bytes that it receives: its neighbours' public keys and, if it has sent shares itself, their shares."""
    return PUBLIC * around + around * SHARES * shares
