"""The command ``raysim new``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raysim.cli.options import Verbose, greet, ungreet

if TYPE_CHECKING:
    from raysim.config.proposed import Looked
    from raysim.config.tried import Tried

Table = Annotated[Path, typer.Argument(metavar="TABLE", help="CSV or Parquet file, or a pattern: 'sites/*.csv'.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML file to write; without one, it is printed.", show_default=False),
]


def new(table: Table, out: Out = None, verbose: Verbose = False) -> None:
    """Write a table's configuration, and explain each line.

    Hospital, label, patient and columns to drop are guessed from names and values; check them.
    """
    greet()
    import shlex
    import sys

    from raysim.config.proposed import configuration, look
    from raysim.config.tried import tried
    from raysim.core.errors import ConfigError
    from raysim.storage.manifest import spare

    if out is not None:
        if out.exists():
            raise ConfigError(f"--out: {out} exists; name a new file")
        if not out.absolute().parent.is_dir():
            raise ConfigError(f"--out: {out} is in a folder that does not exist; create it, or name another file")
        spare(out, "--out")
    looked = look(table)
    folder = (out or Path("printed.yaml")).absolute().parent
    found = tried(looked, configuration(looked, folder, {}), folder)
    text = configuration(looked, folder, found.leaks)
    if out is not None:
        try:
            out.write_text(text)
        except OSError as error:
            raise ConfigError(f"--out: {out} cannot be written ({error.strerror}); name another file") from None
    ungreet()
    for line in _findings(looked, found):
        print(line, file=sys.stdout if out is not None else sys.stderr)
    if out is None:
        print(text, end="")  # standard output has nothing else
    else:
        print(f"files: {out}")
        if not (looked.unfilled or found.refused):
            print(f"Next   raysim describe {shlex.quote(str(out))}")


def _findings(looked: Looked, found: Tried) -> Iterator[str]:
    """Yield lines on the table: how it was read, why each column was chosen, and what a person must decide."""
    from raysim.config.proposed import OPEN, reason
    from raysim.core.words import counted, listed

    proposal = looked.proposal
    yield f"{looked.path}: {counted(proposal.rows, 'row')}, {counted(looked.read.table.num_columns, 'column')}"
    yield from looked.read.remarks
    for key, choice in (("silo", proposal.hospital), ("label", proposal.label), ("group", proposal.patient)):
        if choice.column is not None:
            yield f"data.{key}: '{choice.column}', because {reason(choice)}"
    if looked.named_after:
        yield "hospitals: the names of the files"
    for key, name in proposal.attributes.items():
        yield f"data.{key}: '{name}', because its name suggests this; it remains a feature"
    if len(proposal.classes) == 2:
        event = proposal.event or list(proposal.classes)[-1]
        share = proposal.classes[event] / sum(proposal.classes.values())
        yield f"the event: '{event}', in {share:.1%} of rows; data.positive names another"
    elif proposal.classes:
        yield f"classes: {', '.join(proposal.classes)}"
    elif proposal.label.column is not None:
        yield "the label is a number (data.task: regression)"
    keys = [f"data.{key}" for key in ("censored", "na_values", "units") if getattr(proposal, key)]
    for name, marks in proposal.marks.items():
        verb = "sets" if len(keys) == 1 else "set"
        yield f"numbers: '{name}', which also holds {marks}; {listed(keys)} {verb} how to read these marks"
    for name, absent in proposal.na_values.items():
        if name not in proposal.marks:
            marks = listed([f"'{mark}'" for mark in absent])
            yield f"data.na_values: '{name}', where {marks} stands for a missing value"
    for name, why in (proposal.drop | found.leaks).items():
        yield f"data.drop: '{name}', because {why}" if why.startswith("it") else f"data.drop: '{name}' ({why})"
    columns, kinds = proposal.numbers + proposal.categories - len(found.leaks), f"{proposal.categories} of categories"
    yield f"features: {counted(columns, 'column')}, {kinds}"
    yield from found.doubts
    what = {"silo": "names the hospital", "label": "is to be predicted"}
    for key, choice in looked.unfilled:
        yield f"to fill in: data.{key} is '{OPEN}', because no column obviously {what[key]}; {reason(choice)}"
    if found.refused:
        yield f"to settle: {found.refused}"
