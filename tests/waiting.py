"""Waiting for what comes, however fast or slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], seconds: float = 600) -> None:
    """Wait until something is so. The limit is for what never comes, not for what is slow."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)
