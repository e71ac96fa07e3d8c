"""The decision when a run writes checkpoints."""

from __future__ import annotations

import time
from typing import Literal

Every = int | Literal["auto"]
"""The number of rounds between two checkpoints, 0 for none. With ``auto``, the time since the last checkpoint
decides."""

AUTO_SECONDS, AUTO_SHARE = 10.0, 20.0
"""The minimum time between two automatic checkpoints: in seconds, and as a multiple of the time that writing one takes.
The longer time applies."""


class Cadence:
    """Decides after each round whether the run writes a checkpoint, as ``every`` requests."""

    def __init__(self, every: Every) -> None:
        self._every = every
        self._at, self._cost = time.perf_counter(), 0.0

    @property
    def on(self) -> bool:
        """Whether the run writes checkpoints at all."""
        return self._every != 0

    def due(self, round: int) -> bool:
        """Return whether a checkpoint is due after this round. Call :meth:`made` after writing the checkpoint."""
        self._asked = time.perf_counter()
        if self._every == "auto":
            return self._asked - self._at >= max(AUTO_SECONDS, AUTO_SHARE * self._cost)
        return self._every > 0 and round % self._every == 0

    def made(self) -> None:
        """Record that a checkpoint has just been made, and how long it took."""
        self._at = time.perf_counter()
        self._cost = self._at - self._asked
