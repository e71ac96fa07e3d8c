"""The tables of a comparison, computed from ``per_seed`` and ``hospitals``.

- ``per_seed`` has the columns ``strategy, model, seed`` and the metrics of :func:`raysim.metrics.equity.equity`.
- ``hospitals`` has the columns ``strategy, model, seed, hospital, n_train, n_test, auroc``.
- For a numeric label there is a column ``mae`` instead of ``auroc``.
- ``model`` names the kind of model (global, cluster, personal, recalibrated).
- ``yardstick`` (optional) marks references, such as training alone, which are not federated methods.
- ``learner`` (optional) names the family of the trained model.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core import csv_files
from raysim.core.streams import stream
from raysim.metrics.declared import ADDED
from raysim.metrics.equity import over_hospitals, paired_difference
from raysim.metrics.labels import reporting
from raysim.report.panel import MANY_HOSPITALS, Panel, Sent
from raysim.statistics.differences.paired import FEW_HOSPITALS
from raysim.statistics.differences.worst_decile import worst_decile_difference
from raysim.statistics.intervals import stdtrit
from raysim.strategies.shared.personalization import RECALIBRATED

KEYS = ["strategy", "model"]
NAMES = (*KEYS, "learner", "hospital", "attribute", "group")
"""The columns that are read as texts, because names may look like numbers or missing values."""

EQUITY = ("worst_decile", "gini", "std", "size_bias", "size_bias_abs")


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table of a run or comparison; an empty cell is NaN except in the columns of ``NAMES``."""
    figures = pd.read_csv(path, nrows=0).columns.difference([*NAMES])
    return csv_files.read_csv(
        path, dtype=dict.fromkeys(NAMES, str), keep_default_na=False, na_values={name: [""] for name in figures}
    )


def figures_in(table: Container[str]) -> tuple[str, ...]:
    """Return the names of the metrics that a comparison reports if its ``table`` has these columns."""
    kind = reporting(table)
    return kind.headline, *kind.secondary, *EQUITY


