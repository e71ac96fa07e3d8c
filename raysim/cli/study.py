"""The command ``raysim study``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli import options
from raysim.cli.blocks import show_block

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="YAML: a data section and a section 'study'.")]


def study(
    config: StudyPath,
    set_: options.Set = None,
    out: options.Out = None,
    details: options.Details = False,
    json: options.Json = False,
    open_: options.Open = False,
    verbose: options.Verbose = False,
) -> None:
    """Find the measure that best predicts the skew between clients.

    A data set is divided among clients in many ways, and every measure is computed for each.
    """
    options.greet()
    import time
    from functools import partial

    import pandas as pd

    from raysim.report.terminal.answers import command_line, in_time, set_options
    from raysim.study.answer import block, ranking_table
    from raysim.study.run import begin

    began, console = time.perf_counter(), options.console_of(json)
    folder = begin(config, set_ or [], out, options.progress_of())
    shares = pd.read_csv(folder / "importances.csv")
    if json:
        options.print_json(options.places_of(folder) | {"rows": shares.to_dict("records")})
        options.show_end(folder, console, out, open_)
        return
    report = str(options.place(folder, out) / options.REPORT)
    answer = block(
        folder,
        shares,
        in_time(time.perf_counter() - began),
        report,
        command_line("study", config, *set_options(set_ or []), "--details"),
    )
    more = partial(console.print, ranking_table(shares)) if details else None
    show_block(answer, console, folder / options.REPORT, more, open_=open_)
