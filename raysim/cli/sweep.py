"""The commands ``raysim sweep``, ``resume`` and ``ui``, entry points of the group ``raysim.commands``.

Exit code 3 means that trials of a sweep have failed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raysim.cli import options
from raysim.cli.blocks import show_block
from raysim.cli.usage import NUMBER, whole_number

if TYPE_CHECKING:
    from rich.console import Console

    from raysim.api.sweep_result import SweepResult

DONE, FAILED, INTERRUPTED = 0, 3, 130

SweepPath = Annotated[Path, typer.Argument(metavar="SWEEP", help="YAML: a configuration with a section 'sweep'.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the run, comparison or sweep to continue.")]
Charts = Annotated[
    Path | None, typer.Argument(metavar="[FOLDER]", help="A sweep's folder: open the charts of its trials.")
]
Failed = Annotated[bool, typer.Option("--failed", help="For a sweep: also repeat the failed trials.")]
Store = Annotated[str, typer.Option(help="The MLflow store, in the form of tracking.uri.")]
Port = Annotated[int, typer.Option(parser=whole_number, metavar=NUMBER, help="Port on the loopback interface.")]
Browser = Annotated[bool, typer.Option("--open/--no-open", help="Whether to open the page in the default browser.")]


def sweep(
    config: SweepPath,
    set_: options.Set = None,
    out: options.Out = None,
    details: options.Details = False,
    json: options.Json = False,
    open_: options.Open = False,
    dashboard: options.Dashboard = False,
    verbose: options.Verbose = False,
) -> None:
    """Search for an accurate and fair configuration.

    It runs many trials, and reports their Pareto set and one recommendation.
    """
    options.greet()
    import time

    began = time.perf_counter()

    from raysim.api import running

    console, settings = options.console_of(json), options.with_dashboard(set_, dashboard)
    result = running.sweep(config, overrides=settings, out=out, verbose=verbose, console=options.progress_of())
    if json:
        options.print_json(options.places_of(result.folder) | dict(result.summary))
        options.show_end(result.folder, console, out, open_)
    else:
        _show(result, console, out, time.perf_counter() - began, details=details, open_=open_)
    raise typer.Exit(_code(result))


def resume(
    folder: Folder, failed: Failed = False, in_process: options.InProcess = False, verbose: options.Verbose = False
) -> None:
    """Continue a stopped run, comparison or sweep."""
    options.greet()
    import time

    from raysim.tune.sweep import is_sweep

    console, began = options.console_of(), time.perf_counter()
    if is_sweep(folder):
        from raysim.api.running import resume_sweep

        result = resume_sweep(folder, failed=failed, verbose=verbose, console=options.progress_of())
        _show(result, console, folder, time.perf_counter() - began)
        raise typer.Exit(_code(result))
    from raysim.cli.commands import resume_run

    resume_run(folder, console, in_process=in_process, verbose=verbose, progress=options.progress_of())


def ui(
    folder: Charts = None,
    uri: Store = "sqlite:///mlflow.db",
    port: Port = 5000,
    open_: Browser = True,
    verbose: options.Verbose = False,
) -> None:
    """Open MLflow with the recorded runs, on this machine only.

    With the folder of a finished sweep, open its charts: every searched key against every objective.
    """
    options.greet()
    import contextlib
    import sys
    import webbrowser

    from raysim.core.errors import ConfigError
    from raysim.report.terminal.progress import waiting
    from raysim.tracking.server import charts_of, newest_runs, serving
    from raysim.tracking.stores import NOWHERE, check_reachable, sqlite_path
    from raysim.tune.tracking import recorded

    if uri == NOWHERE or uri.startswith(("http://", "https://")):
        raise ConfigError(
            f"--uri: {uri} is not a local store; name one, or open the address of an http store in a browser"
        )
    check_reachable(uri)
    if uri.startswith("sqlite:") and not sqlite_path(uri).exists():
        raise ConfigError(
            f"--uri: {sqlite_path(uri).absolute()} does not exist; make a run with this store first, or name another "
            "store"
        )
    sweep = None
    if folder is not None and (sweep := recorded(folder)[0]) is None:
        raise ConfigError(f"{folder}: MLflow has no sweep of this folder; name the folder of a sweep, or no folder")
    with contextlib.ExitStack() as standing:
        with waiting(options.console_of(), "starting MLflow"):
            charts = None if sweep is None else charts_of(uri, sweep)
            server = standing.enter_context(serving(uri, port))
            page = server.page(charts or newest_runs(uri))
        print(f"MLflow: {page} (Ctrl-C ends it)", flush=True)
        if open_ and sys.stdout.isatty():
            webbrowser.open(page)
        raise typer.Exit(server.process.wait())


def _show(
    result: SweepResult,
    console: Console,
    out: Path | None,
    seconds: float,
    *,
    details: bool = False,
    open_: bool = False,
) -> None:
    from functools import partial

    from raysim.config.reading import read_tree
    from raysim.report.terminal.answers import in_time
    from raysim.tune import answer
    from raysim.tune.choice import choice_in

    choice, at = choice_in(result.folder), options.place(result.folder, out)
    name = str(read_tree(result.folder / "sweep.yaml").get("name", ""))
    block = answer.block(
        choice, result.summary, name, in_time(seconds), str(at), str(at / options.REPORT), ended=result.ended
    )
    more = partial(answer.details, choice, result.summary, console) if details else None
    show_block(block, console, result.folder / options.REPORT, more, open_=open_)


def _code(result: SweepResult) -> int:
    if not result.ended:
        return INTERRUPTED
    return FAILED if result.failed else DONE
