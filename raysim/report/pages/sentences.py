"""Sentences for pages, on hospitals with undefined metrics, the worst hospitals, and the results of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raysim.core.words import capitalised, counted, listed
from raysim.metrics.labels import TaskKind, reporting
from raysim.report import tables
from raysim.report.judgement import judged
from raysim.report.judgement.answer import plus_minus
from raysim.report.naming import MODELS, with_interval
from raysim.statistics.differences.paired import FEW_HOSPITALS, Limits
from raysim.statistics.mean_interval import mean_interval

NAMED = 20  # hospitals named in a sentence, and rows of the table of the worst hospitals


def undefined_sentence(hospitals: pd.DataFrame | None, table: pd.DataFrame, part: str = "test") -> str:
    """Return a sentence on the hospitals whose main metric is undefined with at least one seed; may be empty.

    ``part`` names the evaluated rows.
    """
    kind = reporting(table)
    reason = kind.undefined.replace("test rows", f"{part} rows")
    why = f"{reason}, so {kind.title} is undefined there"
    if hospitals is None:
        count = int(np.nan_to_num(table["undefined"].to_numpy(float)).max(initial=0))
        left = f"{why}, and they are left out of every figure"
        return f"{count} {'hospital is' if count == 1 else 'hospitals are'} undefined: {left}." if count else ""
    tested = hospitals[hospitals["n_test"] > 0]
    if "trained" in tested:  # models that were not trained are listed with the evidence
        tested = tested[tested["trained"] != "no"]
    undefined = ~np.isfinite(tested[kind.headline].to_numpy(float))
    names = [str(name) for name in tested.loc[undefined, "hospital"].unique()]
    if not names:
        return ""
    named = listed(names, NAMED)
    of = tested["hospital"].nunique()
    if "seed" not in tested or tested["seed"].nunique() == 1:
        why += ", and they are left out of every figure"
        verb, those = ("is", "This is") if len(names) == 1 else ("are", "These are")
        return f"{len(names)} of {counted(of, 'hospital')} with {part} rows {verb} undefined: {why}. {those} {named}."
    never = int((~tested.assign(defined=~undefined).groupby("hospital")["defined"].any()).sum())
    none = f" {never} of them are undefined for all seeds, and in no figure." if never else ""
    return (
        f"{len(names)} of {of} hospitals with {part} rows are undefined for at least one seed ({named}): {why}, and "
        f"they are left out of that seed's figures.{none}"
    )


def worst_served(hospitals: pd.DataFrame | None, part: str = "test") -> dict[str, Any]:
    """Return a table of the worst tenth of hospitals under the last model, at most :data:`NAMED` rows, worst first.

    The table is empty without ``hospitals``. With a single seed, metrics have intervals over patients if ``hospitals``
    has intervals.
    """
    if hospitals is None or hospitals.empty:
        return {}
    means = tables.hospital_means(hospitals)
    model, kind = means["model"].iloc[-1], reporting(means)
    figure, title, model_title = kind.headline, kind.title, MODELS.get(str(model), f"{model} model")
    defined = means[(means["model"] == model) & means[figure].notna() & (means["n_test"] > 0)]
    defined = defined.sort_values(figure, ascending=kind.larger)
    digits = kind.decimals(defined[figure])
    worst = defined.head(NAMED)
    limits = _limits(hospitals, str(model), figure, worst["hospital"])
    few = judged.marks(hospitals[hospitals["hospital"].isin(worst["hospital"])])
    tenth = -(-len(defined) // 10)
    which = f"The {NAMED} hospitals" if tenth > NAMED else "The tenth of hospitals"
    rows = [
        {
            "name": str(name),
            "stays": f"{stays:,.0f}",
            "tested": f"{tested:,.0f}{few.get(str(name), '')}",
            "figure": f"{value:.{digits}f}",
            "interval": "{:.{digits}f} to {:.{digits}f}".format(*limits[name], digits=digits) if name in limits else "",
        }
        for name, stays, tested, value in worst[["hospital", "stays", "n_test", figure]].to_numpy()
    ]
    if len(defined) < FEW_HOSPITALS:
        caption = f"The hospital with the {kind.worst} {title} under the {model_title}, of {len(defined)}."
    else:
        caption = f"{which} with the {kind.worst} {title} under the {model_title}, {kind.worst} first."
    caption += f" With few {part} rows, {title} is uncertain."
    caption += " The worst of many noisy values is partly bad luck." if limits else ""
    return {"caption": caption, "rows": rows[:tenth], "title": title, "intervals": bool(limits)} if rows else {}


def _limits(hospitals: pd.DataFrame, model: str, figure: str, named: pd.Series) -> dict[str, tuple[float, float]]:
    """Return the interval over patients of a metric at each hospital in ``named``; empty with several seeds."""
    low, high = f"{figure}_low", f"{figure}_high"
    if not {low, high} <= set(hospitals) or ("seed" in hospitals and hospitals["seed"].nunique() > 1):
        return {}
    rows = hospitals[hospitals["model"] == model] if "model" in hospitals else hospitals
    rows = rows[rows["hospital"].isin(named) & rows[low].notna() & rows[high].notna()]
    return {str(name): (float(a), float(b)) for name, a, b in rows[["hospital", low, high]].to_numpy()}


def run_lead(
    table: pd.DataFrame,
    models: Sequence[str],
    sizes: Mapping[str, str] | None = None,
    hospitals: pd.DataFrame | None = None,
) -> list[str]:
    """Describe the results of a run, in a paragraph for each of its models.

    ``table`` has one row of metrics per model, in the order of ``models``. ``sizes`` has a sentence on each model's
    dependence on hospital size. Without ``hospitals``, there are no intervals.
    """
    parts, kind, any_limits = [], reporting(table), False
    digits = kind.decimals(table[kind.headline])
    where = f"the {kind.worst} hospital" if tables.few(table) else "the worst tenth of hospitals"
    for model, (_, row) in zip(models, table.iterrows(), strict=True):
        name = MODELS.get(model, f"{model} model")
        mean, std = row[kind.headline], row[f"{kind.headline}_std"]
        if not np.isfinite(mean):
            parts.append(f"{capitalised(name)}: no hospital has a defined {kind.title}.")
            continue
        limits = _of_mean(hospitals, model, kind)
        reached = plus_minus(mean, std, digits)
        if np.isfinite(limits.low):
            any_limits, reached = True, with_interval(mean, limits.low, limits.high, digits)
        sentence = (
            f"{capitalised(name)}: a mean {kind.title} of {reached}, and "
            f"{plus_minus(row['worst_decile'], row['worst_decile_std'], digits)} at {where}."
        )
        parts.append(" ".join(filter(None, (sentence, (sizes or {}).get(model, "")))))
    if any_limits:
        parts.append(
            "Brackets contain 95 % intervals for other patients of these hospitals and these trained models. They do "
            "not include variation between training seeds."
        )
    return parts


def _of_mean(hospitals: pd.DataFrame | None, model: str, kind: TaskKind) -> Limits:
    """Return the interval of a model's mean main metric over hospitals, for a single seed; NaN if there is none."""
    low, high = f"{kind.headline}_low", f"{kind.headline}_high"
    if hospitals is None or not {low, high} <= set(hospitals):
        return Limits(float("nan"), float("nan"))
    rows = hospitals[hospitals["model"] == model]
    within = (0.0, 1.0) if kind.larger else (0.0, float("inf"))
    return mean_interval(rows[kind.headline], rows[low], rows[high], rows["n_test"], within=within)
