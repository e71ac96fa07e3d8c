"""``python -m tests.fuzz [--cases 2000] [--seed 1] [--memory 8] [--family NAME]``: counts, and each fault.

Cases run in child processes, many in each, which write to at most so many GiB of memory; a child that says nothing
for minutes is ended and counts as one that hangs. Exit code 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from raysim.cluster.connection import connected
from tests.fuzz import child as child_process
from tests.fuzz import finished_runs, stopped_runs, sweeps

FAMILIES = {
    "configurations": 0.3,
    "texts": 0.1,
    "tables": 0.15,
    "finished": 0.1,
    "runs": 0.1,
    "comparisons": 0.1,
    "sweeps": 0.15,
    "trials": 0.0,
}
"""Their shares of all cases; sweeps whose trials are run, on Ray, are drawn where they are asked for alone."""


def ended_sweep(folder: Path) -> None:
    """:func:`sweeps.ended`, on a Ray that is there for it alone."""
    with connected(verbose=False):
        sweeps.ended(folder)


TEMPLATES: dict[str, Callable[[Path], None]] = {
    "finished": finished_runs.ended,
    "runs": partial(stopped_runs.stopped, compare=False),
    "comparisons": partial(stopped_runs.stopped, compare=True),
    "sweeps": ended_sweep,
    "trials": ended_sweep,
}
"""What makes the folders that are changed."""

CHUNK = 50
"""Cases of a child process."""

SILENCE = {"trials": 900.0}
"""Seconds after which a child that says nothing hangs: two minutes, and longer where each case may start actors."""


def main() -> None:
    """Draw and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", type=int, default=8, help="GiB that a child may write to")
    parser.add_argument("--family", choices=FAMILIES, help="this one alone")
    arguments = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    done, wrong = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["RAYSIM_CACHE"] = str(home / "cache")
        shares = {arguments.family: 1.0} if arguments.family else FAMILIES
        for family in [family for family, share in shares.items() if share and family in TEMPLATES]:
            (home / family).mkdir()
            TEMPLATES[family](home / family)
        for family, share in shares.items():
            wanted, number = round(share * arguments.cases), arguments.seed
            while done[family] < wanted:
                before = done[family]
                mine, theirs = processes.Pipe(duplex=False)
                count = min(CHUNK, wanted - done[family])
                arguments_of_child = (family, count, number, arguments.memory, home, theirs)
                child = processes.Process(target=child_process.run, args=arguments_of_child)
                child.start()
                theirs.close()
                said, case = "it ended without a word", "?"
                with contextlib.suppress(EOFError):
                    while mine.poll(silence := SILENCE.get(family, 120.0)):
                        if (news := mine.recv()) is None:
                            said = ""
                            break
                        fault, case = news
                        done[family] += 1
                        if fault is not None:
                            wrong[family] += 1
                            print(f"--- {family}: {fault}\n    {case[:1500]}", file=sys.stderr, flush=True)
                    else:
                        said = f"it said nothing for {silence:g} s after this case"
                if said:
                    done[family] += 1
                    wrong[family] += 1
                    print(f"--- {family}, seed {number}: {said}: {case[:1500]}", file=sys.stderr, flush=True)
                    child.kill()
                child.join()
                number += 1
                print(f"{family:16} {done[family]:6} so far, {wrong[family]:3} wrong", flush=True)
                if done[family] == before:  # nothing more to draw
                    break
            print(f"{family:16} {done[family]:6} cases, {wrong[family]:3} wrong", flush=True)
        for left in home.glob("case-*"):
            shutil.rmtree(left)
    print(f"{'in all':16} {done.total():6} cases, {wrong.total():3} wrong")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
