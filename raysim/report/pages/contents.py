"""Format the data frames of :mod:`raysim.report.tables` as the tables of a page.

The functions choose decimals and signs, and mark the best value of each column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from raysim.core import words
from raysim.metrics.labels import reporting
from raysim.report import tables
from raysim.report.judgement import fairness
from raysim.report.judgement.noise import Noise
from raysim.report.naming import interval, signed
from raysim.report.panel import Key
from raysim.report.possible import difference
from raysim.statistics.differences.paired import Limits


@dataclass(frozen=True)
class Cell:
    """A table cell: a mean with its deviation and interval, and whether it is the best of its column."""

    mean: str
    std: str
    best: bool = False
    interval: str = ""


@dataclass(frozen=True)
class Row:
    """A table row: a name and its cells."""

    name: str
    cells: Sequence[Cell]


def columns(table: pd.DataFrame) -> tuple[tuple[str, str, bool | None, int, bool], ...]:
    """Return the columns of the main table.

    A column has its metric, heading, whether larger values are better (None: neither larger nor smaller ones),
    decimals, and whether numbers have signs.
    """
    kind = reporting(table)
    digits = kind.decimals(table[kind.headline])
    secondary = [(name, f"Mean {name.upper()}", kind.larger, digits, False) for name in kind.secondary]
    few, slopes = (
        tables.few(table),
        (
            ("size_bias", "Size bias", None, digits + 1, True),
            ("size_bias_abs", "Size bias, absolute", False, digits + 1, False),
        ),
    )
    return (
        (kind.headline, f"Mean {kind.title}", kind.larger, digits, False),
        *secondary,
        ("worst_decile", f"{kind.worst.capitalize()} hospital" if few else "Worst decile", kind.larger, digits, False),
        ("gini", "Gini", False, 4, False),
        ("std", "Deviation over hospitals", False, digits + 1, False),
        *(() if few else slopes),
    )


def body_rows(table: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Return the rows of the main table, one for each strategy and model."""
    cells = []
    rated = ~tables.references(table)
    for figure, _, larger, digits, with_sign in columns(table):
        means, stds = table[figure].to_numpy(float), table[f"{figure}_std"].to_numpy(float)
        rounded = np.round(means, digits)
        best = np.zeros(len(means), dtype=bool)
        if larger is not None and len(means) > 1 and np.isfinite(rounded[rated]).any():
            best = rounded == (np.nanmax(rounded[rated]) if larger else np.nanmin(rounded[rated]))
            best &= rated
        cells.append(
            [
                Cell(
                    "undefined" if np.isnan(m) else signed(m, digits) if with_sign else f"{m:.{digits}f}",
                    f"{s:.{digits}f}" if np.isfinite(m) and np.isfinite(s) else "",
                    bool(b),
                )
                for m, s, b in zip(means, stds, best, strict=True)
            ]
        )
    return [Row(name, line) for name, *line in zip(names, *cells, strict=True)]


