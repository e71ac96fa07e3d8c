"""The page and the terminal output of a validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raysim.experiment.unseen.findings import forests
from raysim.report.naming import interval, number
from raysim.report.pages.common import plain, set_by
from raysim.report.pages.contents import Cell, Row
from raysim.report.pages.rendering import Page
from raysim.report.pages.section import Section, included
from raysim.report.terminal.block import Block, Warning

COLUMNS = {"auroc": ("AUROC", 3), "observed_over_expected": ("observed/expected", 2), "calibration_slope": ("slope", 2)}
"""The metrics in the table of hospitals, with heading and number of decimals."""

IN_BLOCK = 2
"""The number of metrics that the terminal prints for each hospital: the first of :data:`COLUMNS`."""


SECTIONS = (
    Section("pooled", "Over hospitals", included("validation_pooled")),
    Section("figures", "Each hospital", included("validation")),
)


def page(
    name: str,
    predicts: str,
    headline: str,
    notes: Sequence[str],
    hospitals: pd.DataFrame,
    summary: pd.DataFrame,
    config: str,
) -> str:
    """Return the validation's page as HTML text."""
    columns = [column for column in COLUMNS if column in hospitals]
    pooled = {str(row["figure"]): row for row in summary.to_dict("records")}
    rows = [
        Row(
            f"{row['hospital']}",
            [
                Cell(f"{row['rows']:,}", ""),
                Cell(f"{row['events']:,.0f}", ""),
                *(_cell(row, column, f"{column}_low", f"{column}_high", COLUMNS[column][1]) for column in columns),
            ],
        )
        for row in hospitals.to_dict("records")
    ]
    of_all = [
        Row("These hospitals", [_cell(pooled[each], "estimate", "low", "high", COLUMNS[each][1]) for each in columns]),
        Row("The next hospital", [Cell(_reach(pooled[each], COLUMNS[each][1]), "") for each in columns]),
        Row("Spread (tau)", [Cell(number(pooled[each]["tau"], 3), "") for each in columns]),
    ]
    values = {
        "title": f"{name}: {predicts}",
        "lead": [headline, *notes],
        "headings": [COLUMNS[column][0] for column in columns],
        "rows": rows,
        "pooled": of_all,
        "pictures": forests(
            hospitals,
            summary,
            "Every hospital",
            f"{name} at each hospital, with 95 % intervals over its patients. Below them are the mean with its "
            "interval, and the prediction interval for the next hospital.",
        ),
        **set_by("raysim validate MODEL config.yaml", config, Rows_judged=f"{hospitals['rows'].sum():,}"),
    }
    return Page(plain("validation", "Validation of a model", SECTIONS, last="What was judged"), values).html()


def block(
    name: str, predicts: str, headline: str, notes: Sequence[str], hospitals: pd.DataFrame, seconds: str, report: str
) -> Block:
    """Return the validation's terminal output."""
    columns = [column for column in COLUMNS if column in hospitals][:IN_BLOCK]
    largest = hospitals.sort_values("rows", ascending=False, kind="stable").head(5)
    rows = [["", "rows", *(COLUMNS[column][0] for column in columns)]]
    for row in largest.to_dict("records"):
        cells = [_text(row, column, f"{column}_low", f"{column}_high", COLUMNS[column][1]) for column in columns]
        rows.append([str(row["hospital"]), f"{row['rows']:,}", *cells])
    events = hospitals["events"].sum()
    return Block(
        what=f"{name}: {predicts}, {len(hospitals):,} hospitals, {hospitals['rows'].sum():,} rows with {events:,.0f} "
        f"events, {seconds}",
        headline=headline,
        warnings=[Warning(note, False) for note in notes],
        rows=rows,
        notes=[f"validation.csv has all {len(hospitals):,} hospitals."] if len(hospitals) > len(largest) else [],
        report=report,
        noun="hospital",
    )


def _cell(row: Mapping[Any, Any], value: str, low: str, high: str, digits: int) -> Cell:
    if not np.isfinite(row[value]):
        return Cell("undefined", "")
    return Cell(number(row[value], digits), "", interval=interval(row[low], row[high], digits))


def _text(row: Mapping[Any, Any], value: str, low: str, high: str, digits: int) -> str:
    cell = _cell(row, value, low, high, digits)
    return f"{cell.mean} ({cell.interval})" if cell.interval else cell.mean


def _reach(pooled: Mapping[Any, Any], digits: int) -> str:
    return interval(pooled["next_low"], pooled["next_high"], digits) if np.isfinite(pooled["next_low"]) else "undefined"
