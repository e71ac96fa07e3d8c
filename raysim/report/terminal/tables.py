"""The tables that commands print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from raysim.core.words import counted
from raysim.metrics.labels import REGRESSION, TaskKind, reporting
from raysim.statistics.differences.paired import FEW_HOSPITALS

ROOM_FOR_SPREADS, ROOM_FOR_DIFFERENCES = 136, 92
"""The smallest terminal widths, in characters, at which spreads are next to means (otherwise below them), and at which
differences from the reference are shown."""

RANKING = {
    "auroc": "mean AUROC",
    "worst_decile": "worst decile",
    "gini": "Gini",
    "std": "std",
    "size_bias": "size bias",
}
"""The metrics with their headings, for a label with classes, if AUROC is defined at some hospital."""

CLASSIFYING = {"accuracy": "accuracy", "ad": "AD", "sdad": "SDAD", "log_loss": "log loss"}
"""The metrics with their headings, for a label with classes, if AUROC is undefined at every hospital."""

ERRORS = {
    "mae": "mean MAE",
    "rmse": "mean RMSE",
    "worst_decile": "worst decile",
    "gini": "Gini",
    "size_bias": "size bias",
}
"""The metrics with their headings, for a numeric label."""


def run_table(title: str, models: Mapping[str, Mapping[str, float]]) -> Table:
    """Build the table of a run, with one row for each model."""
    kind = reporting(next(iter(models.values())))
    headlines = [metrics[kind.headline] for metrics in models.values()]
    few = max(metrics["hospitals"] for metrics in models.values()) < FEW_HOSPITALS
    columns, digits = ranking(kind, headlines, few=few), kind.decimals(headlines) + 1
    table = _table(title, columns)
    table.add_column("hospitals (undefined)", justify="right")
    for model, metrics in models.items():
        table.add_row(
            model,
            *(_number(metrics[name], _decimals(name, digits)) for name in columns),
            f"{metrics['hospitals']:.0f} ({metrics['undefined']:.0f})",
        )
    return table


def comparison_table(rows: pd.DataFrame, reference: str, width: int) -> Table:
    """Build the table of a comparison for a terminal of ``width`` characters.

    The spread of a mean is the margin of a 95 % interval over folds if there are folds, else the standard deviation
    over seeds.
    """
    from raysim.report.tables import few, labels

    seeds = int(rows["seeds"].iloc[0])
    folds = any(str(column).endswith("_margin") for column in rows)
    ending, what = ("margin", "95 % interval") if folds else ("std", "standard deviation")
    over = f"{seeds} folds" if folds else f"{seeds} seeds"
    spread = f"mean ± {what} over {over}" if seeds > 1 else "one seed, so no spread is known"
    kind = reporting(rows)
    columns = ranking(kind, rows[kind.headline], few=few(rows))
    digits = kind.decimals(rows[kind.headline]) + 1
    table = _table(f"{counted(len(set(rows['strategy'])), 'strategy', 'strategies')}: {spread}", columns)
    separator = " " if width >= ROOM_FOR_SPREADS else "\n"
    if width >= ROOM_FOR_DIFFERENCES:
        table.add_column(f"{kind.title} against {reference} [95 %]", justify="right")
    for name, row in zip(labels(rows), rows.to_dict("records"), strict=True):
        cells = [
            _number(row[column], _decimals(column, digits), row[f"{column}_{ending}"], separator) for column in columns
        ]
        against = [_difference(row, kind.headline, digits, separator)] if width >= ROOM_FOR_DIFFERENCES else []
        table.add_row(name, *cells, *against)
    captions = ["* a reference, not a federated method"] if rows["yardstick"].any() else []
    low = f"{kind.headline}_low"
    if width >= ROOM_FOR_DIFFERENCES and low in rows and rows[low].notna().any():
        over = "other hospitals like these, patients and seeds; not adjusted for several comparisons"
        if seeds == 1:
            over = "these trained models at other hospitals and patients; one seed cannot compare methods"
        captions.append(f"[95 %]: for {over}")
    if width < ROOM_FOR_DIFFERENCES:
        captions.append(f"terminals of {ROOM_FOR_DIFFERENCES} characters also show the difference from {reference}")
    if captions:
        table.caption = escape("\n".join(captions))
        table.caption_justify = "left"
    return table


def ranking(kind: TaskKind, headlines: Iterable[float], *, few: bool = False) -> dict[str, str]:
    """Return the metrics to print in a table of models, with their headings.

    ``headlines`` are the models' main metrics; if these are AUROCs and all undefined, other metrics are printed. If
    ``few`` (see :func:`raysim.report.tables.few`), the worst decile is headed as the worst hospital, and the slope on
    hospital size is left out.
    """
    if kind is REGRESSION:
        columns = ERRORS
    else:
        columns = RANKING if any(math.isfinite(value) for value in headlines) else CLASSIFYING
    if not few:
        return columns
    renamed = columns | ({"worst_decile": f"{kind.worst} hospital"} if "worst_decile" in columns else {})
    return {name: heading for name, heading in renamed.items() if name != "size_bias"}


def titled(title: str) -> Table:
    """Build an empty table with a title, in the style of all commands."""
    return Table(title=escape(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)


def _table(title: str, columns: Mapping[str, str]) -> Table:
    table = titled(title)
    table.add_column("model used", no_wrap=True)
    for heading in columns.values():
        table.add_column(heading, justify="right")
    return table


def _difference(row: Mapping[Any, Any], figure: str, digits: int, separator: str) -> str:
    value = row.get(f"{figure}_difference", math.nan)
    if not math.isfinite(value):
        return ""
    low, high = (row.get(f"{figure}_{end}", math.nan) for end in ("low", "high"))
    # Adding 0 turns -0 into 0.
    value, low, high = (round(number, digits) + 0.0 for number in (value, low, high))
    return f"{value:+.{digits}f}" + (
        f"{separator}[{low:+.{digits}f}, {high:+.{digits}f}]" if math.isfinite(low) else ""
    )


def _decimals(column: str, digits: int) -> int:
    return 4 if column == "gini" else digits


def _number(value: float, digits: int, spread: float = math.nan, separator: str = " ") -> str:
    if math.isnan(value):
        return "undefined"
    return f"{value:.{digits}f}" + (f"{separator}±{spread:.{digits - 1}f}" if math.isfinite(spread) else "")
