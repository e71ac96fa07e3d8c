"""The printed block of a comparison or a run: its decision card on one screen."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from rich.style import Style
from rich.text import Text

from raysim.core.words import capitalised, number
from raysim.metrics.labels import CLASSIFICATION, TaskKind
from raysim.report.judgement.card import Card, Line, MethodRow, Role
from raysim.report.judgement.facts.wording import figure
from raysim.report.naming import MODELS, short
from raysim.report.terminal.block import ROWS, Block, Warning
from raysim.statistics.differences.paired import Limits
from raysim.strategies.shared.personalization import RECALIBRATED

_NOT_WARNED = ("federate", "which")
"""The findings that the headline already states."""


def block(card: Card, name: str, seconds: float, report: str, next: str, kind: TaskKind = CLASSIFICATION) -> Block:
    """Build the summary block of the experiment ``name`` from its decision ``card``."""
    rows = _chosen(card.rows, 1 if kind.larger else -1)
    return Block(
        what=f"{name}: {card.what}, {in_time(seconds)}",
        headline=card.headline,
        warnings=warnings(card),
        rows=_rows(rows, kind),
        notes=_notes(card),
        report=report,
        next=next,
        more=sum(1 + len(row.also) for row in card.rows if row not in rows) if rows else 0,
        noun="model",
        references=sum(row.role == "reference" for row in rows),
    )


def next_command(card: Card, command: str, path: Path | None, settings: Sequence[str] = ()) -> str:
    """Suggest the command to run after ``command``: one that remedies a finding, compares strategies or gives details.

    ``settings`` are the arguments of ``--set`` in ``command``. The suggested command repeats them, except one that it
    changes.
    """

    def written(command: str, setting: str = "", option: str = "") -> str:
        key = setting.partition("=")[0]
        given = [each for each in settings if each.partition("=")[0] != key] + ([setting] if setting else [])
        return command_line(command, path, *set_options(given), *filter(None, [option]))

    for line in filter(None, map(card.line, ("limits", "training", "calibration"))):
        if line.setting and (line.fact != "calibration" or command == "compare"):
            return written(command, line.setting)
        if line.fact == "training" and line.state == "warn":
            return written(command, option="--details")
    return written("compare") if command == "run" else written(command, option="--details")


def command_line(command: str, path: Path | None, *options: object) -> str:
    """Write a command of raysim with its file and options, quoted for a shell.

    >>> command_line("judge", Path("my scores.csv"), "--tried", 3)
    "raysim judge 'my scores.csv' --tried 3"
    """
    return shlex.join(["raysim", command, *([] if path is None else [str(path)]), *map(str, options)])


def set_options(settings: Iterable[str]) -> list[str]:
    """Write ``settings`` as options ``--set``.

    >>> set_options(["seed=1", "data.rows=900"])
    ['--set', 'seed=1', '--set', 'data.rows=900']
    """
    return [part for each in settings for part in ("--set", each)]


def styled(line: str, block: Block, report: Path) -> Text:
    """Colour a line of a summary block if it is a warning; if it names the report, link to the file ``report``."""
    text = Text(line)
    if line.startswith(" !!"):
        text.stylize("bold red")
    elif line.startswith(" ! "):
        text.stylize("yellow")
    elif line.endswith(block.report) and report.is_file():
        text.stylize(Style(link=report.absolute().as_uri()), len(line) - len(block.report))
    return text


def warnings(card: Card) -> list[Warning]:
    """Return the warnings of a decision card: first the one that the headline states, then those that forbid a use."""
    lines = [line for line in card.lines if line.state == "warn" and line.fact not in _NOT_WARNED]
    lines.sort(key=lambda line: (line.text != card.headline, not line.forbids))
    return [
        Warning(_short(line, card.headline), line.forbids)
        for line in lines
        if line.remedy or line.text != card.headline
    ]


def _short(line: Line, headline: str) -> str:
    if line.text == headline:
        return capitalised(line.remedy)
    text = line.short or line.text.rstrip(".")
    return capitalised(text) + (f": {line.remedy}" if line.remedy else ".")


def _rows(rows: Sequence[MethodRow], kind: TaskKind) -> list[list[str]]:
    digits = kind.decimals([row.mean for row in rows])
    if all(row.key[1] == RECALIBRATED for row in rows):
        rows = [replace(row, name=row.name.removesuffix(f", {MODELS[RECALIBRATED]}")) for row in rows]
    return [[_name(row), number(row.mean, digits), _difference(row, kind, digits), _verdict(row)] for row in rows]


def _chosen(rows: Sequence[MethodRow], sign: int) -> Sequence[MethodRow]:
    """Choose the rows to print: the recommended method, the best other methods, and references.

    ``sign`` is 1 if larger means are better, otherwise -1. The result is empty for a single row.
    """
    if len(rows) < 2:
        return ()
    taken, methods, references = ([row for row in rows if row.role == role] for role in get_args(Role))
    if len(rows) > ROWS:
        best: dict[str, MethodRow] = {}
        for row in references:
            kind = row.key[0].partition(",")[0]
            if kind not in best or sign * row.mean > sign * best[kind].mean:
                best[kind] = row
        references = list(best.values())[: ROWS - len(taken) - 1]
    return [*taken, *methods[: ROWS - len(taken) - len(references)], *references]


def _name(row: MethodRow) -> str:
    also = f" = {', '.join(map(short, row.also))}" if row.also else ""
    return f"{short(row.name)}{also}{' (reference)' if row.role == 'reference' else ''}"


def _difference(row: MethodRow, kind: TaskKind, digits: int) -> str:
    """Format a method's difference from the recommended method; for the recommended method, name the metric."""
    if row.role == "taken":
        return f"taken (mean {kind.title})"
    if row.difference != row.difference:
        return ""
    return figure(row.difference, Limits(row.low, row.high), digits, sign=True)


def _verdict(row: MethodRow) -> str:
    return row.verdict if row.same_rows else f"{row.verdict}, on its rows"


def _notes(card: Card) -> list[str]:
    """Return sentences of the decision card that are not warnings."""
    unseen = card.line("unseen")
    if unseen is not None:
        unseen = replace(unseen, text=f"{unseen.short}.") if unseen.short else None
    risks = card.line("calibration")
    if risks is not None:
        undecided = risks.state == "open" and card.use == "ranking"
        risks = replace(risks, text=f"{risks.text.split('. ')[0].rstrip('.')}.") if undecided else None
    lines = [risks, card.line("quality") if len(card.rows) == 1 else None, unseen, card.line("fairness")]
    return [line.text for line in lines if line is not None and line.state != "warn"]


def in_time(seconds: float) -> str:
    """Format the duration of a command as text, such as "90 s" or "2 min"."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
