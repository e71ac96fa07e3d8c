"""The command ``raysim curve``, which the entry-point group ``raysim.commands`` names; imports only typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import (
    Dashboard,
    InProcess,
    Json,
    Open,
    Out,
    Set,
    Verbose,
    console_of,
    greet,
    places_of,
    print_json,
    show_end,
    with_dashboard,
    workers_begun,
)

CurvePath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML: a comparison with a section 'curve'.")]
Of = Annotated[Path | None, typer.Option(help="Only draw, from the finished comparison in this folder.")]


def curve(
    config: CurvePath,
    set_: Set = None,
    out: Out = None,
    of: Of = None,
    in_process: InProcess = False,
    json: Json = False,
    open_: Open = False,
    dashboard: Dashboard = False,
    verbose: Verbose = False,
) -> None:
    """Compare strategies along the values of one hyper-parameter.

    Mean and variance over hospitals at each value are drawn.
    """
    greet()
    from raysim.cluster.forked import OF_RUNS

    with workers_begun(OF_RUNS, in_process or of is not None):
        from raysim.api import running
        from raysim.experiment.curve import FILE, PICTURE

        console = console_of(json)
        settings = with_dashboard(set_, dashboard, in_process)
        result = running.curve(
            config, overrides=settings, of=of, out=out, in_process=in_process, verbose=verbose, console=console
        )
    if json:
        print_json(places_of(result.folder) | {"rows": result.curve.to_dict("records")})
    if of is None:
        show_end(result.folder, console, out, open_)
    else:
        console.print(f"files: {of / FILE}, {of / PICTURE}", soft_wrap=True, highlight=False, markup=False)
