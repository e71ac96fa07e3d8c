"""Equity between patients in a comparison: its table, its picture, and what is printed.

Frames are stacked ``patients.csv`` of runs (:func:`raysim.engine.subgroups.table`) with ``strategy`` and ``seed`` in
front; ``part`` says which rows were evaluated.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from raysim.engine.subgroups import EVERYWHERE
from raysim.metrics.labels import reporting
from raysim.report.drawn import Drawn
from raysim.report.plots import INK, MUTED, PALETTE
from raysim.report.tables import KEYS, labels
from raysim.report.terminal import titled

MARKS = "osD^vPX*"
"""A shape for each strategy, so that colour is never the only carrier of a meaning."""


def attributes(per_seed: pd.DataFrame) -> list[str]:
    """The attributes by which patients were grouped, from the columns of
    :func:`raysim.experiment.comparison.per_seed`."""
    return [name.removesuffix("_gap_within") for name in per_seed.columns if name.endswith("_gap_within")]


def gaps(per_seed: pd.DataFrame) -> pd.DataFrame:
    """A row a strategy, model served and attribute: ``gap`` and ``within`` with ``_std`` over seeds, ``undefined``.

    ``gap`` is between the known groups over all hospitals, ``within`` the mean over hospitals of that between one's
    own known groups; ``undefined`` the largest number, over seeds, of a hospital's groups without the headline figure.
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
    """What ``compare`` prints of patient groups in ``width`` characters; None where patients were not grouped."""
    found = gaps(per_seed)
    if found.empty:
        return None
    title = reporting(per_seed).title
    table = titled(
        f"patient groups: largest difference of {title} between groups, over all hospitals (within a hospital)"
    )
    table.add_column("model served", no_wrap=True)
    chosen = attributes(per_seed)
    beside = " " if width >= 24 + 30 * len(chosen) else "\n"
    for attribute in chosen:
        table.add_column(attribute, justify="right")
    keys = found[KEYS].drop_duplicates()
    for name, key in zip(labels(keys), keys.itertuples(index=False), strict=True):
        own = found[(found["strategy"] == key.strategy) & (found["model"] == key.model)].set_index("attribute")
        table.add_row(name, *(f"{_shown(own, a, 'gap')}{beside}({_shown(own, a, 'within')})" for a in chosen))
    undefined = found.groupby("attribute", sort=False)["undefined"].max().astype(int)
    counts = ", ".join(f"{count} by {attribute}" for attribute, count in undefined.items())
    caption = f"groups with {part} rows whose {title} at their hospital is undefined: {counts}"
    beside = unknown(per_seed, part)
    table.caption = escape("\n".join(filter(None, (caption, beside))))
    table.caption_justify = "left"
    return table


def unknown(per_seed: pd.DataFrame, part: str = "test") -> str:
    """A sentence on patients of whom an attribute is not known, under the model listed last; empty without any."""
    last = per_seed[per_seed["strategy"] == per_seed["strategy"].iloc[-1]]
    last = last[last["model"] == last["model"].iloc[-1]]
    kind, said = reporting(per_seed), []
    for attribute in attributes(per_seed):
        rows = last[f"{attribute}_unknown_rows"].mean() if f"{attribute}_unknown_rows" in last else 0.0
        if rows > 0:
            value = last[f"{attribute}_unknown"].mean()
            figure = f"{kind.title} {value:.3f}" if np.isfinite(value) else f"{kind.title} undefined"
            said.append(f"{attribute} of {rows:,.0f} {part} rows ({figure})")
    if not said:
        return ""
    name = last["strategy"].iloc[0]
    return f"not known, and in no difference: {', '.join(said)}, under {name}"


def drawn(per_seed: pd.DataFrame, patients: pd.DataFrame, part: str = "test") -> Drawn:
    """The picture with its words."""
    found = gaps(per_seed)
    last = found.groupby("strategy", sort=False)["model"].transform("last")
    shown = found[(found["model"] == last) & found["gap"].notna()]
    said = "; ".join(
        f"{strategy} by {attribute} {gap:.3f}"
        for strategy, attribute, gap in shown[["strategy", "attribute", "gap"]].to_numpy()
    )
    return Drawn(
        "patient_groups",
        "Equity between patients",
        picture(patients, part),
        "Each group's patients of all hospitals together, under the model that serves them; below each name its "
        f"{part} rows{_of_seed(patients)}. Groups within hospitals are in patients.csv."
        f"{_beside(per_seed, part)}",
        f"Largest difference between groups: {said or 'undefined'}.",
    )


