"""Executes the commands ``run``, ``compare``, ``resume``, ``describe`` and ``plan``, and prints their results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from raysim.cli.answers import show_answer, show_curve
from raysim.cli.options import places_of, print_json, show_end
from raysim.config.schema import Config
from raysim.core.errors import ConfigError
from raysim.report.terminal.progress import data_warnings, say, waiting
from raysim.strategies.shared.psi import EPSILON, Smoothing, check_smoothing

if TYPE_CHECKING:
    from raysim.api.comparison_result import ComparisonResult
    from raysim.api.results import RunResult


def _execute(
    command: Literal["run", "compare"],
    config: Config,
    console: Console,
    out: Path | None,
    *,
    in_process: bool,
    verbose: bool,
    json: bool = False,
    open_: bool = False,
    details: bool = False,
    progress: Console | None = None,
    path: Path | None = None,
    settings: Sequence[str] = (),
) -> None:
    """Execute ``raysim run`` or ``raysim compare``, and print its result to ``console``.

    ``path`` is the file from which ``config`` was read, and ``settings`` are the values of ``--set``. With ``json``,
    standard output has only the result.
    """
    from raysim.api import running

    began = time.perf_counter()
    call = running.run if command == "run" else running.compare
    result = call(config, out=out, in_process=in_process, verbose=verbose, console=progress or console)
    if json:
        print_json({"name": result.config.name, **places_of(result.folder)} | _found(result))
        show_end(result.folder, console, out, open_)
    else:
        show_answer(result, console, out, time.perf_counter() - began, path, settings, details=details, open_=open_)


run_one, compare_all = partial(_execute, "run"), partial(_execute, "compare")


def _found(result: RunResult | ComparisonResult) -> dict[str, Any]:
    from raysim.api.results import RunResult

    if isinstance(result, RunResult):
        return {"strategy": result.strategy, "seed": result.seed, "models": result.models, "answer": result.answer}
    rows = result.comparison.to_dict("records")
    return {"answer": result.answer, "reference": result.config.reference, "rows": rows}


def resume_run(
    folder: Path, console: Console, *, in_process: bool, verbose: bool, progress: Console | None = None
) -> None:
    """Execute ``raysim resume`` on the run, comparison or curve in ``folder``; a finished one is not changed."""
    from raysim.api.comparison_result import CurveResult
    from raysim.api.running import resume_with
    from raysim.storage.resume import read_ticket

    folder, began = folder.absolute(), time.perf_counter()
    ticket = read_ticket(folder)
    result = resume_with(folder, ticket, in_process=in_process, verbose=verbose, console=progress or console)
    if ticket.finished:
        return
    if isinstance(result, CurveResult):
        show_curve(result, console, folder, time.perf_counter() - began, folder / "config.yaml")
    else:
        show_answer(result, console, folder, time.perf_counter() - began, folder / "config.yaml")


def describe_data(
    config: Config, console: Console, table: Path | None = None, epsilon: str | None = None, *, json: bool = False
) -> None:
    """Execute ``raysim describe``: print the hospitals' data. Write the file ``table``, if given: one row per hospital.

    ``epsilon`` is the text given to ``--epsilon``, which smooths shares of rows; None means the default. Raises
    ``ConfigError`` if ``table`` cannot be written.
    """
    from raysim.api.describing import describe
    from raysim.core.atomic import replacing
    from raysim.core.csv_files import write_csv
    from raysim.storage.manifest import spare

    if table is not None and (table.is_dir() or not table.absolute().parent.is_dir()):
        raise ConfigError(
            f"--table: {table} is a folder, or is in a folder that does not exist; name a file in a folder that exists"
        )
    if table is not None:
        spare(table, "--table")
    with waiting(console, "reading data"):
        description = describe(config, epsilon=_smoothing(epsilon))
    if json:
        hospitals = description.hospitals.to_dict("records")
        tree = {"seed": description.seed, "verdict": description.verdict, **dataclasses.asdict(description.summary)}
        print_json(tree | {"by_hospital": hospitals})
    else:
        description.show(console)
    if table is None:
        return
    try:
        with replacing(table) as path:
            write_csv(description.hospitals, path)
    except OSError as error:
        raise ConfigError(f"--table: {table} cannot be written ({error.strerror}); name another file") from None
    console.print(f"\nfiles: {table}", soft_wrap=True, highlight=False, markup=False)


def _smoothing(text: str | None) -> Smoothing:
    if text is None:
        return EPSILON
    try:
        epsilon: Smoothing = "counts" if text == "counts" else float(text)
        check_smoothing(epsilon)
    except ValueError:
        raise ConfigError(
            f"--epsilon: {text} is neither a number in (0, 1] nor 'counts', which adds half a row to every bin"
        ) from None
    return epsilon


def show_plan(config: Config, nodes: str | None, console: Console, *, json: bool = False) -> None:
    """Execute ``raysim plan``: print the actors, memory and traffic of a run that is not started."""
    from raysim.experiment.planning.plan import make_plan
    from raysim.experiment.planning.tables import as_json, render

    with waiting(console, "reading data"):
        plan = make_plan(config, nodes)
    for line in data_warnings([plan.federation], private=False):
        say(console, line)
    if json:
        print_json(as_json(plan))
    else:
        render(plan, console)
