"""The command ``raysim study``, which the entry-point group ``raysim.commands`` names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="YAML: a data section and a section 'study'.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="Override a key; may be repeated.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write into; default runs/<name>/<time>-<id>.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show tracebacks.")]


def study(config: StudyPath, set_: Set = None, out: Out = None, verbose: Verbose = False) -> None:
    """Divide a data set over a grid, measure how unlike clients are, and say which measure tells the skew best."""
    from rich.console import Console

    from raysim.study.run import begin

    begin(config, set_ or [], out, Console() if sys.stdout.isatty() else Console(width=160))
