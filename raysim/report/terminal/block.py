"""The block that a command prints: what was run, the answer, and the next command, on one screen.

The block is plain text, usually of at most :data:`MOST` lines. Names are never cut. If rows do not fit, their number is
printed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from raysim.core.words import counted

MOST = 16
"""The largest number of lines of a summary block. A block is longer only if its parts that are never left out, such as
warnings that forbid a use, need more lines."""

WIDTH = 80
"""The default width of a summary block, in characters."""

WIDEST = 100

ROWS = 6
"""The largest number of rows of a block's table; only the number of further rows is printed."""

_GAP = "  "


@dataclass(frozen=True)
class Warning:
    """A warning in a summary block."""

    text: str
    """One sentence on the finding and its remedy."""
    forbids: bool
    """Whether the finding forbids a use of the model."""


@dataclass(frozen=True)
class Block:
    """The content of a command's summary block, from top to bottom; empty parts are left out."""

    what: str
    headline: str
    """The main result, such as the recommendation of the decision card."""
    warnings: Sequence[Warning] = ()
    """The warnings, in the order in which they are printed."""
    rows: Sequence[Sequence[str]] = ()
    """The rows of the table, all with the same number of cells."""
    notes: Sequence[str] = ()
    report: str = ""
    """The path of the report; may be empty."""
    next: str = ""
    """The suggested next command; may be empty."""
    more: int = 0
    """The number of table rows that are not in ``rows``."""
    noun: str = "row"
    """The word for a row, such as ``model``."""
    references: int = 0
    """The number of reference strategies, which are the last rows of the table. If rows are left out, other rows go
    first."""


def lines(block: Block, width: int = WIDTH, most: int = MOST) -> list[str]:
    """Return the lines of a block, wrapped at ``width`` characters, but at no fewer than 20 and no more than 100.

    The report's path, an option of the next command and wide cells may exceed this width.

    If there are more than ``most`` lines, parts are left out in this order: all table rows but two, warnings that do
    not forbid a use, notes, one more table row. One line says how much was left out.
    """
    width = max(20, min(width, WIDEST))
    rows, notes, warnings = list(block.rows), list(block.notes), list(block.warnings)
    out: list[tuple[int, Sequence[str]]] = []  # the rows that were left out, each with its index
    left_out = 0

    def made() -> list[str]:
        return _made(block, warnings, rows, notes, block.more + len(out), left_out, width)

    def leave_out() -> None:
        at = _least(rows, block.references)
        out.append((at, rows.pop(at)))

    while len(rows) > ROWS or (len(rows) > 2 and len(made()) > most):
        leave_out()
    while len(made()) > most:
        mild = [warning for warning in warnings if not warning.forbids]
        if mild or notes:
            (warnings.remove(mild[-1]) if mild else notes.pop())
            left_out += 1
        elif len(rows) > 1:
            leave_out()
        else:
            break
    while out and len(rows) < ROWS:  # removing a remark may have freed lines
        at, row = out.pop()
        rows.insert(at, row)
        if len(made()) > most:
            out.append((at, rows.pop(at)))
            break
    return made()


def _least(rows: Sequence[Sequence[str]], references: int) -> int:
    """Return the index of the row to leave out first.

    ``references`` is the number of references, which are the last rows. The last row that is not a reference is left
    out first. The first row is kept: if all other rows are references, the last reference is left out.
    """
    last = len(rows) - references - 1
    return last if last > 0 else len(rows) - 1


def _made(
    block: Block,
    warnings: Sequence[Warning],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    hidden: int,
    left_out: int,
    width: int,
) -> list[str]:
    made = [*_wrapped(block.what, width), *_wrapped(block.headline, width)]
    for warning in warnings:
        made += _wrapped(warning.text, width, " !! " if warning.forbids else " !  ")
    made += _table(rows, width)
    if hidden or left_out:
        more = counted(hidden, f"more {block.noun}")
        parts = [more if hidden else "", counted(left_out, "remark") if left_out else ""]
        made += _wrapped(f"and {' and '.join(filter(None, parts))}: --details", width, "    ")
    for note in notes:
        made += _wrapped(note, width, "    ")
    if block.report:
        made.append(f"Report {block.report}")  # not wrapped, because a path on two lines cannot be copied
    return made + (_command(f"Next   {block.next}", width) if block.next else [])


def _command(text: str, width: int) -> list[str]:
    r"""Wrap a command before its options, with a backslash at the ends of lines.

    >>> _command("Next   raysim run a.yaml --set seed=1 --details", 41)
    ['Next   raysim run a.yaml --set seed=1 \\', '         --details']
    """
    first, *options = [text] if "'" in text else text.split(" --")
    lines = [first]
    for option in options:
        if len(f"{lines[-1]} --{option} \\") <= width:
            lines[-1] += f" --{option}"
        else:
            lines.append(f"         --{option}")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _wrapped(text: str, width: int, first: str = "") -> list[str]:
    """Wrap a text; all lines but the first are indented by the width of ``first``."""
    # A line must not begin with a per cent sign.
    unbroken = text.replace(" %", "\N{NO-BREAK SPACE}%")
    indent = " " * len(first)
    lines = textwrap.wrap(unbroken, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Align rows in columns; if a line would be too wide, the first column is wrapped."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    others = sum(widths[1:]) + len(_GAP) * (len(widths) - 1) + 4
    widths[0] = max(8, min(widths[0], width - others))
    made = []
    for name, *figures in rows:
        first, *further = textwrap.wrap(name, widths[0], subsequent_indent="  ", break_on_hyphens=False) or [""]
        cells = [cell.ljust(size) for cell, size in zip((first, *figures), widths, strict=True)]
        made += [f"    {_GAP.join(cells)}".rstrip(), *(f"    {line}" for line in further)]
    return made