def difference_columns(table: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return the columns of the table of differences from the reference strategy: metric, heading and decimals.

    With few hospitals, the size bias is left out.
    """
    kind = reporting(table)
    compared = (kind.headline, "worst_decile", "size_bias_abs")
    return [(figure, heading, digits) for figure, heading, _, digits, _ in columns(table) if figure in compared]


def difference_rows(table: pd.DataFrame, names: Sequence[str], differences: pd.DataFrame) -> list[Row]:
    """Return the rows of the table of differences from the reference strategy.

    The mean has no interval here: the page's plot has joint intervals, and ``comparison.csv`` separate ones.
    """
    if differences.empty:
        return []
    by_key = {(d.strategy, d.model, d.figure): d for d in differences.itertuples()}
    rows = []
    for name, strategy, model in zip(names, table["strategy"], table["model"], strict=True):
        if (strategy, model, "worst_decile") not in by_key:
            continue
        cells = []
        for figure, _, digits in difference_columns(table):
            d: Any = by_key[strategy, model, figure]
            mean, std, limits = d.mean, d.std, Limits(d.low, d.high)
            if figure == reporting(table).headline:
                limits = Limits(np.nan, np.nan)
            elif figure in reporting(table).intervals:
                limits = difference(limits, reporting(table).larger)
            cells.append(
                Cell(
                    signed(mean, digits) if np.isfinite(mean) else "undefined",
                    f"{std:.{digits}f}" if np.isfinite(std) else "",
                    interval=interval(*limits, digits, sign=True),
                )
            )
        rows.append(Row(name, cells))
    return rows


def noise_columns(table: pd.DataFrame, noise: Mapping[Key, Noise]) -> list[tuple[str, str, int]]:
    """Return the columns of the table that compares dispersion with chance: measure, heading and decimals."""
    kind, spread = reporting(table), {"gini": "Gini", "std": "Deviation over hospitals"}
    if tables.few(table):
        named = {"lowest": "Lowest hospital", "highest": "Highest hospital"} | spread
    else:
        named = {"worst_decile": "Worst decile", "p10": "10 % quantile", "p90": "90 % quantile"} | spread
    digits = 3 if kind.larger else kind.decimals(table[kind.headline]) + 1
    present = {name for model_noise in noise.values() for name in model_noise.floor.figures}
    return [(name, heading, 3 if name == "gini" else digits) for name, heading in named.items() if name in present]


def noise_rows(table: pd.DataFrame, names: Sequence[str], noise: Mapping[Key, Noise]) -> list[Row]:
    """Return the rows of the table that compares dispersion over hospitals with chance.

    A row says whether hospitals demonstrably differ, and has each measure, its range under chance, and its excess over
    chance.
    """
    rows = []
    for name, key in zip(names, zip(table["strategy"], table["model"], strict=True), strict=True):
        model_noise = noise.get(key)
        if model_noise is None or not model_noise.floor.figures:
            continue
        cells = [
            Cell("yes" if model_noise.floor.demonstrated else "no", "", interval=words.chance(model_noise.floor.p))
        ]
        for column, _, digits in noise_columns(table, noise):
            figure = model_noise.floor.figures.get(column)
            if figure is None:
                cells.append(Cell("undefined", ""))
                continue
            low, excess, high = figure.excess
            note = f"; beyond chance: {signed(excess, digits)} ({signed(low, digits)} to {signed(high, digits)})"
            cells.append(_with_chance(figure.value, figure.low, figure.high, digits, note))
        rows.append(Row(name, cells))
    return rows


def noise_headings(table: pd.DataFrame, noise: Mapping[Key, Noise]) -> list[str]:
    """Return the headings of the table that compares dispersion with chance."""
    return ["Do hospitals differ?", *(heading for _, heading, _ in noise_columns(table, noise))]


def fairness_headings(table: pd.DataFrame, noise: Mapping[Key, Noise]) -> list[str]:
    """Return the headings of the fairness table: slope on hospital size, and gap of each patient attribute."""
    slope = [f"{reporting(table).title} by size"] if _with_slope(table) else []
    return [*slope, *(f"Within hospitals, by {attribute}" for attribute in _attributes(noise))]


def fairness_rows(table: pd.DataFrame, names: Sequence[str], noise: Mapping[Key, Noise]) -> list[Row]:
    """Return the rows of the fairness table; only a main model has gaps between patient groups."""
    attributes, kind = _attributes(noise), reporting(table)
    digits = 3 if kind.larger else kind.decimals(table[kind.headline]) + 1
    rows = []
    for name, key in zip(names, zip(table["strategy"], table["model"], strict=True), strict=True):
        model_noise = noise.get(key)
        if model_noise is None or not (attributes or _with_slope(table)):
            continue
        cells = []
        if _with_slope(table):
            slope = model_noise.slope
            limits = f"{signed(slope.low, 4)} to {signed(slope.high, 4)}" if np.isfinite(slope.low) else ""
            cells.append(Cell(signed(slope.slope, 4) if limits else "undefined", "", interval=limits))
        for attribute in attributes:
            gap = model_noise.gaps.get(attribute)
            if gap is None:
                cells.append(Cell("\N{EN DASH}", ""))
            elif gap.judged:
                note = f"{' minus '.join(gap.groups)}: {fairness.interval(gap)}; {fairness.chance(gap)}"
                cells.append(Cell(signed(gap.estimate, digits), "", interval=note))
            else:
                cells.append(Cell("cannot be judged", ""))
        rows.append(Row(name, cells))
    return rows


def _attributes(noise: Mapping[Key, Noise]) -> list[str]:
    return list(dict.fromkeys(attribute for model_noise in noise.values() for attribute in model_noise.gaps))


def _with_slope(table: pd.DataFrame) -> bool:
    return reporting(table).larger and not tables.few(table)


def _with_chance(value: float, low: float, high: float, digits: int, note: str) -> Cell:
    return Cell(f"{value:.{digits}f}", "", interval=f"chance: {low:.{digits}f} to {high:.{digits}f}{note}")
