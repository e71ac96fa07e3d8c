"""``python -m benchmarks.soak [--minutes 8] [--places "in process" "own Ray"] [--results FILE] [--table FILE ...]``.

Injects faults, each command and place in turn, until the time is over or ``--faults`` were injected, and prints the
table; exit code 1 where something was not right. With ``--results`` a line of JSON is appended for each fault as it
ends, and ``--table`` prints the table of such files and injects nothing. ``three hosts`` needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.soak import damage, faults, places
from benchmarks.soak.cases import AGENT_SECONDS, Case, Missed, Stage, Wrong
from benchmarks.soak.drivers import Hangs, name_of
from benchmarks.soak.subjects import SUBJECTS

PLACES = ("in process", "own Ray", "one host", "three hosts")

Result = Mapping[str, Any]


def main() -> None:
    """Inject and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--faults", type=int, default=10**6, help="how many at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--places", nargs="*", default=["in process", "own Ray"], choices=PLACES, metavar="PLACE")
    parser.add_argument("--commands", nargs="*", default=list(SUBJECTS), choices=SUBJECTS)
    parser.add_argument("--only", nargs="*", default=[], choices=faults.FAULTS, help="these faults alone")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--table", type=Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.table is not None:
        lines = [line for path in arguments.table for line in path.read_text().splitlines()]
        print_table([json.loads(line) for line in lines])
        return
    results, left = inject(arguments)
    print_table(results)
    print(f"processes left behind: {left}")
    sys.exit(int(left > 0 or not all(result["right"] for result in results)))


def inject(arguments: argparse.Namespace) -> tuple[list[Result], int]:
    """Inject until the time is over; the results, and how many processes are left of commands that have ended."""
    end = time.monotonic() + 60 * arguments.minutes
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True)))
        stage = Stage(folder, np.random.default_rng(arguments.seed))
        if "three hosts" in arguments.places:
            stage.standing = stack.enter_context(places.three_hosts(folder))
        elif "one host" in arguments.places:
            stage.standing = stack.enter_context(places.one_host(folder))
        stack.enter_context(damage.servers())
        for command in arguments.commands:
            stage.prepare(SUBJECTS[command], arguments.places[0])
        cells = [
            cell for cell in faults.cells(tuple(arguments.places), arguments.only) if cell[1] in arguments.commands
        ]
        order: list[int] = []
        while time.monotonic() < end and len(results) < arguments.faults:
            order = order or [int(i) for i in stage.rng.permutation(len(cells))]
            fault, command, place = cells[order.pop()]
            try:
                results.append(struck(Case(stage, SUBJECTS[command], place), fault))
            except Missed:
                continue
            if arguments.results is not None:
                with arguments.results.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
        return results, left_over(stage)


def struck(case: Case, fault: faults.Fault) -> Result:
    """What came of a fault."""
    began, wrong = time.monotonic(), ""
    try:
        fault.strike(case)
    except (Wrong, Hangs, TimeoutError, psutil.Error, OSError) as error:
        wrong = " ".join(f"{type(error).__name__}: {error}".split())
    seconds = time.monotonic() - began
    told = f"{seconds:5.1f} s  {case.subject.command}, {case.place}: {fault.title}"
    print(f"{'WRONG' if wrong else 'right'} {told} {wrong}", file=sys.stderr, flush=True)
    if not wrong:
        shutil.rmtree(case.folder, ignore_errors=True)
    if case.driver is not None and case.driver.alive:
        with contextlib.suppress(Hangs):
            case.open()
            case.driver.end()
    return {
        "fault": fault.title,
        "command": case.subject.command,
        "place": case.place,
        "right": not wrong,
        "wrong": wrong,
        "seconds": round(seconds, 1),
    }


def print_table(results: Iterable[Result]) -> None:
    """How often each fault was injected and its end was right, by place and command."""
    injected, right = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for result in results:
        for column in (result["command"], result["place"], "in all"):
            for row in (result["fault"], "in all"):
                injected[row, column] += 1
                right[row, column] += result["right"]
    rows = [row for row in dict.fromkeys(row for row, _ in injected) if row != "in all"] + ["in all"]
    columns = [column for column in (*SUBJECTS, *PLACES, "in all") if injected["in all", column]]
    print("| fault | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row in rows:
        cells = [f"{right[row, column]} of {n}" if (n := injected[row, column]) else "" for column in columns]
        print(f"| {row} | " + " | ".join(cells) + " |")


def left_over(stage: Stage) -> int:
    """Processes of a command's own Ray that are still there when agents have had their time."""
    for since, family in stage.families:
        psutil.wait_procs(family, timeout=max(0.1, since + AGENT_SECONDS - time.monotonic()))
    return sum(bool(name_of(process)) for _, family in stage.families for process in family)


if __name__ == "__main__":
    main()
