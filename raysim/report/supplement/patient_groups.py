"""Equity between groups of patients in a comparison: table, figure, and printed table.

The data frames ``patients`` have the rows of ``patients.csv`` of all runs
(:func:`raysim.engine.measuring.subgroups.table`), with ``strategy`` and ``seed`` as first columns. ``part`` names the
evaluated rows, such as ``test``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.table import Table

from raysim.core.words import capitalised
from raysim.engine.measuring.subgroups import EVERYWHERE
from raysim.metrics.labels import reporting
from raysim.report import svg
from raysim.report.naming import number
from raysim.report.tables import KEYS, labels
from raysim.report.terminal.tables import titled

ROW = 11.0


def attributes(per_seed: pd.DataFrame) -> list[str]:
    """Return the names of the attributes by which patients are grouped, such as sex."""
    return [name.removesuffix("_gap_within") for name in per_seed.columns if name.endswith("_gap_within")]


def gaps(per_seed: pd.DataFrame) -> pd.DataFrame:
    """Return how much the main metric (AUROC or MAE) differs between groups of patients.

    There is one row for each strategy, model and attribute. Patients whose group is unknown are left out.

    - ``gap``: the largest difference between groups over the rows of all hospitals, averaged over seeds.
    - ``within``: the largest difference between groups within a hospital, averaged over hospitals and seeds.
    - ``gap_std``, ``within_std``: the standard deviations over seeds.
    - ``undefined``: how often a group has rows at a hospital, but no defined metric there; the maximum over seeds.
    """
    rows = []
    for key, group in per_seed.groupby(KEYS, sort=False):
        for attribute in attributes(per_seed):
            row: dict[str, object] = {**dict(zip(KEYS, key, strict=True)), "attribute": attribute}
            for name, column in (("gap", f"{attribute}_gap"), ("within", f"{attribute}_gap_within")):
                row |= {name: group[column].mean(), f"{name}_std": group[column].std(ddof=1)}
            rows.append(row | {"undefined": group[f"{attribute}_undefined"].max()})
    return pd.DataFrame(rows)


def printed(per_seed: pd.DataFrame, width: int, part: str = "test") -> Table | None:
    """Return the table of patient groups that ``compare`` prints in ``width`` characters; None without groups."""
    gap_table = gaps(per_seed)
    if gap_table.empty:
        return None
    title = reporting(per_seed).title
    table = titled(
        f"largest difference of {title} between patient groups over all hospitals, which depends on where groups are "
        "treated (in brackets: within hospitals, mostly noise); fairness.csv has the test"
    )
    table.add_column("model used", no_wrap=True)
    chosen = attributes(per_seed)
    separator = " " if width >= 24 + 30 * len(chosen) else "\n"
    for attribute in chosen:
        table.add_column(attribute, justify="right")
    keys, digits = gap_table[KEYS].drop_duplicates(), reporting(per_seed).decimals(gap_table[["gap", "within"]])
    for name, key in zip(labels(keys), keys.itertuples(index=False), strict=True):
        rows = gap_table[(gap_table["strategy"] == key.strategy) & (gap_table["model"] == key.model)].set_index(
            "attribute"
        )
        table.add_row(
            name,
            *(
                separator.join((_with_spread(rows, a, "gap", digits), f"({_with_spread(rows, a, 'within', digits)})"))
                for a in chosen
            ),
        )
    undefined = gap_table.groupby("attribute", sort=False)["undefined"].max().astype(int)
    counts = ", ".join(f"{count} by {attribute}" for attribute, count in undefined.items())
    caption = f"pairs of hospital and group with {part} rows but undefined {title}: {counts}"
    note = unknown(per_seed, part)
    table.caption = escape("\n".join(filter(None, (caption, note))))
    table.caption_justify = "left"
    return table


def unknown(per_seed: pd.DataFrame, part: str = "test") -> str:
    """Return a sentence on patients whose group is unknown, with their metric under the last strategy's last model.

    The sentence is empty if there are no such patients.
    """
    last = per_seed[per_seed["strategy"] == per_seed["strategy"].iloc[-1]]
    last = last[last["model"] == last["model"].iloc[-1]]
    kind, parts = reporting(per_seed), []
    for attribute in attributes(per_seed):
        rows = last[f"{attribute}_unknown_rows"].mean() if f"{attribute}_unknown_rows" in last else 0.0
        if rows > 0:
            value = last[f"{attribute}_unknown"].mean()
            figure = f"{kind.title} {number(value, kind.decimals([value]))}"
            parts.append(f"{attribute} of {rows:,.0f} {part} rows ({figure})")
    if not parts:
        return ""
    name = last["strategy"].iloc[0]
    return f"not known, and left out of differences: {', '.join(parts)}, with {name}"


def plots(
    per_seed: pd.DataFrame,
    patients: pd.DataFrame,
    part: str = "test",
    titles: Mapping[str, str] | None = None,
    chosen: Sequence[str] = (),
) -> svg.Figure:
    """Plot the main metric (AUROC or MAE) of patient groups over all hospitals.

    A strategy is represented by its last model. ``titles`` are display names by label. If any labels are ``chosen``,
    only these strategies are plotted.
    """
    last = dict(zip(per_seed["strategy"], per_seed["model"], strict=True))
    names = {label: (titles or {}).get(label) or label for label in last if label in (chosen or last)}
    everywhere = patients[(patients["hospital"] == EVERYWHERE) & patients["strategy"].isin(names)]
    last_models = everywhere[everywhere["model"] == everywhere["strategy"].map(last)]
    kind = reporting(patients)
    looks = {label: look for (label, _), look in svg.styles(list(last.items())).items() if label in names}
    values = last_models.groupby(["attribute", "group", "strategy"], sort=False)[kind.headline].agg(["mean", "std"])
    reach = values["std"].fillna(0.0)
    x = svg.linear(
        f"{kind.title} over all hospitals",
        np.concatenate([values["mean"] - reach, values["mean"] + reach]),
        within=(-np.inf, 1.0) if kind.larger else (0.0, np.inf),
        count=3,
    )
    charts = [
        _panel(str(attribute), group, x, names, looks, k)
        for k, (attribute, group) in enumerate(last_models.groupby("attribute", sort=False))
    ]
    gap = gaps(per_seed)
    gap = gap[(gap["model"] == gap["strategy"].map(last)) & gap["gap"].notna() & gap["strategy"].isin(names)]
    description = "; ".join(
        f"{names[strategy]} by {attribute} {number(value, kind.decimals(gap['gap']))}"
        for strategy, attribute, value in gap[["strategy", "attribute", "gap"]].to_numpy()
    )
    for chart in charts[:1]:
        chart.description += f" Largest difference between groups: {description or 'undefined'}."
    several = " Lines are one standard deviation over seeds." if patients["seed"].nunique() > 1 else ""
    return svg.figure(
        "patient-groups",
        "Equity between groups of patients",
        charts,
        f"{kind.title} of each group over all hospitals; its {part} rows{_of_seed(patients)} are in brackets.{several} "
        "Groups attend different hospitals, so differences here also depend on where patients are treated. Judge the "
        "model by differences within hospitals (fairness.csv). patients.csv has all models."
        f"{_unknown_sentence(per_seed, part)}",
        svg.legend([(names[label], look) for label, look in looks.items()]),
    )


def _panel(
    attribute: str,
    group: pd.DataFrame,
    x: svg.Axis,
    names: Mapping[str, str],
    looks: Mapping[str, svg.Style],
    panel: int,
) -> svg.Chart:
    kind = reporting(group)
    levels, first = list(dict.fromkeys(group["group"])), group[group["seed"] == group["seed"].iloc[0]]
    rows = first.groupby("group")["n"].first().reindex(levels, fill_value=0)
    strategies = [label for label in names if label in set(group["strategy"])]
    values = group.groupby(["group", "strategy"])[kind.headline].agg(["mean", "std"])
    values = values.reindex(pd.MultiIndex.from_product([levels, strategies]))
    digits = kind.decimals(values["mean"])
    parts = [
        f"{level}: "
        + ", ".join(f"{names[s]} {number(float(values.loc[(level, s), 'mean']), digits)}" for s in strategies)
        for level in levels
    ]
    chart = svg.Chart(
        x,
        svg.names("", [f"{level} ({int(rows[level]):,})" for level in levels]),
        name=f"patient-groups-{panel}",
        title=capitalised(attribute),
        description="; ".join(parts) + ".",
        width=1.35 * svg.PANEL,
        height=len(levels) * (ROW * len(strategies) + 14.0) + 74,
        gridlines="x",
    )
    step = ROW / (ROW * len(strategies) + 14.0)
    for i, level in enumerate(levels):
        if i:
            chart.rule(y=i - 0.5, dashed=True)
        for k, label in enumerate(strategies):
            mean, std = values.loc[(level, label)].to_numpy(float)
            at = [i + step * (k - (len(strategies) - 1) / 2)]
            chart.whiskers([mean - std], [mean + std], at, looks[label], class_="whisker thin")
            chart.dots([mean], at, looks[label])
    return chart


def _unknown_sentence(per_seed: pd.DataFrame, part: str) -> str:
    sentence = unknown(per_seed, part)
    return f" {capitalised(sentence)}." if sentence else ""


def _of_seed(patients: pd.DataFrame) -> str:
    """Return words that name the first seed if the groups' sizes differ between seeds, else an empty text."""
    everywhere = patients[patients["hospital"] == EVERYWHERE]
    counts = everywhere.pivot_table(index="seed", columns=["attribute", "group"], values="n", fill_value=0)
    return f" of seed {patients['seed'].iloc[0]}" if (counts.nunique() > 1).any() else ""


def _with_spread(rows: pd.DataFrame, attribute: str, name: str, digits: int) -> str:
    value, spread = rows.loc[attribute, [name, f"{name}_std"]].to_numpy(float)
    if not np.isfinite(value):
        return "undefined"
    return f"{value:.{digits}f}" + (f" ±{spread:.{digits}f}" if np.isfinite(spread) else "")
