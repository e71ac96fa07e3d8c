"""How soon a command's first round is shown where a Ray stands already, with the head start and without.

Starts a Ray of two CPUs here, and runs ``raysim run`` on it on a terminal: 208 synthetic hospitals, logistic
regression, 20 rounds. Printed for each run: the seconds from the command to the first character on the screen, to a
first round there (the bar is drawn anew ten times a second), and to the end. A command before them fills the cache of
the data; it is not counted. Run by hand on a quiet machine:

    python -m benchmarks.standing --repeats 3
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks import sweep
from benchmarks.soak.places import StandingRay

CONFIG = {
    "name": "standing",
    **{section: sweep.CONFIG[section] for section in ("data", "model", "training")},
    "strategy": {"name": "fedavg"},
    "tracking": {"uri": "none"},
}
ROUND_SHOWN = re.compile(rb"[1-9]\d*/20\b")
"""In what the progress bar draws."""


class Seconds(NamedTuple):
    """Of one command, from its start."""

    sign: float
    """To the first character on the screen."""
    round: float
    """To the first round on the screen."""
    end: float
    """To its end."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory(prefix="raysim-benchmark-") as name:
        folder = Path(name)
        (folder / "run.yaml").write_text(yaml.safe_dump(CONFIG))
        ray = StandingRay(folder, ["127.0.0.1"], [[]], cpus=2)
        try:
            ray.start()
            _shown(folder, ray.environment)
            for head_start in ("true", "false"):
                options = ("--set", f"resources.head_start={head_start}")
                runs = [_shown(folder, ray.environment, *options) for _ in range(repeats)]
                for run in runs:
                    print(f"head_start {head_start}: {run.sign:.2f} s, {run.round:.2f} s, {run.end:.2f} s")
                print(
                    f"head_start {head_start}: median to a first round {statistics.median(r.round for r in runs):.2f} s"
                )
        finally:
            ray.stop()


def _shown(folder: Path, environment: dict[str, str], *options: str) -> Seconds:
    """Run ``raysim run`` on a terminal of its own. Raises ``RuntimeError`` with what it wrote where it fails."""
    command = [sys.executable, "-m", "raysim", "run", "run.yaml", "--out", tempfile.mkdtemp(dir=folder)]
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(command[0], [*command, *options], os.environ | environment | {"TERM": "xterm"})
    shown, sign, round = b"", 0.0, 0.0
    while text := _read(terminal):
        shown += text
        sign = sign or time.perf_counter() - began
        if not round and ROUND_SHOWN.search(shown):
            round = time.perf_counter() - began
    os.close(terminal)
    if os.waitpid(pid, 0)[1] or not round:
        raise RuntimeError(shown.decode(errors="replace"))
    return Seconds(sign, round, time.perf_counter() - began)


def _read(terminal: int) -> bytes:
    """What is written there next; nothing once nobody writes any more."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says so
        return b""


if __name__ == "__main__":
    main()
