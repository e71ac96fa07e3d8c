"""What the commands of the command line do."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from raysim.config.schema import Config
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.report.terminal import comparison_table, run_table
from raysim.strategies.shared.psi import EPSILON, Smoothing, check_smoothing

if TYPE_CHECKING:
    from raysim.api.results import ComparisonResult, Results, RunResult


def run_one(config: Config, console: Console, out: Path | None, *, in_process: bool, verbose: bool) -> None:
    """``raysim run``."""
    from raysim.api.running import run

    result = run(config, out=out, in_process=in_process, verbose=verbose, console=console)
    _show_run(result, console)
    say_where(result, console, out)


def compare_all(config: Config, console: Console, out: Path | None, *, in_process: bool, verbose: bool) -> None:
    """``raysim compare``."""
    from raysim.api.running import compare

    result = compare(config, out=out, in_process=in_process, verbose=verbose, console=console)
    _show_comparison(result, console)
    say_where(result, console, out)


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
    say_where(result, console, folder)


def _show_run(result: RunResult, console: Console) -> None:
    console.print(run_table(f"{result.strategy}, seed {result.seed}", result.models), markup=False)
    console.print(result.training, soft_wrap=True, highlight=False, markup=False)


def _show_comparison(result: ComparisonResult, console: Console) -> None:
    from raysim.report import patient_clusters, patient_groups, virtual_time

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
        console.print(sentence, highlight=False, markup=False)


def say_where(result: Results, console: Console, out: Path | None) -> None:
    """The folder, absolute only where it was asked for so."""
    folder = result.folder if out is not None and out.is_absolute() else result.folder.relative_to(Path.cwd())
    console.print(f"files: {folder}", soft_wrap=True, highlight=False, markup=False)


def describe_data(config: Config, console: Console, table: Path | None = None, epsilon: str | None = None) -> None:
    """``raysim describe``; with ``table``, a row a hospital goes to that file. Raises ``ConfigError`` if it cannot.

    ``epsilon`` smooths the shares of PSI: a number, ``counts``, or None for the default. What ``run`` or ``compare``
    would refuse of the configuration is refused here too. The data are those of the first seed that is run.
    """
    from raysim.api.describing import describe
    from raysim.core.csv_files import write_csv
    from raysim.storage.atomic import replacing

    if table is not None and (table.is_dir() or not table.absolute().parent.is_dir()):
        raise ConfigError(f"--table: {table} is not a file in a folder that exists; name one, such as hospitals.csv")
    description = describe(config, epsilon=_smoothing(epsilon))
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
    """What ``--epsilon`` says."""
    if text is None:
        return EPSILON
    try:
        epsilon: Smoothing = "counts" if text == "counts" else float(text)
        check_smoothing(epsilon)
    except ValueError:
        raise ConfigError(f"--epsilon: {text} is not a number in (0, 1] or counts, half a row in every bin") from None
    return epsilon


def list_kind(kind: str, console: Console) -> None:
    """``raysim list``: each name with the first line of its documentation."""
    if kind == "metrics":
        from raysim.metrics.labels import KINDS

        for kind_of_label in KINDS.values():
            console.print(f"{kind_of_label.name}:", highlight=False)
            console.print("  per hospital:  " + ", ".join(kind_of_label.figures), highlight=False)
            console.print("  over hospitals:  " + ", ".join(kind_of_label.reported()), highlight=False)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, entry in registry.entries(kind).items():
        table.add_row(name, _documentation(entry.load()).splitlines()[0])
    console.print(table, markup=False)


def tell(kind: str, name: str, console: Console) -> None:
    """``raysim list KIND NAME``: its documentation, and its keys with their defaults."""
    if kind == "metrics":
        raise ConfigError("list: metrics are told of in docs/metrics.md; leave the name out")
    plugin = registry.load(kind, name, kind)
    console.print(_documentation(plugin), highlight=False, markup=False)
    with contextlib.suppress(TypeError, ValueError):  # a network need not say what it is made with
        table = Table(title="keys", title_justify="left", title_style="bold", box=None, show_header=False)
        for key in inspect.signature(plugin).parameters.values():
            if key.name not in ("n_features", "n_outputs"):  # the engine tells a network these
                table.add_row(key.name, "required" if key.default is key.empty else f"default {key.default!r}")
        console.print()
        console.print(table if table.row_count else "no keys", highlight=False, markup=False)


def _documentation(plugin: Any) -> str:
    """Of a plug-in, without marks of the markup. A method's is its module's, after its own where several share one."""
    module = sys.modules[plugin.__module__]
    others = [entry for kind in ("strategies", "selections") for entry in registry.entries(kind).values()]
    methods = sum(entry.module == module.__name__ for entry in others)
    texts = (plugin.__doc__ if methods != 1 else None, module.__doc__ if methods else None)
    text = "\n\n".join(inspect.cleandoc(text) for text in texts if text) or "undocumented"
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
