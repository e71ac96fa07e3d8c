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


# figure, heading, larger is better (None: neither), decimals, signed
COLUMNS: tuple[tuple[str, str, bool | None, int, bool], ...] = (
    ("auroc", "Mean AUROC", True, 3, False),
    ("worst_decile", "Worst decile", True, 3, False),
    ("gini", "Gini", False, 4, False),
    ("std", "Deviation over hospitals", False, 4, False),
    ("size_bias", "Size bias", None, 4, True),
    ("size_bias_abs", "Size bias, absolute", False, 4, False),
)


def body_rows(table: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Rows of the main table: a name and cells of text, the best of each column marked as displayed."""
    columns = []
    rated = ~tables.yardsticks(table)
    for figure, _, larger, digits, with_sign in COLUMNS:
        means, stds = table[figure].to_numpy(float), table[f"{figure}_std"].to_numpy(float)
        shown = np.round(means, digits)
        best = np.zeros(len(means), dtype=bool)
        if larger is not None and len(means) > 1 and np.isfinite(shown[rated]).any():
            best = shown == (np.nanmax(shown[rated]) if larger else np.nanmin(shown[rated]))
            best &= rated
        columns.append(
            [
                Cell(
                    "undefined" if np.isnan(m) else signed(m, digits) if with_sign else f"{m:.{digits}f}",
                    f"{s:.{digits}f}" if np.isfinite(m) and np.isfinite(s) else "",
                    bool(b),
                )
                for m, s, b in zip(means, stds, best, strict=True)
            ]
        )
    return [Row(name, cells) for name, *cells in zip(names, *columns, strict=True)]


def difference_rows(
    table: pd.DataFrame, names: Sequence[str], per_seed: pd.DataFrame, hospitals: pd.DataFrame | None, baseline: str
) -> list[Row]:
    """Rows of the table of differences: mean AUROC, worst decile and |size bias| minus the baseline's."""
    found = tables.differences(per_seed, hospitals, baseline)
    if found.empty:
        return []
    by_key = {(d.strategy, d.model, d.figure): d for d in found.itertuples()}
    rows = []
    for name, strategy, model in zip(names, table["strategy"], table["model"], strict=True):
        if (strategy, model, "auroc") not in by_key:
            continue
        cells = []
        for figure, digits in (("auroc", 3), ("worst_decile", 3), ("size_bias_abs", 4)):
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


def undefined_sentence(hospitals: pd.DataFrame | None, table: pd.DataFrame) -> str:
    """A sentence on hospitals without a defined AUROC, under any seed; empty when there are none."""
    why = "their test rows hold one class, so AUROC is undefined there, and they are left out of every figure above"
    if hospitals is None:
        count = int(np.nan_to_num(table["undefined"].to_numpy(float)).max(initial=0))
        return f"{count} {'hospital is' if count == 1 else 'hospitals are'} undefined: {why}." if count else ""
    tested = hospitals[hospitals["n_test"] > 0]
    found = [str(name) for name in tested.loc[tested["auroc"].isna(), "hospital"].unique()]
    if not found:
        return ""
    more = len(found) - NAMED
    shown = listed([*found[:NAMED], f"{more} more"] if more > 0 else found)
    of = tested["hospital"].nunique()
    under = " under at least one seed" if "seed" in tested and tested["seed"].nunique() > 1 else ""
    return f"{len(found)} of {of} hospitals with test rows are undefined{under}: {why}. These are {shown}."


def worst_served(hospitals: pd.DataFrame | None) -> dict[str, Any]:
    """The table of the worst-served hospitals under the last model listed, lowest first; empty without hospitals."""
    if hospitals is None or hospitals.empty:
        return {}
    means = tables.hospital_means(hospitals)
    model = means["model"].iloc[-1]
    known = means[(means["model"] == model) & means["auroc"].notna() & (means["n_test"] > 0)].sort_values("auroc")
    tenth = -(-len(known) // 10)
    which = f"The {NAMED} hospitals" if tenth > NAMED else "The tenth of hospitals"
    rows = [
        {"name": str(name), "stays": f"{stays:,.0f}", "tested": f"{tested:,.0f}", "auroc": f"{auroc:.3f}"}
        for name, stays, tested, auroc in known[["hospital", "stays", "n_test", "auroc"]].head(NAMED).to_numpy()
    ]
    caption = f"{which} with the lowest AUROC under the {model} model, lowest first. Few test rows: uncertain AUROC."
    return {"caption": caption, "rows": rows[:tenth]} if rows else {}


def run_lead(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """What a run reached, a paragraph for each model served."""
    parts = []
    for name, (_, row) in zip(names, table.iterrows(), strict=True):
        if not np.isfinite(row["auroc"]):
            parts.append(f"The {name} model has no defined AUROC at any hospital.")
            continue
        said = (
            f"The {name} model reaches a mean AUROC of {plus_minus(row['auroc'], row['auroc_std'], 3)}, and "
            f"{plus_minus(row['worst_decile'], row['worst_decile_std'], 3)} at the worst tenth of hospitals."
        )
        bias = float(row["size_bias"])
        if np.isfinite(bias) and bias != 0:
            side, times = ("Larger", "twice") if bias > 0 else ("Smaller", "half")
            more = abs(bias) * np.log(2)
            said += f" {side} hospitals do better: {times} the stays goes with {more:.4f} more AUROC."
        parts.append(said)
    return parts
