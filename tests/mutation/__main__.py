"""How many small edits of the scientific core its tests notice: ``python -m tests.mutation --sample 40``.

Each mutant of the modules asked for meets the tests that run its line, in a copy of the tree; those that no test
notices are listed. A mutant that changes nothing can be excused, with the reason, in ``equivalent.yaml``; a line that
only says how much is held at once, as a whole. ``--keep FILE`` keeps what each test file was measured to run, and
measures a file again only where something that it read has changed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import yaml

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.rooms import ROOT, core, files_judging, modules_judged
from tests.mutation.stored import StoredMeasurements
from tests.mutation.trials import FORKS, HEAVY, Copy, MeasuredTest, Trial

EXCUSED = Path(__file__).with_name("equivalent.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 where the ``--goal`` is reached, 1 where fewer mutants are killed, 2 for a module not of the core."""
    options = _parser().parse_args(arguments)
    try:
        modules = [Path(file).as_posix() for file in options.files] or core()
        wanted = {module: files_judging(module) for module in modules}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    FORKS.set_forkserver_preload([*HEAVY, Copy.__module__])
    excuses = excused()
    chosen = sample(
        {
            module: [m for m in mutants(module, (ROOT / module).read_text()) if not is_excused(m, excuses)]
            for module in modules
        },
        options.sample,
        options.seed,
    )
    stored = StoredMeasurements(options.keep, ROOT)
    survivors, counts = [], Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(options.processes):
            (Path(folder) / str(number)).mkdir()
            copies.put(Copy(Path(folder).resolve() / str(number)))
        with ThreadPoolExecutor(options.processes) as pool:
            tests = _measured(pool, copies, sorted({test for m in chosen for test in wanted[m.file]}), stored)
            for mutant, trial in pool.map(
                lambda m: _tried(copies, m, [t for file in wanted[m.file] for t in tests[file]]), chosen
            ):
                verdict = "survived" if trial is None or (trial.ended and not trial.failed) else "killed"
                counts[verdict] += 1
                if verdict == "survived":
                    survivors.append(mutant)
                by = "no test runs it" if trial is None else (trial.failed or "") if trial.ended else "did not end"
                print(f"{verdict:8} {mutant.file}:{mutant.line} {mutant.before} → {mutant.after} | {by}", flush=True)
    score = counts["killed"] / max(len(chosen), 1)
    print(f"\n{counts['killed']} of {len(chosen)} mutants killed ({score:.1%}), seed {options.seed}; survivors:")
    for mutant in survivors:
        print(mutant)
    return 0 if score >= options.goal else 1


Excuse = tuple[str, str, str | None]
"""File, line before and line after of a mutant that changes nothing; None: whatever becomes of the line."""


def excused() -> set[Excuse]:
    """All that ``equivalent.yaml`` lists."""
    return {(e["file"], e["before"], e.get("after")) for e in yaml.safe_load(EXCUSED.read_text()) or []}


def is_excused(mutant: Mutant, excuses: Set[Excuse]) -> bool:
    """Whether the mutant, or whatever becomes of its line, is among the ``excuses``."""
    return not excuses.isdisjoint({(mutant.file, mutant.before, after) for after in (mutant.after, None)})


def sample(made: dict[str, list[Mutant]], count: int | None, seed: int) -> list[Mutant]:
    """``count`` of the mutants of each module (None: all), in the order of modules and lines.

    Modules take turns, so that a long one does not take the places of the short, and each gives a random one.
    """
    if count is None:
        return [mutant for of_module in made.values() for mutant in of_module]
    draw = random.Random(seed)
    left = {module: draw.sample(of_module, len(of_module)) for module, of_module in made.items()}
    turns = draw.sample(sorted(left), len(left))
    chosen: list[Mutant] = []
    while len(chosen) < count and any(left.values()):
        chosen += [left[module].pop() for module in turns if left[module]]
    place = {module: i for i, module in enumerate(made)}
    return sorted(chosen[:count], key=lambda m: (place[m.file], m.line))


def _measured(
    pool: ThreadPoolExecutor, copies: SimpleQueue[Copy], files: Sequence[str], stored: StoredMeasurements
) -> dict[str, list[MeasuredTest]]:
    """The tests of each file that pass without a mutation; the others are named and left out."""

    def one(file: str) -> list[MeasuredTest]:
        if (tests := stored.get(file, judged[file])) is not None:
            return tests
        copy = copies.get()
        try:
            measured = copy.measured(file, judged[file])
        finally:
            copies.put(copy)
        stored.put(file, judged[file], measured)
        return measured.tests

    judged = modules_judged()

    tests = {}
    for file, of_file in zip(files, pool.map(one, files), strict=True):
        tests[file] = [test for test in of_file if test.outcome == "passed"]
        print(f"{file}: {len(tests[file])} tests, {sum(t.seconds for t in of_file):.0f} s", flush=True)
        for test in of_file:
            if test.outcome == "failed":
                print(f"    left out, as it does not pass without a mutation: {test.name}", flush=True)
    return tests


def _tried(copies: SimpleQueue[Copy], mutant: Mutant, tests: Sequence[MeasuredTest]) -> tuple[Mutant, Trial | None]:
    """A mutant before the tests that run its line; None where none does.

    What stands outside functions is run when a module is imported, before any test: all tests judge it.
    """
    everywhere = not any(mutant.line in test.lines.get(mutant.file, ()) for test in tests)
    judges = [test for test in tests if everywhere or mutant.line in test.lines.get(mutant.file, ())]
    copy = copies.get()
    try:
        return mutant, copy.tried(mutant.file, mutant.source, judges) if judges else None
    finally:
        copies.put(copy)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--files", nargs="+", default=[], help="modules, by their path from the root; all of the core")
    parser.add_argument("--sample", type=int, help="how many mutants; all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--processes", type=int, default=1, help="trials at a time, each in a copy of its own")
    parser.add_argument("--keep", type=Path, help="a file that keeps measurements of tests; none")
    parser.add_argument("--goal", type=float, default=0.0, help="the share that must be killed, 0 to 1")
    return parser


if __name__ == "__main__":
    sys.exit(main())
