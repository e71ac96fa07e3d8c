"""The file of pieces as Markdown tables: each cell of a study, or a study in short."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from benchmarks.coverage.studies import Cell
from benchmarks.coverage.tally import Tally

Pieces = dict[tuple[str, str], dict[int, Tally]]
"""By study and cell."""

WANTED = (0.93, 0.98)
"""Coverage of an interval."""

ALARMS = 0.05
"""False alarms of a test, at most."""

ASIDE = (
    "hospitals off",
    "hospitals whose",
    "width",
    "the same unadjusted",
    "spread has no upper limit",
    "worst decile, hospitals alone",
)
"""Measures that are neither coverage nor errors of a test, by how they begin."""

NOT_CLAIMED = "(raysim makes no claim)"
"""Marks rows about intervals of one seed."""

BETWEEN = {
    "service": "hospitals under one model",
    "errors": "errors of a real-valued label",
    "chosen": "calibration of hospitals",
    "off": "calibration at single hospitals",
    "pairs": "two strategies",
    "families": "six strategies",
    "deciles": "worst decile of two strategies",
    "fronts": "four strategies on mean and worst decile",
}
"""Studies of several hospitals."""

SEEDS = {", 1 seeds": "one seed", ", 2 seeds": "2 seeds"}
"""How cells' names say it, and the table."""

WITHIN = {"single": "one hospital", "calibrated": "its calibration", "curves": "verdicts on losses"}
"""Studies of one."""

Mean = tuple[float, float, int]
"""A mean, its Monte-Carlo error, and its draws."""


def table(cells: Sequence[Cell], done: Pieces) -> str:
    """Every measure of every cell that has pieces, with its Monte-Carlo error and its draws."""
    text = []
    for study, members in groupby(sorted(cells, key=_study), key=_study):
        text += [f"### {study}", "", "| truth | measure | mean | error | draws |", "|---|---|---|---|---|"]
        for cell in members:
            total = _total(cell, done)
            for name in total.sums:
                mean, error, draws = total.mean(name)
                text.append(f"| {cell.name} | {name} | {mean:.3f} | {error:.3f} | {draws} |")
        text.append("")
    return "\n".join(text)


def summary(cells: Sequence[Cell], done: Pieces) -> str:
    """Each measure over the truths of its study: lowest to highest mean, by the number of hospitals, and draws a cell.

    Bold is coverage below what is :data:`WANTED` by more than two Monte-Carlo errors, and false alarms above
    :data:`ALARMS` by as many.
    """
    numbers = list(dict.fromkeys(filter(None, map(_hospitals, cells))))
    text = []
    for titles, columns, heads in (
        (BETWEEN, numbers, [f"{number} hospitals" for number in numbers]),
        (WITHIN, [""], ["lowest to highest"]),
    ):
        text += [f"| | measure | {' | '.join(heads)} | draws |", "|---|---|" + "---|" * len(heads) + "---|"]
        for study, title in titles.items():
            for (label, role), means in _measures([cell for cell in cells if cell.study == study], done).items():
                draws = [count for of_number in means.values() for *_, count in of_number]
                least, most = min(draws), max(draws)
                shown = " | ".join(_range(role, means.get(column, [])) for column in columns)
                text.append(f"| {title} | {label} | {shown} | {least if least == most else f'{least} to {most}'} |")
                title = ""
        text.append("")
    return "\n".join(text)


def _measures(cells: Sequence[Cell], done: Pieces) -> dict[tuple[str, str], dict[str, list[Mean]]]:
    """By label and role of a measure, and by number of hospitals: what each truth has."""
    measures: dict[tuple[str, str], dict[str, list[Mean]]] = {}
    for cell in cells:
        total = _total(cell, done)
        for name in total.sums:
            if not name.startswith(ASIDE):
                role, seeds = _role(cell, name), ""
                kind = role
                if cell.study in ("pairs", "families", "deciles", "fronts"):
                    seeds = next((text for key, text in SEEDS.items() if key in cell.name), "3 or 5 seeds")
                what = name
                if seeds == "one seed" and ("claimed" in name or name.startswith(("all intervals", "worst decile"))):
                    what, kind = (
                        name.replace("claimed to differ", "seems to differ").replace(" claimed", " seen"),
                        " ".join(filter(None, (role, NOT_CLAIMED))),
                    )
                label = ", ".join(filter(None, (what, seeds, kind)))
                by_number = measures.setdefault((label, kind), {})
                by_number.setdefault(_hospitals(cell), []).append(total.mean(name))
    return measures


def _study(cell: Cell) -> str:
    return cell.study


def _total(cell: Cell, done: Pieces) -> Tally:
    total = Tally()
    for piece in done.get((cell.study, cell.name), {}).values():
        total.merge(piece.sums)
    return total


def _hospitals(cell: Cell) -> str:
    number = cell.name.split(",")[0]
    return number if number.isdigit() else ""


def _role(cell: Cell, measure: str) -> str:
    """What a measure is: ``false alarm``, ``right`` for a finding that is true, nothing for coverage."""
    equal = cell.name.endswith((", equal", "spread 0.0")) or measure.endswith("standard deviation 0")
    if measure.startswith(
        (
            "at least one equal strategy",
            "some hospital is claimed to lose",
            "the best strategy called dominated",
            "calibration error above",
        )
    ):
        return "false alarm"
    if "p <= .05" in measure or measure.endswith("called diverged"):
        return "false alarm"
    if measure.startswith("difference claimed"):
        return "false alarm" if equal else "right"
    found = "claimed" in measure or measure.startswith("worse strategies") or cell.study == "curves"
    return "right" if found else ""


def _range(role: str, means: Sequence[Mean]) -> str:
    if not means:
        return ""
    low, high = min(mean for mean, *_ in means), max(mean for mean, *_ in means)
    if role == "false alarm":
        wrong = any(mean - 2 * _error(ALARMS, draws) > ALARMS for mean, _, draws in means)
    else:
        wrong = role == "" and any(mean + 2 * _error(WANTED[0], draws) < WANTED[0] for mean, _, draws in means)
    text = _figure(low) if _figure(low) == _figure(high) else f"{_figure(low)} to {_figure(high)}"
    return f"**{text}**" if wrong else text


def _error(share: float, draws: int) -> float:
    """Of a mean that is truly ``share``: a mean of 0 or 1 has no error of its own."""
    return float(np.sqrt(share * (1 - share) / draws))


def _figure(mean: float) -> str:
    return f"{mean:.3f}".lstrip("0") if mean < 1 else "1"
