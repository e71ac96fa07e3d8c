"""The command ``raysim design``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.blocks import show_block
from raysim.cli.options import REPORT, Json, Open, Out, Set, console_of, greet, place, places_of, print_json, show_end

Sites = Annotated[
    Path,
    typer.Argument(metavar="SITES", help=("YAML: the hospitals' test rows and events, and the relevant differences.")),
]


def design(config: Sites, set_: Set = None, out: Out = None, json: Json = False, open_: Open = False) -> None:
    """Compute what a comparison of hospitals can demonstrate."""
    greet()
    import time

    from raysim.design.run import begin, block
    from raysim.report.terminal.answers import in_time

    began, console = time.perf_counter(), console_of(json)
    folder, found = begin(config, set_ or [], out)
    if json:
        print_json(places_of(folder) | {"headline": found.headline, "rows": found.table().to_dict("records")})
        show_end(folder, console, out, open_)
        return
    answer = block(found, in_time(time.perf_counter() - began), str(place(folder, out) / REPORT))
    show_block(answer, console, folder / REPORT, None, open_=open_)
