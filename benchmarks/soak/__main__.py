"""``python -m benchmarks.soak [--minutes 8] [--places "in process" "own Ray"] [--results FILE] [--table FILE ...]``.

Injects faults until the time is over or ``--faults`` were injected, each time those that were injected least into the
command that was struck least, and prints the table; exit code 1 where anything was not right. With ``--results`` a line
of JSON is appended for each fault when its case has ended, and the lines that are there count. ``--table`` prints the
table of such files and injects nothing. ``three hosts`` and full disks need root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.soak import faults, places, stores
from benchmarks.soak.cases import AGENT_SECONDS, Case, Missed, Stage, Wrong
from benchmarks.soak.drivers import Hangs, name_of
from benchmarks.soak.subjects import SUBJECTS

PLACES = ("in process", "own Ray", "one host", "three hosts")

SHARE = {"in process": 0.8, "one host": 0.15, "own Ray": 0.05, "three hosts": 0.1}
"""How often a case runs there, in proportion."""

LENGTH = {"run": 15, "compare": 15, "curve": 15, "sweep": 8}
"""How many faults strike a case at most."""

WEIGHT = {"run": 1.0, "compare": 1.0, "curve": 1.0, "sweep": 0.2}
"""How many faults strike a command, in proportion."""

FAILURES = (Wrong, Hangs, TimeoutError, psutil.Error, OSError)

Result = Mapping[str, Any]


def main() -> None:
    """Inject and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--faults", type=int, default=10**6, help="how many at least, if there is time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--places", nargs="*", default=["in process", "own Ray"], choices=PLACES, metavar="PLACE")
    parser.add_argument("--commands", nargs="*", default=list(SUBJECTS), choices=SUBJECTS)
    parser.add_argument("--only", nargs="*", default=[], choices=faults.FAULTS, help="these faults alone")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--table", type=Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print_table([result for path in arguments.table for result in read(path)])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends too
    results, left = inject(arguments)
    print_table(results)
    print(f"processes left behind: {left}")
    sys.exit(int(left > 0 or not all(result["right"] for result in results)))


