"""The command ``raysim curve``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli import options
from raysim.cli.answers import show_curve

CurvePath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML: a comparison with a section 'curve'.")]
Of = Annotated[Path | None, typer.Option(help="Only plot the finished comparison in this folder.")]


def curve(
    config: CurvePath,
    set_: options.Set = None,
    out: options.Out = None,
    of: Of = None,
    in_process: options.InProcess = False,
    details: options.Details = False,
    json: options.Json = False,
    open_: options.Open = False,
    dashboard: options.Dashboard = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare strategies along the values of one hyper-parameter.

    Mean and variance over hospitals are plotted for each value.
    """
    options.greet()
    import time

    began = time.perf_counter()

    from raysim.api import running
    from raysim.experiment.curves.curve import DRAWING, FILE

    console = options.console_of(json)
    settings = options.with_dashboard(set_, dashboard, in_process)
    result = running.curve(
        config,
        overrides=settings,
        of=of,
        out=out,
        in_process=in_process,
        verbose=verbose,
        console=options.progress_of(),
    )
    if json:
        options.print_json(
            options.places_of(result.folder)
            | {"found": result.found.as_json(), "rows": result.curve.to_dict("records")}
        )
        if of is None:
            options.show_end(result.folder, console, out, open_)
        return
    files = "" if of is None else f"Plotted: {of / FILE}, {of / DRAWING}"
    seconds = time.perf_counter() - began
    show_curve(result, console, out or of, seconds, config, set_ or (), details=details, files=files, open_=open_)
