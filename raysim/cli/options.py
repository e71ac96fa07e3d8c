"""What several commands share: options, consoles, and the last printed lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Set = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=VALUE", help="Override a key; may be repeated.")]
Out = Annotated[Path | None, typer.Option(help="Folder to write into; default runs/<name>/<time>-<id>.")]
InProcess = Annotated[bool, typer.Option("--in-process", help="Run without Ray, for a debugger; same results.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print messages of Ray and MLflow, and tracebacks.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script; all else goes to stderr.")]
Details = Annotated[bool, typer.Option("--details", help="Print all tables and sentences, too.")]
Open = Annotated[bool, typer.Option("--open", help="Open the report in the default browser at the end.")]
Dashboard = Annotated[bool, typer.Option("--dashboard", help="Start Ray with its dashboard, and print the address.")]

WIDE = 160

REPORT = "report.html"


def greet() -> None:
    """Print in a terminal, before slow imports, that the command has started."""
    _write("starting raysim\r")


def ungreet() -> None:
    """Erase the line that :func:`greet` printed."""
    _write("\x1b[2K")


def _write(text: str) -> None:
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def console_of(json: bool = False) -> Console:
    """Return the console for a command's result: standard output, or standard error with ``json``.

    In a pipe or a log file, ``COLUMNS`` sets the width of lines; without it, the width is :data:`WIDE` characters.
    """
    ungreet()
    return _console(stderr=json)


def progress_of() -> Console:
    """Return the console for progress and notes: standard error."""
    ungreet()
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from raysim.report.terminal.console import Lasting

    if (sys.stderr if stderr else sys.stdout).isatty():
        return Lasting(stderr=stderr)
    columns = os.environ.get("COLUMNS", "")
    return Lasting(width=int(columns) if columns.isdecimal() and int(columns) > 0 else WIDE, stderr=stderr)


def with_dashboard(set_: list[str] | None, dashboard: bool, in_process: bool = False) -> list[str]:
    """Return the values of ``--set``, to which ``--dashboard`` adds a setting.

    Raises ``ConfigError`` if ``--in-process``, which starts no Ray, is given as well.
    """
    from raysim.core.errors import ConfigError

    if dashboard and in_process:
        raise ConfigError("--dashboard: belongs to Ray, which --in-process does not start; leave one of them out")
    return [*(set_ or []), *(["resources.dashboard=true"] if dashboard else [])]


def places_of(folder: Path, page: str = REPORT) -> dict[str, Any]:
    """Return the paths of a result's ``folder`` and of the report in it, as fields of the output of ``--json``."""
    return {"folder": folder, "report": folder / page}


def print_json(tree: Any) -> None:
    """Print ``tree`` as JSON. NaN and infinite numbers become null, and paths become strings."""
    import json

    from raysim.core.atomic import plain

    print(json.dumps(plain(tree), indent=2, ensure_ascii=False))


def show_end(folder: Path, console: Console, out: Path | None, open_: bool, page: str = REPORT) -> None:
    """Print the paths of a folder of results and of its report ``page``.

    With ``open_`` the report is also opened in a browser.
    """
    from rich.text import Text

    console.print(f"files: {place(folder, out)}", soft_wrap=True, highlight=False, markup=False)
    report = folder.absolute() / page
    if report.is_file():
        console.print(
            Text("report: ") + linked(str(place(folder, out) / page), report), soft_wrap=True, highlight=False
        )
    if open_:
        open_report(report, console)


def place(folder: Path, out: Path | None) -> Path:
    """Return ``folder`` for printing: relative if it is below the working directory and ``out`` is not absolute."""
    return folder if out is not None and out.is_absolute() else _relative(folder)


def linked(text: str, path: Path) -> Text:
    """Return a text that links to a file, in terminals that support links."""
    from rich.style import Style
    from rich.text import Text

    return Text(text, Style(link=path.as_uri()))


def _relative(folder: Path) -> Path:
    here = Path.cwd()
    return folder.absolute().relative_to(here) if folder.absolute().is_relative_to(here) else folder


def open_report(report: Path, console: Console) -> None:
    """Open a report in the browser, or print why that failed."""
    import webbrowser

    if not report.is_file():
        failure = f"--open: there is no {report}"
    elif webbrowser.open(report.as_uri()):
        return
    else:
        failure = f"--open: no browser could be started; open {report}"
    console.print(failure, soft_wrap=True, highlight=False, markup=False)
