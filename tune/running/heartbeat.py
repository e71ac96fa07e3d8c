"""Heartbeats of trials. A trial that sends no heartbeat for too long is ended, because Ray Tune would wait forever.

A trial touches a file after every round; the driver, on the same machine, checks the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune import Callback

LOOK_SECONDS = 1.0
"""The smallest number of seconds between two checks of heartbeats."""

COUNTED_SECONDS = 10.0
"""At most this number of seconds between two checks counts as silence, because the driver itself may have been
suspended."""


class Pulse:
    """The file that a trial touches as its heartbeat; ``trial`` is the trial's id in Ray Tune."""

    def __init__(self, folder: Path, trial: str) -> None:
        self._path = folder / trial

    def beat(self) -> None:
        """Touch the trial's file."""
        with contextlib.suppress(OSError):  # the sweep may have ended and removed its folder
            self._path.touch()


@dataclass
class _LastSign:
    """The time of a trial's last heartbeat, and the seconds of silence since."""

    sign: int = 0
    silent: float = 0.0


class Heartbeats(Callback):  # type: ignore[misc]
    """A Ray Tune callback that ends a trial's process if the trial's file in ``folder`` was not touched for
    ``seconds``.

    Ray Tune then tries the trial again up to ``sweep.retries`` times.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._last_signs: dict[str, _LastSign] = {}
        self._looked = time.monotonic()
        self._ended: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._last_signs[trial.trial_id] = _LastSign()
        self._ended.discard(trial.trial_id)

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        passed = time.monotonic() - self._looked
        if passed < LOOK_SECONDS:
            return
        self._looked += passed
        for trial in trials:
            if trial.status == "RUNNING" and trial.trial_id not in self._ended:
                self._listen(trial, min(passed, COUNTED_SECONDS))

    def reason(self, trial: str) -> str | None:
        """Return why this callback ended the process of ``trial``; None if it did not."""
        return f"its process did not report for {self._seconds:g} s and was ended" if trial in self._ended else None

    def _listen(self, trial: Any, passed: float) -> None:
        last, sign = self._last_signs.setdefault(trial.trial_id, _LastSign()), self._sign(trial.trial_id)
        if sign != last.sign:
            self._last_signs[trial.trial_id] = _LastSign(sign)
            return
        last.silent += passed
        if last.silent > self._seconds:
            import ray

            self._ended.add(trial.trial_id)
            ray.kill(trial.temporary_state.ray_actor)

    def _sign(self, trial: str) -> int:
        try:
            return (self._folder / trial).stat().st_mtime_ns
        except FileNotFoundError:
            return 0
