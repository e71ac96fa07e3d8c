"""What the commands of the command line do."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from raysim import config as configuration
from raysim import registry
from raysim.config import PAPER_METHODS, Config, StrategySection

if TYPE_CHECKING:
    import pandas as pd

    from raysim.results import Result

ROOM_FOR_SPREADS, ROOM_FOR_DIFFERENCES = 136, 92
"""Characters that a comparison's table needs with spreads beside the means, and with differences at all."""

COLUMNS = {
    "auroc": "mean AUROC",
    "worst_decile": "worst decile",
    "gini": "Gini",
    "std": "std",
    "size_bias": "size bias",
}


def run_one(config: Config, console: Console, out: Path | None, *, in_process: bool, verbose: bool) -> None:
    """``raysim run``."""
    from raysim.experiment import Experiment

    experiment = Experiment(config, [config.strategy], [config.seed], out)
    (result,) = experiment.play(console, in_process=in_process, verbose=verbose)
    console.print(_run_table(result))
    console.print(f"files: {result.folder}", soft_wrap=True, highlight=False, markup=False)


def compare_all(config: Config, console: Console, out: Path | None, *, in_process: bool, verbose: bool) -> None:
    """``raysim compare``."""
    from raysim import comparison
    from raysim.experiment import Experiment

    sections = config.strategies or tuple(StrategySection.model_validate(name) for name in PAPER_METHODS)
    experiment = Experiment(config, sections, config.seeds or (config.seed,), out)
    comparison.check_reference(config.reference, [entry.label for entry in experiment.entries])
    tables: list[pd.DataFrame] = []

    def conclude(results: Sequence[Result]) -> tuple[Mapping[str, float], Sequence[Path]]:
        table, files = comparison.write_comparison(experiment.folder, config, results)
        tables.append(table)
        return {}, files

    experiment.play(console, in_process=in_process, verbose=verbose, conclude=conclude)
    console.print(_comparison_table(tables[0], config.reference, console.width))
    console.print(f"files: {experiment.folder}", soft_wrap=True, highlight=False, markup=False)


def describe_data(config: Config, console: Console) -> None:
    """``raysim describe``."""
    from raysim.data.build import build
    from raysim.data.describe import render

    source = configuration.build_source(config.data)
    render(build(source, config.data.split, config.data.preprocessing, config.seed), console)


def list_kind(kind: str, console: Console) -> None:
    """``raysim list``: each name with the first line of its documentation."""
    if kind == "metrics":
        from raysim.metrics import FIGURES

        console.print("per hospital:    " + ", ".join(FIGURES), highlight=False)
        console.print("over hospitals:  " + ", ".join(_federation_metric_names()), highlight=False)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, entry in registry.entries(kind).items():
        table.add_row(name, _first_line(kind, entry.load()))
    console.print(table)


def _federation_metric_names() -> list[str]:
    import numpy as np

    from raysim.metrics import FIGURES
    from raysim.summary import federation_metrics

    return [*federation_metrics(np.full((1, len(FIGURES)), np.nan), np.ones(1, dtype=np.int64)), "pooled_auroc"]


def _first_line(kind: str, plugin: object) -> str:
    """The first line on a plug-in: of its module for strategies, of which each has its own, else of the class."""
    text = (sys.modules[plugin.__module__].__doc__ if kind == "strategies" else plugin.__doc__) or ""
    return text.strip().splitlines()[0] if text.strip() else ""


def _run_table(result: Result) -> Table:
    table = _table(f"{result.label}, seed {result.seed}")
    table.add_column("hospitals (undefined)", justify="right")
    for model, metrics in result.outcome.metrics.items():
        table.add_row(
            model,
            *(_number(metrics[name]) for name in COLUMNS),
            f"{metrics['hospitals']:.0f} ({metrics['undefined']:.0f})",
        )
    return table


def _comparison_table(rows: pd.DataFrame, reference: str, width: int) -> Table:
    """Fits ``width`` characters: spreads go below the means, and the differences away, where there is no room."""
    from raysim.report.tables import labels

    seeds = int(rows["seeds"].iloc[0])
    spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed, so no spread is known"
    table = _table(f"{len(set(rows['strategy']))} strategies: {spread}")
    beside = " " if width >= ROOM_FOR_SPREADS else "\n"
    if width >= ROOM_FOR_DIFFERENCES:
        table.add_column(f"AUROC against {reference} [95 %]", justify="right")
    for name, row in zip(labels(rows), rows.to_dict("records"), strict=True):
        cells = [_number(row[column], row[f"{column}_std"], beside) for column in COLUMNS]
        table.add_row(name, *cells, *([_difference(row, beside)] if width >= ROOM_FOR_DIFFERENCES else []))
    if rows["yardstick"].any():
        table.caption = "* a yardstick: it bounds what federating can reach"
        table.caption_justify = "left"
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model served", no_wrap=True)
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    return table


def _difference(row: Mapping[Any, Any], beside: str) -> str:
    value = row.get("auroc_difference", math.nan)
    if not math.isfinite(value):
        return ""
    return f"{value:+.4f}{beside}[{row['auroc_low']:+.4f}, {row['auroc_high']:+.4f}]"


def _number(value: float, spread: float = math.nan, beside: str = " ") -> str:
    if not math.isfinite(value):
        return "undefined"
    return f"{value:.4f}" + (f"{beside}±{spread:.3f}" if math.isfinite(spread) else "")
