"""What intervals, noise floors and the answer add to a comparison: processor seconds of each, and their share of all.

``python -m benchmarks.statistics_cost experiments/chip_paper.yaml [--set key=value ...]`` runs the comparison in this
process and counts the seconds within each part. All are of one run, so that a loaded machine slows both sides of the
ratio.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

PARTS = {
    "sums over pairs of rows, at hospitals": ("raysim.engine.measuring.served_model", "pair_sums"),
    "hospitals' intervals and shrunken estimates": ("raysim.storage.run_tables", "_intervals"),
    "calibration, decisions and net benefit of every hospital": ("raysim.storage.clinical_tables", "tables"),
    "noise floors, slopes on size and gaps": ("raysim.report.judgement.noise", "noise"),
    "differences of all pairs": ("raysim.experiment.comparison", "evidence_from"),
    "the answer": ("raysim.experiment.comparison", "answer_from"),
    "the table of differences": ("raysim.report.tables", "differences"),
}
"""Where each part is called by name. No part calls another."""


def counted(seconds: dict[str, float], part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which adds the processor seconds of its calls to those of its ``part``."""

    @functools.wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds[part] += time.process_time() - began

    return timed


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    began = time.process_time()
    command = importlib.import_module("raysim.cli.main").main
    seconds = dict.fromkeys(PARTS, 0.0)
    for part, (module, name) in PARTS.items():
        place = importlib.import_module(module)
        setattr(place, name, counted(seconds, part, getattr(place, name)))
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["raysim", "compare", given.config, "--in-process", "--out", f"{folder}/compared"]
        sys.argv += [argument for override in given.set for argument in ("--set", override)]
        try:
            command()
        except SystemExit as ended:
            if ended.code:
                raise
    whole = time.process_time() - began
    for part, spent in [*seconds.items(), ("together", sum(seconds.values()))]:
        print(f"{part}: {spent:.1f} s, {spent / whole:.1%} of {whole:.1f} s")


if __name__ == "__main__":
    main()