def _beside(per_seed: pd.DataFrame, part: str) -> str:
    found = unknown(per_seed, part)
    return f" {found[0].upper()}{found[1:]}." if found else ""


def picture(patients: pd.DataFrame, part: str = "test") -> Figure:
    """The headline figure of each patient group over all hospitals, a panel an attribute, a mark a strategy.

    Each strategy shows the last of its models, its headline one; bars are one standard deviation over seeds.
    """
    figure_name, everywhere = reporting(patients).headline, patients[patients["hospital"] == EVERYWHERE]
    last = everywhere.groupby("strategy", sort=False)["model"].last()
    shown = everywhere[everywhere["model"] == everywhere["strategy"].map(last)]
    panels = list(shown.groupby("attribute", sort=False))
    widths = [max(2, group["group"].nunique()) for _, group in panels]
    strategies = list(dict.fromkeys(shown["strategy"]))
    many = len(strategies) > len(MARKS)  # then a panel needs the whole width, and the legend the height of all
    if many:
        size = 9.6, max(2.4 * len(panels) + 0.6, 0.2 * len(strategies) + 0.8)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(panels), 1, sharey=True, squeeze=False)[:, 0]
    else:
        figure = Figure(figsize=(max(6.0, 0.95 * sum(widths) + 2.4), 4.2), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False, gridspec_kw={"width_ratios": widths})[0]
    for ax, (attribute, group) in zip(axes, panels, strict=True):
        levels = list(dict.fromkeys(group["group"]))
        first = group[group["seed"] == patients["seed"].iloc[0]]
        rows = first.groupby("group")["n"].first().reindex(levels, fill_value=0)
        for k, strategy in enumerate(strategies):
            own = group[group["strategy"] == strategy].groupby("group", sort=False)[figure_name]
            mean, std = own.mean().reindex(levels).to_numpy(float), own.std(ddof=1).reindex(levels).to_numpy(float)
            at = np.arange(len(levels)) + (0.85 if many else 0.6) * ((k + 0.5) / len(strategies) - 0.5)
            marker = MARKS[(k + k // len(PALETTE)) % len(MARKS)]  # a colour comes back with another shape
            style = {"color": PALETTE[k % len(PALETTE)], "marker": marker, "ms": 5, "lw": 1.2}
            ax.errorbar(at, mean, np.where(np.isfinite(std), std, 0.0), ls="", label=strategy, capsize=2, **style)
        ticks = [f"{name}\n{int(rows[name]):,}" for name in levels]
        ax.set_xticks(range(len(levels)), ticks, fontsize=8, color=INK, parse_math=False)
        if len(levels) > 3 and not many:
            ax.tick_params(axis="x", rotation=30)
        ax.set_title(str(attribute), fontsize=10, color=INK, loc="left", parse_math=False)
        ax.set_xlim(-0.5, len(levels) - 0.5)
        ax.grid(axis="y", color="#e6e6e6", lw=0.8)
        ax.spines[["top", "right"]].set_visible(False)
    axes[len(axes) // 2 if many else 0].set_ylabel(
        f"{reporting(patients).title} over all hospitals", fontsize=10, color=INK
    )
    figure.supxlabel(f"patient group, and its {part} rows{_of_seed(patients)}", fontsize=9, color=MUTED)
    handles, names = axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, names, loc="outside right upper", fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _of_seed(patients: pd.DataFrame) -> str:
    """Whose rows are counted, where groups have other numbers of rows under other seeds."""
    everywhere = patients[patients["hospital"] == EVERYWHERE]
    counts = everywhere.pivot_table(index="seed", columns=["attribute", "group"], values="n", fill_value=0)
    return f" of seed {patients['seed'].iloc[0]}" if (counts.nunique() > 1).any() else ""


def _shown(own: pd.DataFrame, attribute: str, name: str) -> str:
    value, spread = own.loc[attribute, [name, f"{name}_std"]].to_numpy(float)
    if not np.isfinite(value):
        return "undefined"
    return f"{value:.3f}" + (f" ±{spread:.3f}" if np.isfinite(spread) else "")