def comparison(per_seed: pd.DataFrame, hospitals: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one row for each strategy and model, with the mean of each metric over seeds.

    With ``hospitals``, the main metric is averaged over hospitals and seeds, weighted by test rows, as in
    :func:`differences`. A mean leaves out undefined values. Further columns are:

    - ``<metric>_std``: the standard deviation over seeds (``ddof=1``); NaN for fewer than two seeds.
    - ``seeds``: the number of seeds.
    - ``undefined``, ``judged``: the numbers of hospitals where the main metric is undefined and where it is defined;
      each is the maximum over seeds.
    - ``yardstick`` and, if ``per_seed`` has the column, ``learner``.
    """
    figures = list(figures_in(per_seed))
    groups = complete(per_seed).groupby(KEYS, sort=False)
    means, deviations = groups[figures].mean(), groups[figures].std(ddof=1)
    # As arrays: pandas would match the keys of each column's rows with those of the others.
    columns: dict[str, Any] = {key: means.index.get_level_values(key) for key in KEYS}
    if "learner" in per_seed:
        columns["learner"] = groups["learner"].first().array
    if hospitals is not None:
        panel, headline = Panel.of(hospitals), figures[0]
        # The mean of a model that has diverged stays infinite.
        means[headline] = [
            panel.level(key).difference if key in panel.place and np.isfinite(mean) else mean
            for key, mean in zip(means.index, means[headline], strict=True)
        ]
    for figure in figures:
        columns[figure] = means[figure].array
        columns[f"{figure}_std"] = deviations[figure].array
    columns["seeds"] = groups["seed"].nunique().array
    columns["undefined"] = groups["undefined"].max().array
    columns["judged"] = groups["hospitals"].max().array
    columns["yardstick"] = groups["yardstick"].first().array
    return pd.DataFrame(columns)


def few(table: pd.DataFrame) -> bool:
    """Whether too few hospitals have a defined main metric to report a worst decile and a slope on hospital size."""
    return "judged" in table and bool(table["judged"].max() < FEW_HOSPITALS)


def differences(
    per_seed: pd.DataFrame,
    baseline: str,
    hospitals: pd.DataFrame | None = None,
    *,
    sent: Sent | None = None,
) -> pd.DataFrame:
    """Return the differences in metrics of every strategy and model from the baseline.

    Columns are ``strategy, model, figure, mean, std, pairs, low, high``; ``figure`` names the metric. ``pairs`` is the
    number of seeds in which the metric is defined for both the model and the baseline; ``mean`` and ``std`` are over
    these seeds. Without ``hospitals``, ``low`` and ``high`` are NaN. With ``hospitals``:

    - The ``mean`` of the main metric is over all hospitals and seeds where it is defined under both models. Its 95 %
      interval allows for other hospitals of the same kind (:class:`raysim.statistics.differences.paired.Paired`).
    - The 95 % interval of the worst decile needs :data:`raysim.report.panel.MANY_HOSPITALS` hospitals
      (:func:`raysim.statistics.differences.worst_decile.worst_decile_difference`).

    ``sent`` is from :func:`raysim.report.panel.sent`. The baseline is the ``global`` model of the strategy
    ``baseline``, or the strategy's first model if no model is ``global``. There are no rows if the baseline was not
    run.
    """
    figures, kind = complete(per_seed), reporting(per_seed)
    names = ["strategy", "model", "figure", "mean", "std", "pairs", "low", "high"]
    against = baseline_of(figures, baseline)
    rows: list[tuple[object, ...]] = []
    if against is None:
        return pd.DataFrame(rows, columns=names)
    base = _of(figures, *against).set_index("seed")
    panel = None if hospitals is None else Panel.of(hospitals, sent)
    for (strategy, model), group in figures.groupby(KEYS, sort=False):
        if (strategy, model) == against:
            continue
        key = str(strategy), str(model)
        difference = None if panel is None else panel.difference(key, against)
        by_seed, other = group.set_index("seed"), base
        shared = None if hospitals is None else _where_both_are_defined(hospitals, key, against)
        if shared is not None:
            by_seed, other = (
                of.drop(columns=table.columns).join(table) for table, of in zip(shared, (by_seed, other), strict=True)
            )
        seeds = by_seed.index.intersection(other.index)
        for figure in figures_in(per_seed):
            of_seeds = paired_difference(by_seed.loc[seeds, figure], other.loc[seeds, figure])
            mean, low, high = of_seeds.mean, float("nan"), float("nan")
            if panel is not None and difference is not None and figure in kind.intervals:
                if figure == kind.headline and difference.hospitals:
                    mean, (low, high) = difference.difference, difference.population()
                elif difference.hospitals >= MANY_HOSPITALS:
                    # A stream for each row and figure: adding a strategy does not change another's interval.
                    rng = stream(0, f"interval/{strategy}/{model}/{figure}")
                    low, high = worst_decile_difference(*panel.sides(key, against), rng, larger=kind.larger)
            rows.append((strategy, model, figure, mean, of_seeds.std, of_seeds.pairs, low, high))
    return pd.DataFrame(rows, columns=names)


def _where_both_are_defined(
    hospitals: pd.DataFrame, first: tuple[str, str], second: tuple[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return the equity metrics of two models by seed, over the hospitals where the main metric of both is defined.

    Returns None if the main metric is defined at the same hospitals under both models, or if no hospital has it defined
    under both.
    """
    kind = reporting(hospitals)
    table = hospitals if "stays" in hospitals else hospitals.assign(stays=0)
    for column, otherwise in (("seed", 0), ("model", "global")):
        table = table if column in table else table.assign(**{column: otherwise})
    columns, keyed = [kind.headline, "n_test", "stays"], ["seed", "hospital"]
    sides = [_of(table, *key).set_index(keyed)[columns].astype(float) for key in (first, second)]
    joined = sides[0].add_suffix("_first").join(sides[1].add_suffix("_second"), how="inner")
    defined = [np.isfinite(joined[f"{kind.headline}_{side}"].to_numpy()) for side in ("first", "second")]
    if np.array_equal(*defined):
        return None
    both = joined[defined[0] & defined[1]]
    of_sides = []
    for side in ("first", "second"):
        rows = {
            seed: over_hospitals(
                kind.headline, *(of[f"{name}_{side}"].to_numpy() for name in columns), larger=kind.larger
            )
            for seed, of in both.groupby("seed")
        }
        of_sides.append(pd.DataFrame.from_dict(rows, orient="index")[[kind.headline, *EQUITY]] if rows else None)
    return None if of_sides[0] is None or of_sides[1] is None else (of_sides[0], of_sides[1])


def complete(per_seed: pd.DataFrame) -> pd.DataFrame:
    """Return a copy that has the columns ``model``, ``seed``, ``undefined``, ``hospitals`` and ``yardstick``, and all
    metrics of :func:`figures_in`.

    Missing metrics are NaN, except ``size_bias_abs``: it is the absolute value of ``size_bias``. Other missing columns
    have defaults.
    """
    table = per_seed.reset_index(drop=True).copy()
    for column, otherwise in (
        ("model", "global"),
        ("seed", 0),
        ("undefined", 0),
        ("hospitals", np.nan),
        ("yardstick", False),
    ):
        if column not in table:
            table[column] = otherwise
    for figure in figures_in(per_seed)[:-1]:
        table[figure] = table[figure].astype(float) if figure in table else float("nan")
    if "size_bias_abs" not in table:
        table["size_bias_abs"] = table["size_bias"].abs()
    return table


def margins(per_seed: pd.DataFrame) -> pd.DataFrame:
    """Return each metric's margin of error: half the width of Student's 95 % interval over seeds or folds.

    There is one row for each strategy and model.
    """
    groups = (
        complete(per_seed).drop(columns=["seed", "yardstick", "learner"], errors="ignore").groupby(KEYS, sort=False)
    )
    counts = groups.count()
    half_widths: pd.DataFrame = groups.std(ddof=1) / np.sqrt(counts) * stdtrit(counts - 1, 0.975)
    return half_widths


def baseline_of(table: pd.DataFrame, baseline: str) -> tuple[str, str] | None:
    """Return the strategy and model that others are compared with; None if the strategy ``baseline`` was not run."""
    models = list(table.loc[table["strategy"] == baseline, "model"])
    if not models:
        return None
    return baseline, "global" if "global" in models else str(models[0])


def made_of(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Map each recalibrated model in ``keys`` (strategy and model) to its original model.

    The original must come just before the recalibrated model. Both models rank the patients of a hospital alike, and
    have the same AUROC there.
    """
    of = {}
    for before, key in pairwise(keys):
        if key[1] == RECALIBRATED and key[0] == before[0]:
            of[key] = before
    return of


def labels(table: pd.DataFrame) -> list[str]:
    """Return the strategy of each row, with its model if the strategy has several; references have a star."""
    models = table.groupby("strategy")["model"].nunique()
    return [
        (f"{strategy} ({model})" if models[strategy] > 1 else str(strategy)) + (" *" if reference else "")
        for strategy, model, reference in zip(table["strategy"], table["model"], references(table), strict=True)
    ]


def added_figures(per_seed: pd.DataFrame) -> dict[str, Any]:
    """Return the means of metrics that other packages have registered, for ``answer.json``, by strategy and model."""
    found = [name for name in ADDED if name in per_seed]
    if not found:
        return {}
    means = complete(per_seed).groupby(KEYS, sort=False)[found].mean()
    values = ({k: None if np.isnan(v) else float(v) for k, v in row.items()} for row in means.to_dict("records"))
    return {
        "figures": [
            {"strategy": strategy, "model": model, **row}
            for (strategy, model), row in zip(means.index, values, strict=True)
        ]
    }


def references(table: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows are references, such as training alone; all False if the table has no column ``yardstick``."""
    return table["yardstick"].to_numpy(bool) if "yardstick" in table else np.zeros(len(table), dtype=bool)


def hospital_means(hospitals: pd.DataFrame) -> pd.DataFrame:
    """Return each hospital's main metric (``auroc`` or ``mae``) under each strategy and model, averaged over seeds.

    Further columns are ``n_test`` and ``stays``, the number of all rows of the hospital. A metric is NaN if it is
    undefined under all seeds.
    """
    table = hospitals.copy()
    if "model" not in table:
        table["model"] = "global"
    if "stays" not in table:
        table["stays"] = table[[c for c in ("n_train", "n_validation", "n_test") if c in table]].sum(axis=1)
    wanted = ["stays", "n_test", reporting(table).headline]
    table[wanted] = table[wanted].astype(float).replace([np.inf, -np.inf], np.nan)
    return table.groupby([*KEYS, "hospital"], sort=False)[wanted].mean().reset_index()


def _of(table: pd.DataFrame, strategy: str, model: str) -> pd.DataFrame:
    return table[(table["strategy"] == strategy) & (table["model"] == model)]
