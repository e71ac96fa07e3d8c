"""Sweeps as the tests of this folder begin them and go on with them."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from raysim.tune import sweep as sweeps

PLAIN = {
    "strategy": {"name": "fedprox"},
    "resources": {"runs_at_once": 1, "hospitals_per_actor": 12},
    "sweep__objectives": {"auroc": "max"},
}
"""For sweeps in which it does not matter what is trained, where and for what: little to import, one process for all
hospitals and one for the trial at work, and no picture of every pair and every three objectives."""

TWO = {"auroc": "max", "gini": "min"}
"""Objectives that give one picture."""


def begin(path: Path, out: Path) -> tuple[int, str]:
    """Runs a sweep; gives its exit code and what it printed."""
    printed = io.StringIO()
    code = sweeps.begin(path, [], out, Console(file=printed, width=160), verbose=False)
    return code, printed.getvalue()


def go_on(out: Path, failed: bool = False) -> tuple[int, str]:
    printed = io.StringIO()
    code = sweeps.go_on(out, Console(file=printed, width=160), failed=failed, verbose=False)
    return code, printed.getvalue()
