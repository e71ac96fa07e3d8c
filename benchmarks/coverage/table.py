"""The file of pieces as Markdown tables, a study each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from benchmarks.coverage.studies import Cell
from benchmarks.coverage.tally import Tally


def table(cells: Sequence[Cell], done: dict[tuple[str, str], dict[int, Tally]]) -> str:
    """Every measure of every cell that has pieces, with its Monte-Carlo error and its draws."""
    text = []
    for study, members in groupby(cells, key=lambda cell: cell.study):
        text += [f"### {study}", "", "| truth | measure | mean | error | draws |", "|---|---|---|---|---|"]
        for cell in members:
            total = Tally()
            for piece in done.get((cell.study, cell.name), {}).values():
                total.merge(piece.sums)
            for name in total.sums:
                mean, error, draws = total.mean(name)
                text.append(f"| {cell.name} | {name} | {mean:.3f} | {error:.3f} | {draws} |")
        text.append("")
    return "\n".join(text)
