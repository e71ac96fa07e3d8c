"""The block that a command prints: what was run, the answer, and what comes next, on one screen.

It is plain text of at most :data:`MOST` lines, wrapped at words, so that it is whole on the smallest terminal, and in a
log. Nothing is cut off: names stand whole, and rows that do not fit are counted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from raysim.core.words import counted

MOST = 16
"""Lines of a block."""

WIDTH = 80
"""Characters that a block needs; wider ones are used up to :data:`WIDEST`."""

WIDEST = 100

ROWS = 6
"""Rows of a block's table at most."""

_GAP = "  "


@dataclass(frozen=True)
class Warning:
    """A fact that limits the answer."""

    text: str
    """One sentence, with what to do about it."""
    forbids: bool
    """Whether it forbids a use."""


@dataclass(frozen=True)
class Block:
    """What a block says, from top to bottom; what is empty is left out."""

    what: str
    """What was run, in one line."""
    headline: str
    """The answer."""
    warnings: Sequence[Warning] = ()
    """Facts that limit it, those that forbid a use first."""
    rows: Sequence[Sequence[str]] = ()
    """The rows of a table, cells of equal number; the first column is aligned left."""
    notes: Sequence[str] = ()
    """Further lines."""
    report: str = ""
    """Where the report lies."""
    next: str = ""
    """A command that may come next."""
    more: int = 0
    """How many rows were left out of ``rows``."""
    noun: str = "row"
    """What a row is of."""
    references: int = 0
    """How many of the last rows are references: other rows are left out before them."""


def lines(block: Block, width: int = WIDTH, most: int = MOST) -> list[str]:
    """The lines of a block, none wider than ``width`` where a word is not.

    At least one row is kept. Where there are too many lines, rows are left out first, then notes and warnings that
    forbid nothing, each counted in what is said of details.
    """
    width = max(20, min(width, WIDEST))
    rows, notes, warnings = list(block.rows), list(block.notes), list(block.warnings)
    out: list[tuple[int, Sequence[str]]] = []  # the rows that were left out, each with its place
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
    while out and len(rows) < ROWS:  # what a remark has made room for
        at, row = out.pop()
        rows.insert(at, row)
        if len(made()) > most:
            out.append((at, rows.pop(at)))
            break
    return made()


def _least(rows: Sequence[Sequence[str]], references: int) -> int:
    """The place of the row that is left out first: the last one before the references; else the last of these."""
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
    ends = (("Report ", block.report), ("Next   ", block.next))
    made += [f"{name}{text}" for name, text in ends if text]  # a path or a command that is broken cannot be copied
    return made


def _wrapped(text: str, width: int, first: str = "") -> list[str]:
    """The lines of a text; all but the first are indented as far as ``first`` is wide."""
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False)


def _table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows in columns; names are wrapped where a line would be too wide, as figures cannot be."""
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
