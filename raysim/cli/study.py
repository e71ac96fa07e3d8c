"""The command ``raysim study``, which the entry-point group ``raysim.commands`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.blocks import show_block
from raysim.cli.options import (
    REPORT,
    Details,
    Json,
    Open,
    Out,
    Set,
    Verbose,
    console_of,
    greet,
    place,
    places_of,
    print_json,
    progress_of,
    show_end,
)

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="YAML: a data section and a section 'study'.")]


def study(
    config: StudyPath,
    set_: Set = None,
    out: Out = None,
    details: Details = False,
    json: Json = False,
    open_: Open = False,
    verbose: Verbose = False,
) -> None:
    """Find the measure that best predicts how clients differ.

    A data set is partitioned over a grid, and every measure is computed for each partition.
    """
    greet()
    import shlex
    import time
    from functools import partial

    import pandas as pd

    from raysim.report.terminal.answers import in_time
    from raysim.study.answer import block, ranking_table
    from raysim.study.run import begin

    began, console = time.perf_counter(), console_of(json)
    folder = begin(config, set_ or [], out, progress_of())
    shares = pd.read_csv(folder / "importances.csv")
    if json:
        print_json(places_of(folder) | {"rows": shares.to_dict("records")})
        show_end(folder, console, out, open_)
        return
    report = str(place(folder, out) / REPORT)
    shown = block(
        folder,
        shares,
        in_time(time.perf_counter() - began),
        report,
        f"raysim study {shlex.quote(str(config))} --details",
    )
    more = partial(console.print, ranking_table(shares)) if details else None
    show_block(shown, console, folder / REPORT, more, open_=open_)
