"""When a run makes a checkpoint."""

from __future__ import annotations

import time
from typing import Literal

Every = int | Literal["auto"]
"""A checkpoint after every so many rounds (0: never), or ``auto``: by the time since the last one."""

AUTO_SECONDS, AUTO_SHARE = 10.0, 20.0
"""Automatic checkpoints come this far apart, and at least this many times as far as one of them takes."""


class Cadence:
    """Says after each round whether a checkpoint is due; see ``Every``."""

    def __init__(self, every: Every) -> None:
        self._every = every
        self._at, self._cost = time.perf_counter(), 0.0

    @property
    def on(self) -> bool:
        """Whether there are to be any checkpoints."""
        return self._every != 0

    def due(self, round: int) -> bool:
        """Whether a checkpoint is to be made after this round; call :meth:`made` once it has been."""
        self._asked = time.perf_counter()
        if self._every == "auto":
            return self._asked - self._at >= max(AUTO_SECONDS, AUTO_SHARE * self._cost)
        return self._every > 0 and round % self._every == 0

    def made(self) -> None:
        """A checkpoint has been made and handed over."""
        self._at = time.perf_counter()
        self._cost = self._at - self._asked
