"""Commands of raysim as processes of their own, which need not import again what all of them import."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
"""For each command one process is forked from another that has imported what commands need and started nothing."""

FORKS.set_forkserver_preload(
    [
        "raysim.cli.main",
        "raysim.experiment.comparison",
        "raysim.experiment.runs",
        "raysim.experiment.session",
        "mlflow",
        "ray",
    ]
)


def raysim(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output of ``raysim`` with ``arguments``, run in ``folder`` with further environment variables."""
    return in_a_process(_command, ["raysim", *arguments], folder, environment)


def in_a_process(
    function: Callable[..., None], arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int | None, str]:
    """As :func:`raysim`, of a ``function`` of some module with ``arguments``."""
    with tempfile.NamedTemporaryFile() as output:
        process = FORKS.Process(
            target=_run, args=(function, list(arguments), str(folder), dict(environment), output.name)
        )
        process.start()
        process.join()
        return process.exitcode, output.read().decode()


def _run(
    function: Callable[..., None], arguments: list[str], folder: str, environment: dict[str, str], output: str
) -> None:
    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    os.environ.update(environment)
    sys.path.insert(0, folder)  # as python -m has it
    warnings.filterwarnings("error", category=DeprecationWarning, module=r"(raysim|strategies|tune)\b")
    function(*arguments)


def _command(*arguments: str) -> None:
    from raysim.cli.main import main

    sys.argv = list(arguments)
    main()
