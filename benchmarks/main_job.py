"""The command of ``make run``: wall seconds, processor seconds and peak memory.

``python -m benchmarks.main_job`` runs ``raysim compare experiments/main.yaml`` three times in empty folders, after one
run that fills the cache of data, and prints a line for each. On a busy machine compare processor seconds: wall seconds
depend on what else runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.jobs import machine
from benchmarks.process import measured

JOB = Path(__file__).parents[1] / "experiments" / "main.yaml"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="measured runs")
    print(machine())
    for k in range(1 + parser.parse_args().runs):
        with tempfile.TemporaryDirectory() as folder:
            usage = measured([sys.executable, "-m", "raysim", "compare", str(JOB), "--out", "out"], Path(folder))
        if k:
            print(f"{usage.seconds:.1f} s, {usage.processor:.1f} CPU s, {usage.peak / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
