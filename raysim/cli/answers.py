"""Prints the results of ``run``, ``compare``, ``curve`` and ``resume``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.cli.blocks import show_block
from raysim.cli.options import REPORT, place

if TYPE_CHECKING:
    from rich.console import Console

    from raysim.api.comparison_result import ComparisonResult, CurveResult
    from raysim.api.results import RunResult
    from raysim.report.terminal.block import Block


def show_answer(
    result: RunResult | ComparisonResult,
    console: Console,
    out: Path | None,
    seconds: float,
    path: Path | None,
    settings: Sequence[str] = (),
    *,
    details: bool = False,
    open_: bool = False,
) -> None:
    """Print the summary block of a run or comparison: the headline, a short table and the path of the report.

    - ``path``: the file of the configuration. ``settings``: the values of ``--set``. The suggested next command uses
      both.
    - ``seconds``: the duration of the command.
    - ``details``: whether to print all tables as well.
    """
    from raysim.api.results import RunResult

    command = "run" if isinstance(result, RunResult) else "compare"
    _show(_block(result, command, out, seconds, path, settings), result, console, details=details, open_=open_)


def show_curve(
    result: CurveResult,
    console: Console,
    out: Path | None,
    seconds: float,
    path: Path,
    settings: Sequence[str] = (),
    *,
    details: bool = False,
    files: str = "",
    open_: bool = False,
) -> None:
    """Print the summary block of a curve: the headline, a short table and the path of the report.

    - ``seconds``: the duration of the command.
    - ``details``: whether to print the tables of the comparison as well.
    - ``files``: a line that names the written files; empty unless a finished comparison was plotted.
    """
    from dataclasses import replace

    whole, found = _block(result, "curve", out, seconds, path, settings), result.found
    notes = [*filter(None, [files]), *whole.notes]
    of_curve = replace(whole, headline=found.headline, rows=found.rows(), more=0, notes=notes)
    _show(of_curve, result, console, details=details, open_=open_)


def _block(
    result: RunResult | ComparisonResult,
    command: str,
    out: Path | None,
    seconds: float,
    path: Path | None,
    settings: Sequence[str],
) -> Block:
    from raysim.metrics.labels import reporting
    from raysim.report.terminal import answers

    card, report = result.answer.card, str(place(result.folder, out) / REPORT)
    name, following = result.config.name, answers.next_command(card, command, path, settings)
    return answers.block(card, name, seconds, report, following, reporting(result.hospitals))


def _show(block: Block, result: RunResult | ComparisonResult, console: Console, *, details: bool, open_: bool) -> None:
    below = partial(_show_details, result, console) if details else None
    show_block(block, console, result.folder / REPORT, below, open_=open_)


def _show_details(result: RunResult | ComparisonResult, console: Console) -> None:
    from raysim.api.results import RunResult
    from raysim.report.terminal.progress import say

    if isinstance(result, RunResult):
        _show_run(result, console)
    else:
        _show_comparison(result, console)
        console.print()
    for sentence in result.answer["reasons"]:
        say(console, sentence)


def _show_run(result: RunResult, console: Console) -> None:
    from raysim.report.terminal.tables import run_table

    console.print(run_table(f"{result.strategy}, seed {result.seed}", result.models), markup=False)


def _show_comparison(result: ComparisonResult, console: Console) -> None:
    from raysim.report.supplement import patient_clusters, patient_groups, virtual_time
    from raysim.report.terminal.tables import comparison_table

    config = result.config
    console.print(comparison_table(result.comparison, config.reference, console.width), markup=False)
    further = (
        virtual_time.printed(result.comparison, config.system.target if config.system else {}),
        patient_groups.printed(result.seeds, console.width, config.evaluation.part),
        patient_clusters.printed(result.folder, config.reference),
    )
    for table in filter(None, further):
        console.print()
        console.print(table, markup=False)
