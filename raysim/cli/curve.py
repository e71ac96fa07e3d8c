"""The command ``raysim curve``, which the entry-point group ``raysim.commands`` names; imports only typer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

CurvePath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML: a comparison with a section 'curve'.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="Override a key; may be repeated.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write into; default runs/<name>/<time>-<id>.")]
Of = Annotated[Path | None, typer.Option(help="Only draw, from the finished comparison in this folder.")]
InProcess = Annotated[bool, typer.Option("--in-process", help="Run without Ray, for a debugger; same results.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show what Ray and MLflow say, and tracebacks.")]


def curve(
    config: CurvePath,
    set_: Set = None,
    out: Out = None,
    of: Of = None,
    in_process: InProcess = False,
    verbose: Verbose = False,
) -> None:
    """Compare strategies as one hyper-parameter takes its values, and draw mean and variance over hospitals."""
    from rich.console import Console

    from raysim.api import running
    from raysim.cli.commands import say_where
    from raysim.experiment.curve import FILE, PICTURE

    console = Console() if sys.stdout.isatty() else Console(width=160)
    result = running.curve(
        config, overrides=set_ or [], of=of, out=out, in_process=in_process, verbose=verbose, console=console
    )
    if of is None:
        say_where(result, console, out)
    else:
        console.print(f"files: {of / FILE}, {of / PICTURE}", soft_wrap=True, highlight=False, markup=False)
