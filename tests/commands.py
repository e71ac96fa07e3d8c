"""Commands of raysim as processes of their own, which need not import again what all of them import."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FORKS = multiprocessing.get_context("forkserver")
"""For each command one process is forked from another that has imported what commands need and started nothing."""

FORKS.set_forkserver_preload(
    [
        "matplotlib.backends.backend_agg",
        "mlflow.store.tracking.sqlalchemy_store",
        "mlflow.tracking",
        "pandas",
        "ray",
        "raysim.cli.main",
        "raysim.experiment.comparison",
        "raysim.experiment.runs",
        "raysim.experiment.session",
        "raysim.report.page",
        "raysim.report.plots",
        "scipy.optimize",
        "scipy.stats",
        "sklearn.cluster",
        "torch",
    ]
)


class Done(NamedTuple):
    """What a command left: its exit code, and what it wrote to stdout and stderr."""

    code: int | None
    out: str
    err: str


def raysim(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
    """``raysim`` with ``arguments``, run in ``folder`` with further environment variables."""
    return in_a_process(_command, ["raysim", *arguments], folder, environment)


def in_a_process(
    function: Callable[..., None], arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Done:
    """As :func:`raysim`, of a ``function`` of some module with ``arguments``."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        told = (function, list(arguments), str(folder), dict(environment), out.name, err.name)
        process = FORKS.Process(target=_run, args=told)
        process.start()
        process.join()
        return Done(process.exitcode, out.read().decode(), err.read().decode())


def _run(
    function: Callable[..., None], arguments: list[str], folder: str, environment: dict[str, str], *outputs: str
) -> None:
    for stream, output in enumerate(outputs, start=1):
        with open(output, "wb") as file:
            os.dup2(file.fileno(), stream)
    os.chdir(folder)
    os.environ.update(environment)
    sys.path.insert(0, folder)  # as python -m has it
    warnings.filterwarnings("error", category=DeprecationWarning, module=r"raysim\b")
    function(*arguments)


def _command(*arguments: str) -> None:
    from raysim.cli.main import main

    sys.argv = list(arguments)
    main()