def read(path: Path | None) -> list[Result]:
    """What was injected before."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def inject(arguments: argparse.Namespace) -> tuple[list[Result], int]:
    """Inject until the time is over; the results, and how many processes are left of commands that have ended."""
    end = time.monotonic() + 60 * arguments.minutes
    results = read(arguments.results)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True)))
        stage = Stage(folder, np.random.default_rng([arguments.seed, len(results)]))
        if "three hosts" in arguments.places:
            stage.standing = stack.enter_context(places.three_hosts(folder))
        elif "one host" in arguments.places:
            stage.standing = stack.enter_context(places.one_host(folder))
        stack.enter_context(stores.servers())
        ways = [(c, p) for c in arguments.commands for p in arguments.places if (c, p) != ("sweep", "in process")]
        for command in {command for command, _ in ways}:
            stage.prepare(SUBJECTS[command], arguments.places[0])
        while time.monotonic() < end and len(results) < arguments.faults:
            news = played(stage, *drawn(stage, ways, results), results, arguments.only)
            results += news
            if arguments.results is not None:
                with arguments.results.open("a") as file:
                    file.writelines(json.dumps(result) + "\n" for result in news)
        return results, left_over(stage)


def drawn(stage: Stage, ways: list[tuple[str, str]], results: Iterable[Result]) -> tuple[str, str]:
    """The command that was struck least, and a place."""
    struck = Counter(result["command"] for result in results)
    command = min((command for command, _ in ways), key=lambda command: struck[command] / WEIGHT[command])
    there = [place for other, place in ways if other == command]
    shares = np.array([SHARE[place] for place in there])
    return command, there[int(stage.rng.choice(len(there), p=shares / shares.sum()))]


def played(stage: Stage, command: str, place: str, before: list[Result], only: list[str]) -> list[Result]:
    """What came of the faults that struck one command."""
    began, rng = time.monotonic(), stage.rng
    wanted = {fault for fault in faults.FAULTS.values() if not only or fault.strike.__name__ in only}
    server = stores.Server(stage.folder) if rng.random() < 0.25 and any(fault.server for fault in wanted) else None
    if server is not None:
        server.start()
    case = Case(stage, SUBJECTS[command], place, server, patience=rng.random() < 0.4, disk=rng.random() < 0.35)
    wrong, struck = "", 0
    counts = Counter((result["name"], result["command"]) for result in before)
    for missed, times in stage.missed.items():
        counts[missed] += 3 * times  # it may never touch this command
    try:
        case.begin()
        for _ in range(LENGTH[command]):
            case.mid_run()
            struck = len(case.struck)
            fitting = [fault for fault in wanted if fault.fits(case)]
            if not fitting:
                break
            fault = min(fitting, key=lambda each: counts[each.strike.__name__, command] + rng.random())
            counts[fault.strike.__name__, command] += 1
            fault.strike(case)
            struck = len(case.struck)
    except Missed:
        stage.missed.update((each["fault"], command) for each in case.struck[struck:])
        del case.struck[struck:]
    except FAILURES as error:
        wrong = " ".join(f"{type(error).__name__}: {error}".split())
    if not wrong:
        wrong = failure(case)
    at_fault = len(case.struck) - 1 if wrong else None
    if wrong and at_fault:  # the last fault's
        case.says.clear()
        if earlier := salvaged(case):
            at_fault = None
            wrong += f" ({earlier})"
    results: list[Result] = [
        {
            "name": each["fault"],
            "command": command,
            "place": place,
            "case": case.number,
            "round": each["round"],
            "moving": each["moving"],
            "right": not wrong or (at_fault is not None and i < at_fault),
            "wrong": wrong if at_fault in (None, i) else "",
        }
        for i, each in enumerate(case.struck)
    ]
    seconds = time.monotonic() - began
    struck_faults = ", ".join(f"{each['fault']} {each['round']}" for each in case.struck)
    verdict = f"{'WRONG' if wrong else 'right'} {seconds:5.1f} s {len(before) + len(results):4}"
    print(f"{verdict}  {command}, {place}: {struck_faults} {wrong}", file=sys.stderr, flush=True)
    case.remove(keep=bool(wrong))
    if server is not None:
        server.kill()
    return results


def failure(case: Case) -> str:
    """Let the command end: what is wrong with it, or nothing."""
    try:
        case.conclude()
    except FAILURES as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def salvaged(case: Case) -> str:
    """The same of a command of which the last fault has made something else."""
    try:
        case.open()
        if case.end().code:
            case.go_on()
    except FAILURES as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return failure(case)


def print_table(results: Iterable[Result]) -> None:
    """How often each fault was injected and its end was right, by place and command."""
    injected, right = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for result in results:
        for column in (result["command"], result["place"], "in all"):
            for row in (result["name"], "in all"):
                injected[row, column] += 1
                right[row, column] += result["right"]
    columns = [column for column in (*SUBJECTS, *PLACES, "in all") if injected["in all", column]]
    print("| fault | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name in (*faults.FAULTS, "in all"):
        if not injected[name, "in all"]:
            continue
        title = faults.FAULTS[name].title if name in faults.FAULTS else name
        cells = [f"{right[name, column]} of {n}" if (n := injected[name, column]) else "" for column in columns]
        print(f"| {title} | " + " | ".join(cells) + " |")


def left_over(stage: Stage) -> int:
    """Processes of a command's own Ray that are still there when agents have had their time."""
    for since, family in stage.families:
        psutil.wait_procs(family, timeout=max(0.1, since + AGENT_SECONDS - time.monotonic()))
    return sum(bool(name_of(process)) for _, family in stage.families for process in family)


if __name__ == "__main__":
    main()
