"""The block of a comparison or a run: its decision card on one screen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.style import Style
from rich.text import Text

from raysim.core.words import capitalised, number
from raysim.metrics.labels import CLASSIFICATION, TaskKind
from raysim.report.judgement.card import Card, Line, Way
from raysim.report.judgement.facts.wording import figure
from raysim.report.naming import short
from raysim.report.terminal.block import ROWS, Block, Warning
from raysim.statistics.differences.paired import Limits

_NOT_WARNED = ("federate", "which")
"""Facts that the headline says already."""


def block(card: Card, name: str, seconds: float, report: str, next: str, kind: TaskKind = CLASSIFICATION) -> Block:
    """The block of the experiment called ``name``, which took so many ``seconds``."""
    rows, more = _rows(card.ways, kind)
    return Block(
        what=f"{name}: {card.what}, {in_time(seconds)}",
        headline=card.headline,
        warnings=warnings(card),
        rows=rows,
        notes=_notes(card),
        report=report,
        next=next,
        more=more,
    )


def next_command(card: Card, command: str, path: Path | None) -> str:
    """The command that may come next: it mends what is worst, or asks what was not asked."""
    begun = f"raysim {command}{'' if path is None else f' {shlex.quote(str(path))}'}"
    for line in filter(None, map(card.line, ("limits", "training", "calibration"))):
        if line.setting and (line.fact != "calibration" or command == "compare"):
            return f"{begun} --set {line.setting}"
        if line.fact == "training" and line.state == "warn":
            return f"{begun} --details"
    if command == "run":
        return f"raysim compare{'' if path is None else f' {shlex.quote(str(path))}'}"
    return f"{begun} --details"


def styled(line: str, block: Block, report: Path) -> Text:
    """A line of a block with colours, and the report's path as a link."""
    text = Text(line)
    if line.startswith(" !!"):
        text.stylize("bold red")
    elif line.startswith(" ! "):
        text.stylize("yellow")
    elif line.endswith(block.report) and report.is_file():
        text.stylize(Style(link=report.absolute().as_uri()), len(line) - len(block.report))
    return text


def warnings(card: Card) -> list[Warning]:
    """Lines that warn: what the headline says, of which the remedy is left, and what forbids a use come first."""
    lines = [line for line in card.lines if line.state == "warn" and line.fact not in _NOT_WARNED]
    lines.sort(key=lambda line: (line.text != card.headline, not line.forbids))
    return [
        Warning(_short(line, card.headline), line.forbids)
        for line in lines
        if line.remedy or line.text != card.headline
    ]


def _short(line: Line, headline: str) -> str:
    """What is wrong, with its remedy; the remedy alone where the headline has said the rest."""
    if line.text == headline:
        return capitalised(line.remedy)
    text = line.short or line.text.rstrip(".")
    return capitalised(text) + (f": {line.remedy}" if line.remedy else ".")


def _rows(ways: Sequence[Way], kind: TaskKind) -> tuple[list[list[str]], int]:
    """The rows of the ways, and how many were left out; of one way alone none."""
    if len(ways) < 2:
        return [], 0
    digits = kind.decimals([way.mean for way in ways])
    shown = ways if len(ways) <= ROWS else _chosen(ways, 1 if kind.larger else -1)
    return [[_name(way), number(way.mean, digits), _difference(way, digits), way.verdict] for way in shown], len(
        ways
    ) - len(shown)


def _chosen(ways: Sequence[Way], sign: int) -> list[Way]:
    """Of too many ways what is taken, the best federated ones, and of each kind of reference the best."""
    taken = [way for way in ways if way.role == "taken"]
    best: dict[str, Way] = {}
    for way in (way for way in ways if way.role == "reference"):
        kind = way.key[0].partition(",")[0]
        if kind not in best or sign * way.mean > sign * best[kind].mean:
            best[kind] = way
    references = list(best.values())[: ROWS - len(taken) - 1]
    methods = [way for way in ways if way.role == "method"]
    return [*taken, *methods[: ROWS - len(taken) - len(references)], *references]


def _name(way: Way) -> str:
    also = f" = {', '.join(map(short, way.also))}" if way.also else ""
    return f"{short(way.name)}{also}{' (reference)' if way.role == 'reference' else ''}"


def _difference(way: Way, digits: int) -> str:
    if way.role == "taken":
        return "taken"
    return (
        "" if way.difference != way.difference else figure(way.difference, Limits(way.low, way.high), digits, sign=True)
    )


def _notes(card: Card) -> list[str]:
    fairness = card.line("fairness")
    return [fairness.text] if fairness is not None and fairness.state != "warn" else []


def in_time(seconds: float) -> str:
    """How long a command took, in words."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
