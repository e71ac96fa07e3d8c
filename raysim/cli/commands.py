"""What the commands ``run``, ``compare``, ``resume``, ``describe`` and ``plan`` do and print."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from raysim.cli.options import places_of, print_json, show_end
from raysim.config.schema import Config
from raysim.core.errors import ConfigError
from raysim.report.terminal.progress import data_warnings, say, waiting
from raysim.strategies.shared.psi import EPSILON, Smoothing, check_smoothing

if TYPE_CHECKING:
    from raysim.api.results import ComparisonResult, Results, RunResult


def run_one(
    config: Config,
    console: Console,
    out: Path | None,
    *,
    in_process: bool,
    verbose: bool,
    json: bool = False,
    open_: bool = False,
) -> None:
    """``raysim run``. With ``json`` standard output has the result alone, and all else goes to ``console``."""
    from raysim.api.running import run

    result = run(config, out=out, in_process=in_process, verbose=verbose, console=console)
    if json:
        print_json(_named(result) | {"strategy": result.strategy, "seed": result.seed, "models": result.models})
    else:
        _show_run(result, console)
    show_end(result.folder, console, out, open_)


def compare_all(
    config: Config,
    console: Console,
    out: Path | None,
    *,
    in_process: bool,
    verbose: bool,
    json: bool = False,
    open_: bool = False,
) -> None:
    """``raysim compare``. With ``json`` standard output has the result alone, and all else goes to ``console``."""
    from raysim.api.running import compare

    result = compare(config, out=out, in_process=in_process, verbose=verbose, console=console)
    if json:
        rows = result.comparison.to_dict("records")
        print_json(_named(result) | {"answer": result.answer, "reference": result.config.reference, "rows": rows})
    else:
        _show_comparison(result, console)
    show_end(result.folder, console, out, open_)


def resume_run(folder: Path, console: Console, *, in_process: bool, verbose: bool) -> None:
    """``raysim resume`` of a run or comparison: it goes on where it was stopped; a finished one stays as it is."""
    from raysim.api.results import ComparisonResult, CurveResult, RunResult
    from raysim.api.running import resume_with
    from raysim.storage.resume import read_ticket

    folder = folder.absolute()
    ticket = read_ticket(folder)
    result = resume_with(folder, ticket, in_process=in_process, verbose=verbose, console=console)
    if ticket.finished:
        return
    if isinstance(result, RunResult):
        _show_run(result, console)
    elif isinstance(result, ComparisonResult) and not isinstance(result, CurveResult):
        _show_comparison(result, console)
    show_end(result.folder, console, folder, open_=False)


def _named(result: Results) -> dict[str, Any]:
    """The fields of the JSON of a run or comparison that both have."""
    return {"name": result.config.name, **places_of(result.folder)}


def _show_run(result: RunResult, console: Console) -> None:
    from raysim.report.terminal.tables import run_table

    console.print(run_table(f"{result.strategy}, seed {result.seed}", result.models), markup=False)
    say(console, result.training)


def _show_comparison(result: ComparisonResult, console: Console) -> None:
    from raysim.report.sections import patient_clusters, patient_groups, virtual_time
    from raysim.report.terminal.tables import comparison_table

    config = result.config
    console.print(comparison_table(result.comparison, config.reference, console.width), markup=False)
    further = (
        virtual_time.printed(result.comparison, config.system.target if config.system else {}),
        patient_groups.printed(result.seeds, console.width, config.evaluation.part),
        patient_clusters.printed(result.folder, config.reference),
    )
    for shown in filter(None, further):
        console.print()
        console.print(shown, markup=False)
    console.print()
    for sentence in result.answer["reasons"]:
        say(console, sentence)


def describe_data(
    config: Config, console: Console, table: Path | None = None, epsilon: str | None = None, *, json: bool = False
) -> None:
    """``raysim describe``; ``table``: a file for one row per hospital. Raises ``ConfigError`` if it cannot be written.

    ``epsilon`` smooths the shares of PSI: a number, ``counts``, or None for the default. A configuration that ``run``
    or ``compare`` would refuse is refused here too. The data are those of the first seed that would be run.
    """
    from raysim.api.describing import describe
    from raysim.core.atomic import replacing
    from raysim.core.csv_files import write_csv
    from raysim.storage.manifest import spare

    if table is not None and (table.is_dir() or not table.absolute().parent.is_dir()):
        raise ConfigError(f"--table: {table} is not a file in a folder that exists; name one, such as hospitals.csv")
    if table is not None:
        spare(table, "--table")
    with waiting(console, "reading data"):
        description = describe(config, epsilon=_smoothing(epsilon))
    if json:
        hospitals = description.hospitals.to_dict("records")
        print_json({"seed": description.seed, **dataclasses.asdict(description.summary), "by_hospital": hospitals})
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
    """The value of ``--epsilon``."""
    if text is None:
        return EPSILON
    try:
        epsilon: Smoothing = "counts" if text == "counts" else float(text)
        check_smoothing(epsilon)
    except ValueError:
        raise ConfigError(f"--epsilon: {text} is not a number in (0, 1] or counts, half a row in every bin") from None
    return epsilon


def show_plan(config: Config, nodes: str | None, console: Console, *, json: bool = False) -> None:
    """``raysim plan``."""
    from raysim.experiment.plan import make_plan
    from raysim.experiment.plan_tables import as_json, render

    with waiting(console, "reading data"):
        plan = make_plan(config, nodes)
    for line in data_warnings([plan.federation], private=False):
        say(console, line)
    if json:
        print_json(as_json(plan))
    else:
        render(plan, console)
