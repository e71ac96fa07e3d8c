"""Heartbeats of trials. A trial without one for too long is ended: Ray Tune itself would wait for ever.

A trial touches a file of its own after every round. It runs on the driver's node, which looks at the files.
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
"""Seconds between two looks of the driver."""

COUNTED_SECONDS = 10.0
"""The most seconds of silence that count between two looks: a driver that stood still has not looked meanwhile."""


class Pulse:
    """A trial's heartbeat: the file that it touches. ``trial`` is Ray Tune's name of the trial."""

    def __init__(self, folder: Path, trial: str) -> None:
        self._path = folder / trial

    def beat(self) -> None:
        """Show that the trial is alive."""
        with contextlib.suppress(OSError):  # the sweep may have ended, and its folder be gone
            self._path.touch()


@dataclass
class _LastSign:
    """The last heartbeat, and for how many seconds the driver has seen no newer one."""

    sign: int = 0
    silent: float = 0.0


class Heartbeats(Callback):  # type: ignore[misc]
    """Ends the process of a trial that shows no sign of life in ``folder`` for ``seconds``.

    Ray Tune then treats it as a trial whose process died: it is tried again up to ``sweep.retries`` times.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._last_signs: dict[str, _LastSign] = {}
        self._looked = time.monotonic()
        self._ended: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray Tune writes its callbacks to disk."""
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
        """Why a trial was ended here; None for others."""
        return f"silent for {self._seconds:g} s; its process was ended" if trial in self._ended else None

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
