"""The command ``raysim report``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import greet, ungreet

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run or comparison.")]
Hospital = Annotated[str | None, typer.Option(metavar="NAME", help="Write this hospital's page; else the whole page.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="File to write; default one in the folder.")]
Sharing = Annotated[
    bool, typer.Option("--for-sharing", help="Write a page to share: pseudonyms, and no count below five.")
]
Checklist = Annotated[
    bool, typer.Option("--checklist", help="Write TRIPOD+AI and TRIPOD-Cluster, filled in as far as results go.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show tracebacks.")]


def report(
    run: Run,
    hospital: Hospital = None,
    out: Out = None,
    for_sharing: Sharing = False,
    checklist: Checklist = False,
    verbose: Verbose = False,
) -> None:
    """Write a run's page again, a hospital's page or a checklist."""
    greet()
    if checklist:
        from raysim.core.errors import ConfigError
        from raysim.report.checklist import checklist as write

        if hospital is not None or for_sharing:
            raise ConfigError("--checklist: describes the whole run; leave out --hospital and --for-sharing")
        written = write(run, out)
        ungreet()
        print(f"checklist: {written}")
        return
    from raysim.report.pages.again import rewritten

    page = rewritten(run, hospital, out, for_sharing=for_sharing)
    ungreet()
    print(f"page: {page}")
