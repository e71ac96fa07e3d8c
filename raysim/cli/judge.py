"""The command ``raysim judge``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli import options
from raysim.cli.blocks import show_block

PREDICTS = "the label"
"""What the event is, unless the option ``--predicts`` names it."""

PredictionsPath = Annotated[
    Path, typer.Argument(metavar="PREDICTIONS", help="CSV or Parquet: hospital, row, label, model, seed, probability.")
]
Reference = Annotated[list[str], typer.Option(help="The model that the others are compared with.")]
Tried = Annotated[
    int | None, typer.Option(min=1, help="How many other models without a role were tried, reported or not.")
]
Predicts = Annotated[str, typer.Option(help="What the event is, in words.")]
Event = Annotated[str | None, typer.Option(help="The value of the label that is the event, if it is not 1.")]
Logits = Annotated[bool, typer.Option("--logits", help="Probabilities are log-odds.")]
Percent = Annotated[bool, typer.Option("--percent", help="Probabilities are per cent.")]
Common = Annotated[bool, typer.Option("--common", help="Judge the rows that all models have.")]


def judge(
    predictions: PredictionsPath,
    reference: Reference,
    tried: Tried = None,
    predicts: Predicts = PREDICTS,
    event: Event = None,
    logits: Logits = False,
    percent: Percent = False,
    common: Common = False,
    out: options.Out = None,
    details: options.Details = False,
    json: options.Json = False,
    open_: options.Open = False,
) -> None:
    """Evaluate and compare models by their predictions."""
    options.greet()
    import time
    from functools import partial

    from raysim.core.errors import ConfigError
    from raysim.core.words import listed
    from raysim.experiment.judging.reading import read
    from raysim.experiment.judging.run import judge as judged
    from raysim.experiment.judging.table import Reading
    from raysim.metrics.labels import reporting
    from raysim.report.terminal.answers import block, command_line
    from raysim.report.terminal.progress import say
    from raysim.report.terminal.tables import comparison_table

    began, console = time.perf_counter(), options.console_of(json)
    if len(reference) > 1:
        raise ConfigError(
            f"--reference: {listed(reference)} are {len(reference)} models, but there can be only one reference; name "
            "one model"
        )
    (one,) = reference
    table, remarks = read(predictions)
    found = judged(
        table,
        one,
        tried=tried,
        reading=Reading(logits, percent, event, common),
        predicts=predicts,
        name=predictions.stem,
        out=out,
        remarks=remarks,
    )
    for text in found.warnings:
        say(console, f"warning: {text}")
    if json:
        rows = found.comparison.to_dict("records")
        options.print_json(options.places_of(found.folder) | {"answer": found.content, "reference": one, "rows": rows})
        options.show_end(found.folder, console, out, open_)
        return
    report = str(options.place(found.folder, out) / options.REPORT)
    flags = {"--logits": logits, "--percent": percent, "--common": common}
    values = {"--tried": tried, "--event": event, "--predicts": None if predicts == PREDICTS else predicts}
    given: list[object] = [part for name, value in values.items() if value is not None for part in (name, value)]
    given += [name for name, on in flags.items() if on]
    command = command_line("judge", predictions, "--reference", one, *given, "--details")
    seconds, kind = time.perf_counter() - began, reporting(found.comparison)
    answer = block(found.answer.card, found.name, seconds, report, command, kind)
    more = partial(console.print, comparison_table(found.comparison, one, console.width)) if details else None
    show_block(answer, console, found.folder / options.REPORT, more, open_=open_)
