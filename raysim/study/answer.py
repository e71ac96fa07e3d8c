"""The conclusion of a study, as a sentence and as terminal output."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.table import Table

from raysim.config.reading import read_tree
from raysim.core.words import counted
from raysim.report.judgement.facts.wording import some
from raysim.report.terminal.block import ROWS, Block, Warning
from raysim.study.charts import MODELS, NAMES
from raysim.study.predictors import ALL

TARGETS = {"log_alpha": "ln alpha", "alpha": "alpha"}

EQUAL = 0.01
"""Metrics whose R² differs by less than this from the best R² are reported as equally good. R² varies about as much
between seeds."""


def ranking(shares: pd.DataFrame) -> pd.Series:
    """Return how well each metric alone predicts the label skew (alpha of a Dirichlet partition), the best first.

    The values are R² over all partitions, averaged over models. ``shares`` are the rows of ``importances.csv``.
    """
    together = shares[shares["clients"] == ALL]
    return together.groupby("metric", sort=False)["r2_alone"].mean().sort_values(ascending=False, kind="stable")


def headline(shares: pd.DataFrame, target: str) -> str:
    """Return a sentence on the metrics that predict the skew best, with their R².

    ``shares`` are the rows of ``importances.csv``. ``target`` says whether alpha or its logarithm is predicted.
    """
    alone, named = ranking(shares), TARGETS[target]
    if not alone.notna().any():
        return f"No metric predicts {named}: R² is undefined."
    best = float(alone.iloc[0])
    if best <= 0:
        return f"No metric predicts {named} better than its mean does (R² {best:.3f})."
    equal = [readable_name(metric) for metric, value in alone.items() if best - value < EQUAL]
    if len(equal) == 1:
        then = f", followed by {readable_name(alone.index[1])} ({alone.iloc[1]:.3f})" if len(alone) > 1 else ""
        return f"{equal[0]} predicts {named} best (R² {best:.3f}){then}."
    least = float(alone.iloc[len(equal) - 1])
    reached = f"{best:.3f}" if f"{best:.3f}" == f"{least:.3f}" else f"{least:.3f} to {best:.3f}"
    return f"{some(equal)} predict {named} equally well (R² {reached})."


def block(folder: Path, shares: pd.DataFrame, seconds: str, report: str, next: str) -> Block:
    """Return what the terminal shows of the study in ``folder``; ``shares`` are the rows of ``importances.csv``."""
    tree = read_tree(folder / "config.yaml")
    table = pd.read_csv(folder / "study.csv")
    infeasible = int((~table["feasible"]).sum())
    seeds = counted(len(tree["study"]["seeds"]), "seed")
    warnings = [Warning(f"{infeasible:,} of {len(table):,} partitions are not feasible.", False)] if infeasible else []
    together = shares[shares["clients"] == ALL]
    by_model = together.pivot(index="metric", columns="model", values="r2_alone")
    models = [MODELS.get(str(model), str(model)) for model in by_model.columns]
    alone = ranking(shares)
    rows = [
        [readable_name(metric), f"R² {mean:.3f}", *(f"{v:.3f}" for v in by_model.loc[str(metric)])]
        for metric, mean in list(alone.items())[:ROWS]
    ]
    return Block(
        what=f"{tree['name']}: {counted(len(table), 'partition')} of {seeds}, {seconds}",
        headline=headline(shares, tree["study"]["target"]),
        warnings=warnings,
        rows=rows,
        notes=[f"R² on held-out seeds: mean over models, then {', '.join(models)}."],
        report=report,
        next=next,
        more=max(len(alone) - ROWS, 0),
    )


def ranking_table(shares: pd.DataFrame) -> Table:
    """Return a table of how well each metric predicts the label skew, from the rows of ``importances.csv``.

    It is sorted by model, and for each model by the R² of the metric alone, the best first.
    """
    together = shares[shares["clients"] == ALL]
    table = Table(title="how well each metric predicts the skew, on held-out seeds", title_justify="left", box=None)
    for heading in ("metric", "model", "R² alone", "R² of all", "importance", "R² lost if shuffled"):
        table.add_column(heading, justify="left" if heading in ("metric", "model") else "right", overflow="fold")
    ordered = together.sort_values(["model", "r2_alone"], ascending=[True, False], kind="stable")
    for row in ordered.to_dict("records"):
        figures = (row[name] for name in ("r2_alone", "r2", "importance", "permutation"))
        table.add_row(str(row["metric"]), str(row["model"]).replace("_", " "), *(f"{value:.3f}" for value in figures))
    return table


def readable_name(metric: object) -> str:
    return NAMES.get(str(metric), str(metric))
