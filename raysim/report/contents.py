"""What the tables and sentences of a page say, as text: frames in, strings out.

Frames are those of :mod:`raysim.report.tables`. Decimals, signs and the mark of a column's best are decided here, so
that the templates only lay out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from raysim.metrics.labels import reporting
from raysim.report import tables
from raysim.report.answer import listed, plus_minus
from raysim.report.plots import signed

NAMED = 20  # hospitals named in a sentence, and rows of the table of the worst served


@dataclass(frozen=True)
class Cell:
    """A figure as text: its mean, its deviation and interval where defined, and whether it is its column's best."""

    mean: str
    std: str
    best: bool = False
    interval: str = ""


@dataclass(frozen=True)
class Row:
    """A strategy's line of a table."""

    name: str
    cells: Sequence[Cell]


def columns(table: pd.DataFrame) -> tuple[tuple[str, str, bool | None, int, bool], ...]:
    """Figure, heading, whether larger is better (None: neither), decimals, and whether with a sign."""
    kind = reporting(table)
    digits = kind.decimals(table[kind.headline])
    beside = [(name, f"Mean {name.upper()}", kind.larger, digits, False) for name in kind.beside]
    return (
        (kind.headline, f"Mean {kind.title}", kind.larger, digits, False),
        *beside,
        ("worst_decile", "Worst decile", kind.larger, digits, False),
        ("gini", "Gini", False, 4, False),
        ("std", "Deviation over hospitals", False, digits + 1, False),
        ("size_bias", "Size bias", None, digits + 1, True),
        ("size_bias_abs", "Size bias, absolute", False, digits + 1, False),
    )


def body_rows(table: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Rows of the main table: a name and cells of text, the best of each column marked as displayed."""
    cells = []
    rated = ~tables.yardsticks(table)
    for figure, _, larger, digits, with_sign in columns(table):
        means, stds = table[figure].to_numpy(float), table[f"{figure}_std"].to_numpy(float)
        shown = np.round(means, digits)
        best = np.zeros(len(means), dtype=bool)
        if larger is not None and len(means) > 1 and np.isfinite(shown[rated]).any():
            best = shown == (np.nanmax(shown[rated]) if larger else np.nanmin(shown[rated]))
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
    """Figures of the table of differences with heading and decimals: the mean, the worst decile and |size bias|."""
    kind = reporting(table)
    shown = (kind.headline, "worst_decile", "size_bias_abs")
    return [(figure, heading, digits) for figure, heading, _, digits, _ in columns(table) if figure in shown]


def difference_rows(table: pd.DataFrame, names: Sequence[str], found: pd.DataFrame) -> list[Row]:
    """Rows of the table of differences that :func:`tables.differences` found: figures minus the baseline's."""
    if found.empty:
        return []
    by_key = {(d.strategy, d.model, d.figure): d for d in found.itertuples()}
    rows = []
    for name, strategy, model in zip(names, table["strategy"], table["model"], strict=True):
        if (strategy, model, "size_bias_abs") not in by_key:
            continue
        cells = []
        for figure, _, digits in difference_columns(table):
            d: Any = by_key[strategy, model, figure]
            mean, std, low, high = d.mean, d.std, d.low, d.high
            cells.append(
                Cell(
                    signed(mean, digits) if np.isfinite(mean) else "undefined",
                    f"{std:.{digits}f}" if np.isfinite(std) else "",
                    interval=f"{signed(low, digits)} to {signed(high, digits)}" if np.isfinite(low) else "",
                )
            )
        rows.append(Row(name, cells))
    return rows


def undefined_sentence(hospitals: pd.DataFrame | None, table: pd.DataFrame, part: str = "test") -> str:
    """A sentence on hospitals without a defined headline figure, under any seed; empty when there are none.

    ``part`` of the rows was evaluated.
    """
    kind = reporting(table)
    reason = kind.undefined.replace("test rows", f"{part} rows")
    why = f"{reason}, so {kind.title} is undefined there, and they are left out of every figure above"
    if hospitals is None:
        count = int(np.nan_to_num(table["undefined"].to_numpy(float)).max(initial=0))
        return f"{count} {'hospital is' if count == 1 else 'hospitals are'} undefined: {why}." if count else ""
    tested = hospitals[hospitals["n_test"] > 0]
    undefined = ~np.isfinite(tested[kind.headline].to_numpy(float))
    found = [str(name) for name in tested.loc[undefined, "hospital"].unique()]
    if not found:
        return ""
    more = len(found) - NAMED
    shown = listed([*found[:NAMED], f"{more} more"] if more > 0 else found)
    of = tested["hospital"].nunique()
    under = " under at least one seed" if "seed" in tested and tested["seed"].nunique() > 1 else ""
    return f"{len(found)} of {of} hospitals with {part} rows are undefined{under}: {why}. These are {shown}."


def worst_served(hospitals: pd.DataFrame | None, part: str = "test") -> dict[str, Any]:
    """The table of the worst-served hospitals under the last model listed, worst first; empty without hospitals."""
    if hospitals is None or hospitals.empty:
        return {}
    means = tables.hospital_means(hospitals)
    model, kind = means["model"].iloc[-1], reporting(means)
    figure, title = kind.headline, kind.title
    known = means[(means["model"] == model) & means[figure].notna() & (means["n_test"] > 0)]
    known = known.sort_values(figure, ascending=kind.larger)
    digits = kind.decimals(known[figure])
    tenth = -(-len(known) // 10)
    which = f"The {NAMED} hospitals" if tenth > NAMED else "The tenth of hospitals"
    rows = [
        {"name": str(name), "stays": f"{stays:,.0f}", "tested": f"{tested:,.0f}", "figure": f"{value:.{digits}f}"}
        for name, stays, tested, value in known[["hospital", "stays", "n_test", figure]].head(NAMED).to_numpy()
    ]
    which += f" with the {kind.worst} {title} under the {model} model, {kind.worst} first."
    caption = f"{which} Few {part} rows: uncertain {title}."
    return {"caption": caption, "rows": rows[:tenth], "title": title} if rows else {}


def run_lead(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """What a run reached, a paragraph for each model served."""
    parts, kind = [], reporting(table)
    digits = kind.decimals(table[kind.headline])
    for name, (_, row) in zip(names, table.iterrows(), strict=True):
        mean, std = row[kind.headline], row[f"{kind.headline}_std"]
        if not np.isfinite(mean):
            parts.append(f"The {name} model has no defined {kind.title} at any hospital.")
            continue
        said = (
            f"The {name} model reaches a mean {kind.title} of {plus_minus(mean, std, digits)}, and "
            f"{plus_minus(row['worst_decile'], row['worst_decile_std'], digits)} at the worst tenth of hospitals."
        )
        bias = float(row["size_bias"])
        if np.isfinite(bias) and bias != 0:
            side, times = ("Larger", "twice") if (bias > 0) == kind.larger else ("Smaller", "half")
            change = f"{abs(bias) * np.log(2):.{digits + 1}f} {'more' if kind.larger else 'less'} {kind.title}"
            said += f" {side} hospitals do better: {times} the stays goes with {change}."
        parts.append(said)
    return parts
