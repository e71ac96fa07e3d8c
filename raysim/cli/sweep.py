"""The commands ``raysim sweep``, ``resume`` and ``ui``, which the entry-point group ``raysim.commands`` names.

Exit codes are those of ``raysim``, and 3 for a sweep that ended with trials that failed. Imports only typer.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from raysim.api.sweep_result import SweepResult

DONE, FAILED, INTERRUPTED = 0, 3, 130
"""Exit codes of a sweep: all trials ended well, some failed, stopped before all had ended."""

SweepPath = Annotated[Path, typer.Argument(metavar="SWEEP", help="YAML: a configuration with a section 'sweep'.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of what was begun.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="Override a key; may be repeated.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write into; default runs/<name>/<time>-<id>.")]
Failed = Annotated[bool, typer.Option("--failed", help="Of a sweep: run the trials that failed again, too.")]
InProcess = Annotated[bool, typer.Option("--in-process", help="Of a run or comparison: go on without Ray.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show what Ray and MLflow say, and tracebacks.")]
Store = Annotated[str, typer.Option(help="The store, as tracking.uri names it.")]
Port = Annotated[int, typer.Option(help="Port on the loopback interface.")]


def sweep(config: SweepPath, set_: Set = None, out: Out = None, verbose: Verbose = False) -> None:
    """Search a configuration for what is accurate and fair: many trials, a Pareto set, one recommendation."""
    from raysim.api import running

    raise typer.Exit(_code(running.sweep(config, overrides=set_ or [], out=out, verbose=verbose, console=_console())))


def resume(folder: Folder, failed: Failed = False, in_process: InProcess = False, verbose: Verbose = False) -> None:
    """Go on with a run, comparison or sweep that was stopped; nothing that is finished is repeated."""
    from raysim.tune.sweep import is_sweep

    if is_sweep(folder):
        from raysim.api.running import resume_sweep

        raise typer.Exit(_code(resume_sweep(folder, failed=failed, verbose=verbose, console=_console())))
    from raysim.cli.commands import resume_run

    resume_run(folder, _console(), in_process=in_process, verbose=verbose)


def ui(uri: Store = "sqlite:///mlflow.db", port: Port = 5000) -> None:
    """Open MLflow on this machine only, with the store that runs and sweeps were recorded in."""
    import subprocess

    from raysim.core.errors import ConfigError
    from raysim.tracking.client import NOWHERE, check_reachable, sqlite_path

    if uri == NOWHERE or uri.startswith(("http://", "https://")):
        raise ConfigError(
            f"--uri: {uri} is not a store to open; an http store is a server already, see it in a browser"
        )
    check_reachable(uri)
    if uri.startswith("sqlite:") and not sqlite_path(uri).exists():
        raise ConfigError(f"--uri: {sqlite_path(uri).absolute()} does not exist; run something first or name another")
    # One process answers one user soon enough; MLflow would start four, and more for jobs of its own.
    server = ["server", "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # Neither MLflow nor the processes that it starts look for modules in the working directory.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"} | os.environ | {"PYTHONSAFEPATH": "1"}
    raise typer.Exit(subprocess.call([sys.executable, "-m", "mlflow", *server], env=environment))


def _code(result: SweepResult) -> int:
    if not result.ended:
        return INTERRUPTED
    return FAILED if result.failed else DONE


def _console() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=160)
