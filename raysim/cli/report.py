"""The command ``raysim report``, which the entry-point group ``raysim.commands`` names; imports only typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import greet, ungreet

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run or comparison.")]
Hospital = Annotated[str | None, typer.Option(metavar="NAME", help="Write this hospital's page; else the whole page.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="File to write; default one in the folder.")]
Sharing = Annotated[
    bool, typer.Option("--for-sharing", help="Write a page to pass on: pseudonyms, and no count below five.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show tracebacks.")]


def report(
    run: Run, hospital: Hospital = None, out: Out = None, for_sharing: Sharing = False, verbose: Verbose = False
) -> None:
    """Write a run's page again, one hospital's, or one to pass on."""
    greet()
    from raysim.report.pages.again import rewritten

    page = rewritten(run, hospital, out, for_sharing=for_sharing)
    ungreet()
    print(f"page: {page}")
