"""The command ``raysim study``, which the entry-point group ``raysim.commands`` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import Json, Open, Out, Set, Verbose, console_of, greet, places_of, print_json, show_end

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="YAML: a data section and a section 'study'.")]


def study(
    config: StudyPath,
    set_: Set = None,
    out: Out = None,
    json: Json = False,
    open_: Open = False,
    verbose: Verbose = False,
) -> None:
    """Say which measure tells how unlike clients are.

    A data set is divided over a grid, and every measure is taken of each division.
    """
    greet()
    from raysim.study.run import begin

    console = console_of(json)
    folder = begin(config, set_ or [], out, console)
    if json:
        import pandas as pd

        rows = pd.read_csv(folder / "importances.csv").to_dict("records")
        print_json(places_of(folder) | {"rows": rows})
    show_end(folder, console, out, open_)
