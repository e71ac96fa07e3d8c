"""Makes the tables of a comparison: the stacked tables of its runs, and one row per strategy and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from raysim.data.federation import Federation
from raysim.engine.job import Outcome, Result
from raysim.report import tables
from raysim.storage.results import traffic
from raysim.storage.run_tables import hospitals_table, judged_rows, split_table

DIFFERENCES = {"mean": "difference", "std": "difference_std", "low": "low", "high": "high"}
"""For each column of :func:`tables.differences` in ``comparison.csv``, the suffix that follows the metric's name
there."""


def per_seed(results: Sequence[Result]) -> pd.DataFrame:
    """Make one row per strategy, evaluated model and seed: metrics of the federation, seconds and bytes."""
    return pd.DataFrame(
        {
            "strategy": result.label,
            "model": model,
            **_learner(result),
            "seed": result.seed,
            "yardstick": result.is_reference,
            **metrics,
            "seconds": result.outcome.seconds,
            **traffic(result.outcome),
        }
        for result in results
        for model, metrics in result.outcome.metrics.items()
    )


def per_round(results: Sequence[Result]) -> pd.DataFrame:
    """Make one row per strategy, evaluated model, seed and evaluated round, with the metrics of the federation."""
    return pd.DataFrame(
        {"strategy": result.label, "model": model, "seed": result.seed, "round": row.round, **metrics}
        for result in results
        for row in result.outcome.rounds
        for model, metrics in row.metrics.items()
    )


def per_hospital(results: Sequence[Result], part: str) -> pd.DataFrame:
    """Stack all runs' tables of hospitals; the first columns are ``strategy`` and ``seed``.

    ``part`` is the evaluated part of the rows, such as ``test``.
    """
    stacked = []
    for result in results:
        table = hospitals_table(result.federation, result.outcome, part)
        table.insert(0, "strategy", result.label)
        table.insert(1, "seed", result.seed)
        stacked.append(table.assign(**_learner(result)))
    return pd.concat(stacked, ignore_index=True)


def _learner(result: Result) -> dict[str, str]:
    return {"learner": result.learner} if result.learner else {}


def judged(results: Sequence[Result], part: str) -> pd.DataFrame:
    """Make ``predictions.csv`` of a comparison: the prediction of every two-class model for every row of ``part``, such
    as ``test``."""
    stacked = []
    for result in results:
        role = "alone" if result.alone else "reference" if result.is_reference else ""
        moved = sum(traffic(result.outcome).values())
        table = judged_rows(result.federation, result.outcome, part)
        table = table.assign(strategy=result.label, seed=result.seed, role=role, bytes=moved)
        stacked.append(table.assign(**_learner(result)))
    return pd.concat(stacked, ignore_index=True)


def splits(results: Sequence[Result]) -> pd.DataFrame:
    """Make ``split.csv`` of a comparison: the split of each seed, with ``seed`` as first column."""
    stacked = []
    for seed, federation in {result.seed: result.federation for result in results}.items():
        table = split_table(federation)
        table.insert(0, "seed", seed)
        stacked.append(table)
    return pd.concat(stacked, ignore_index=True)


def stacked(
    results: Sequence[Result], of_run: Callable[[Federation, Outcome], Mapping[str, pd.DataFrame]]
) -> dict[str, pd.DataFrame]:
    """Stack the tables that ``of_run`` makes for each run, by name; the first columns are ``strategy`` and ``seed``."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for result in results:
        for name, table in of_run(result.federation, result.outcome).items():
            table.insert(0, "strategy", result.label)
            table.insert(1, "seed", result.seed)
            tables.setdefault(name, []).append(table)
    return {name: pd.concat(each, ignore_index=True) for name, each in tables.items()}


def comparison_table(
    frame: pd.DataFrame, differences: pd.DataFrame, hospitals: pd.DataFrame, *, folds: bool = False
) -> pd.DataFrame:
    """Make ``comparison.csv``, with one row per strategy and model.

    ``frame`` is the result of :func:`per_seed`, ``differences`` that of :func:`tables.differences`, and ``hospitals``
    that of :func:`for_plots`. A metric's column is its mean over seeds, and ``<metric>_std`` is the standard deviation
    over seeds (ddof 1). The mean of the main metric is weighted by test rows. ``<metric>_difference`` is the mean
    paired difference from the reference strategy, and ``<metric>_difference_std`` its standard deviation over seeds.
    ``<metric>_low`` and ``<metric>_high`` are the limits of the 95 % interval of this difference. If ``folds`` is True,
    seeds are the folds of a cross-validation, and ``<metric>_margin`` is half the width of the 95 % interval of the
    metric's mean over folds.
    """
    table = tables.comparison(frame, hospitals)
    others = frame.columns.difference([*table.columns, "seed", "yardstick"], sort=False)
    groups = frame.groupby(tables.KEYS, sort=False)[list(others)]
    wide = differences.pivot(index=tables.KEYS, columns="figure", values=list(DIFFERENCES))
    pairs = [(str(name), str(figure)) for name, figure in wide.columns.to_frame(index=False).to_numpy()]
    wide.columns = pd.Index([f"{figure}_{DIFFERENCES[name]}" for name, figure in pairs])
    wide = wide.dropna(axis=1, how="all")
    table = (
        table.join(groups.mean(), on=tables.KEYS)
        .join(groups.std(ddof=1).add_suffix("_std"), on=tables.KEYS)
        .join(wide, on=tables.KEYS)
    )
    return table.join(tables.margins(frame).add_suffix("_margin"), on=tables.KEYS) if folds else table


def for_plots(hospitals: pd.DataFrame, part: str) -> pd.DataFrame:
    """Rename columns of the table ``hospitals`` as plots expect them.

    Columns of the evaluated ``part`` get the names of test columns, and ``n_total`` becomes ``stays``.
    """
    return hospitals.rename(columns={"n_total": "stays", f"n_{part}": "n_test", f"events_{part}": "events_test"})
