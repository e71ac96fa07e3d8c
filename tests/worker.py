"""A process of pytest-xdist that runs tests, as a fork of one that has imported what most tests need.

``python START ... PROGRAM`` takes the place of ``python ... PROGRAM``, and waits for the fork.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import types
from pathlib import Path

from tests import shared

START = (
    "-c",
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); import tests.worker as w; w.main()",
)
"""Options of Python."""


def main() -> None:
    """Have the program run by a fork; ends as that does."""
    with shared.asked(work, [sys.argv[-1], os.getcwd(), dict(os.environ)], [0, 1, 2]) as answers:
        answers.readline()
        sys.exit(int(answers.readline()))


def work(program: str, folder: str, environment: dict[str, str]) -> None:
    """Run the ``program`` as Python does with ``-c``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    by_imports = os.environ.keys() - environment.keys() - {*shared.ONE_THREAD, *shared.OF_RAY, "PYTHONPATH"}
    environment = {name: os.environ[name] for name in by_imports} | environment
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c"]
    sys.stdin = os.fdopen(0, closefd=False)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(program, sys.modules["__main__"].__dict__)
    finally:
        atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
