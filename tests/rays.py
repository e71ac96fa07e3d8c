"""Ray's processes of Python as forks of one that has imported what they import.

A worker, agent or monitor of a Ray imports Ray, and most import torch and raysim: one to three seconds of processor
time for each. Where Ray starts :data:`PROGRAMS` with the program at :func:`python`, they are forks instead, and all
else that is started with it is started with Python itself. It imports little, as that is done for every fork.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import shared

WORKER = "ray/_private/workers/default_worker.py"

PROGRAMS = (
    "ray/_private/log_monitor.py",
    "ray/_private/runtime_env/agent/main.py",
    WORKER,
    "ray/autoscaler/_private/monitor.py",
    "ray/dashboard/agent.py",
    "ray/dashboard/dashboard.py",
)
"""Ends of the paths of what is forked."""

SET_UP = "ray/_private/workers/setup_worker.py"
"""What Ray starts before a worker to prepare its environment."""

FIRST_JOB = "01000000"
"""What Ray calls the first of a node's jobs."""

CONTEXT, LANGUAGE = "--serialized-runtime-env-context=", "--language="
"""Options of it."""


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Have a Ray that is started in this context start the programs as forks, on Linux."""
    if sys.platform != "linux":
        yield
        return
    from raysim.core import host

    real, sys.executable = sys.executable, python()
    try:
        with host.environment(shared.OF_RAY, keep=True):
            yield
    finally:
        sys.executable = real


def python() -> str:
    """The program that takes the place of ``sys.executable``."""
    import shlex
    import subprocess

    with shared.locked("python") as path:
        if not path.exists():
            root = str(Path(__file__).parents[1])
            code = f"import sys; sys.path.insert(0, {root!r}); import tests.rays as r; r.main()"
            searched = [sys.executable, "-P", "-c", "import sys; print(':'.join(sys.path))"]
            plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            places = subprocess.run(searched, env=plain, capture_output=True, text=True, check=True).stdout.strip()
            start = shlex.join([sys.executable, "-I", "-S", "-c", code, str(path.parent), places, sys.executable])
            path.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
            path.chmod(0o700)
    return str(path)


def main() -> None:
    """Have a fork do what this process was started for, or do it; ends as that does."""
    folder, places, real, *words = sys.argv[1:]
    found = forkable(real, words)
    if found is None:
        os.execv(real, [real, *words])
    environment = dict(os.environ)
    os.environ[shared.VARIABLE] = folder
    sys.path[:] = filter(None, [*environment.get("PYTHONPATH", "").split(":"), *places.split(":")])
    files = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]
    node = os.getppid()
    with shared.asked(work, [*found, os.getcwd(), environment], files, server(found[0][0])) as answers:
        answers.readline()
        while not select.select([answers], [], [], 1)[0]:
            if os.getppid() != node:  # it has ended; the fork, which is a child of another, would never know
                os._exit(1)
        code = int(answers.readline())
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_open(number: int) -> bool:
    """False of the folder of open files, which was one of them while it was listed."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def forkable(real: str, words: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """The arguments of a program of Ray's and the variables it is to have besides; None where it is anything else."""
    rest, context = [word for word in words if word != "-u"], "{}"
    if rest and rest[0].endswith(SET_UP):
        context = next((word.removeprefix(CONTEXT) for word in rest if word.startswith(CONTEXT)), context)
        rest = [word for word in rest[1:] if not word.startswith((CONTEXT, LANGUAGE))]
    wanted = json.loads(context or "{}")
    variables = wanted.pop("env_vars", None) or {}
    executable = wanted.pop("py_executable", None)
    if not rest or not rest[0].endswith(PROGRAMS) or any(wanted.values()) or executable not in (None, real):
        return None
    return rest, variables


def server(program: str) -> str:
    """Which process is forked: Ray reads a worker's job when it is imported, so that those of a later job import it."""
    later = program.endswith(WORKER) and os.environ.get("RAY_JOB_ID") != FIRST_JOB
    return shared.EARLY if later else shared.LATE


def work(words: list[str], variables: dict[str, str], folder: str, environment: dict[str, str]) -> None:
    """Run the program ``words[0]`` as Python does."""
    import runpy

    import numpy as np

    from raysim.cluster import ray_private

    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # as Ray has it for its processes
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment | {name: os.path.expandvars(value) for name, value in variables.items()})
    ray_private.reread_authentication()
    np.random.seed()  # noqa: NPY002 - libraries draw with it, in all forks the same
    sys.argv = words
    sys.path.insert(0, os.path.dirname(words[0]))
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
