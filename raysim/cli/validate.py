"""The command ``raysim validate``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.blocks import show_block
from raysim.cli.options import REPORT, Json, Open, Out, Set, console_of, greet, place, places_of, print_json, show_end

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder of raysim export, an ONNX file, or a column of the table.")
]
ConfigPath = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML whose section data names the hospitals' rows.")
]


def validate(
    model: Model, config: ConfigPath, set_: Set = None, out: Out = None, json: Json = False, open_: Open = False
) -> None:
    """Judge an existing model at every hospital, without training."""
    greet()
    import time

    from raysim.experiment.validation.page import block
    from raysim.experiment.validation.run import validate as validated
    from raysim.report.terminal.answers import in_time

    began, console = time.perf_counter(), console_of(json)
    found = validated(model, config, set_ or [], out)
    if json:
        rows = {name: of.to_dict("records") for name, of in (("summary", found.summary), ("rows", found.hospitals))}
        print_json(places_of(found.folder) | {"headline": found.headline, "notes": list(found.notes)} | rows)
        show_end(found.folder, console, out, open_)
        return
    seconds, report = in_time(time.perf_counter() - began), str(place(found.folder, out) / REPORT)
    answer = block(found.name, found.predicts, found.headline, found.notes, found.hospitals, seconds, report)
    show_block(answer, console, found.folder / REPORT, None, open_=open_)
