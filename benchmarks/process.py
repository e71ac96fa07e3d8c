"""A command from start to end: its wall seconds, processor seconds and peak memory, with all its processes.

Memory is the proportional set size (shared pages count once). It and processor times are sampled while the command
runs, so what a process computes after the last sample is not counted.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLED_EVERY = 0.2
"""Seconds."""


@dataclass(frozen=True)
class Usage:
    """What a command took."""

    seconds: float
    """Wall time from start to exit."""
    processor: float
    """Processor seconds of all its processes, in user and system mode."""
    peak: int
    """Most bytes of proportional set size that were seen."""


def measured(command: Sequence[str], folder: Path) -> Usage:
    """Run ``command`` in ``folder``. Raises ``RuntimeError`` with the end of what it printed where it fails."""
    began, peak, used = time.perf_counter(), 0, dict[int, float]()
    with (folder / "printed.txt").open("w+") as printed:
        child = subprocess.Popen(command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT)
        ended = threading.Event()
        seconds = [0.0]

        def wait() -> None:
            child.wait()
            seconds[0] = time.perf_counter() - began
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        root = psutil.Process(child.pid)
        while not ended.wait(SAMPLED_EVERY):
            peak = max(peak, tree_pss(root))
            used |= tree_times(root)
        if child.returncode:
            printed.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit code {child.returncode}\n{printed.read()[-2000:]}")
    return Usage(seconds[0], sum(used.values()), peak)


def tree_pss(root: psutil.Process) -> int:
    """Bytes of proportional set size of a process and all that came from it."""
    total = 0
    for process in tree(root):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def tree_times(root: psutil.Process) -> dict[int, float]:
    """Processor seconds of a process and of all that came from it, by their ids."""
    times = {}
    for process in tree(root):
        try:
            own = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        times[process.pid] = own.user + own.system
    return times


def tree(root: psutil.Process) -> list[psutil.Process]:
    """A process and all that came from it; none once it has ended."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
