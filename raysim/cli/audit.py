"""The command ``raysim audit``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raysim.cli import options
from raysim.cli.blocks import show_block
from raysim.cli.usage import NUMBER, whole_number

if TYPE_CHECKING:
    from rich.console import Console

PAGE = "audit.html"

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML: a run.")]
SHADOWS = 16
"""The default number of shadow federations."""

Shadows = Annotated[
    int,
    typer.Option(
        parser=whole_number,
        metavar=NUMBER,
        help=("Number of shadow federations for LiRA, each with a random half of the rows; 0: no LiRA."),
    ),
]
Canaries = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar=NUMBER,
        help=(
            "Number of planted records, each added with probability 1/2, for a lower bound on epsilon; default "
            "privacy.audit.canaries, or 200."
        ),
    ),
]


def audit(
    config: ConfigPath,
    set_: options.Set = None,
    out: options.Out = None,
    shadows: Shadows = SHADOWS,
    canaries: Canaries = None,
    in_process: options.InProcess = False,
    details: options.Details = False,
    json: options.Json = False,
    open_: options.Open = False,
    verbose: options.Verbose = False,
) -> None:
    """Attack a run's privacy, and report what the attacks found.

    The attacks infer which rows were trained on, find a lower bound on epsilon, and reconstruct rows from updates.
    """
    options.greet()
    import time
    from functools import partial

    from raysim.config import reading
    from raysim.core import bounded
    from raysim.experiment.audits.audit import audit as run
    from raysim.report.judgement import audited
    from raysim.report.terminal.answers import command_line, in_time, set_options
    from raysim.report.terminal.progress import say, waiting

    began, console, progress = time.perf_counter(), options.console_of(json), options.progress_of()
    asked = reading.resolve(config, set_ or [])
    with waiting(progress, "repeating the run and attacking it") as far:
        folder = run(
            asked,
            out,
            shadows=shadows,
            canaries=canaries,
            in_process=in_process,
            verbose=verbose,
            say=partial(say, progress),
            progress=far,
        )
    summary = bounded.read_json(folder / "audit.json")
    if json:
        options.print_json(options.places_of(folder, PAGE) | summary)
        options.show_end(folder, console, out, open_, PAGE)
        return
    seconds = in_time(time.perf_counter() - began)
    given: list[object] = [*set_options(set_ or []), *([] if canaries is None else ["--canaries", canaries])]
    given += [] if shadows == SHADOWS else ["--shadows", shadows or SHADOWS]
    more = command_line("audit", config, *given, *(["--details"] if shadows else []))
    answer = audited.block(summary, asked.name, seconds, str(options.place(folder, out) / PAGE), more)
    below = partial(_show, summary, console) if details else None
    show_block(answer, console, folder / PAGE, below, open_=open_)


def _show(summary: Mapping[str, Any], console: Console) -> None:
    from raysim.report.pages.audit import lead
    from raysim.report.terminal.progress import say

    for sentence in lead(summary)[1:]:
        say(console, sentence)
