"""The summary block, which commands such as ``run``, ``compare`` and ``judge`` print in one form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.cli.options import open_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from raysim.report.terminal.block import Block


def show_block(
    block: Block, console: Console, report: Path, details: Callable[[], None] | None = None, *, open_: bool = False
) -> None:
    """Print a summary block.

    If given, ``details`` is called to print more below the block, and the headline is repeated at the end. With
    ``open_`` the ``report`` is also opened in a browser.
    """
    from raysim.report.terminal.answers import styled
    from raysim.report.terminal.block import WIDTH, lines
    from raysim.report.terminal.progress import say

    width = console.width if console.is_terminal or "COLUMNS" in os.environ else WIDTH
    for line in lines(block, width):
        console.print(styled(line, block, report), soft_wrap=True, highlight=False)
    if details is not None:
        console.print()
        details()
        console.print()
        say(console, block.headline)
    if open_:
        open_report(report, console)
