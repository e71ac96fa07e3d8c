"""One self-contained HTML page for a comparison or a run: styles, pictures and numbers are all inside the file.

Texts that come from data or configuration (hospital names, strategy names, notes) are escaped by the template engine.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from raysim.equity import worst_decile
from raysim.report import plots, tables
from raysim.report.answer import answer, listed, plus_minus
from raysim.report.plots import signed

NAMED = 20  # hospitals named in a sentence, and rows of the table of the worst served


@dataclass(frozen=True)
class Provenance:
    """What was run on what: printed at the head of the page.

    ``rows`` by part (``{"train": 31000, ...}``), ``seeds`` as run, ``versions`` by package, ``config`` the frozen
    configuration as text, ``command`` the line that reproduces the page, ``notes`` what the data source said.
    """

    data: str
    fingerprint: str
    hospitals: int
    rows: Mapping[str, int]
    seeds: Sequence[int]
    versions: Mapping[str, str]
    config: str
    command: str
    notes: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Picture:
    """A plot as a data URI with what it shows, in a caption and for those who cannot see it."""

    title: str
    uri: str
    caption: str
    alt: str


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
_COLUMNS: tuple[tuple[str, str, bool | None, int, bool], ...] = (
    ("auroc", "Mean AUROC", True, 3, False),
    ("worst_decile", "Worst decile", True, 3, False),
    ("gini", "Gini", False, 4, False),
    ("std", "Deviation over hospitals", False, 4, False),
    ("size_bias", "Size bias", None, 4, True),
    ("size_bias_abs", "Size bias, absolute", False, 4, False),
)


def comparison_page(
    title: str,
    per_seed: pd.DataFrame,
    provenance: Provenance,
    *,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
    baseline: str = "fedavg",
) -> str:
    """The page of a comparison, as HTML text; frames as in :mod:`raysim.report.tables` and :func:`plots.curves`."""
    table = tables.comparison(per_seed)
    names = tables.labels(table)
    against = tables.baseline_of(table, baseline)
    pictures = [
        Picture(
            "Worst-served hospitals against size bias",
            _png(plots.worst_decile_vs_size_bias(table)),
            "Up and to the left is better. Bars are one standard deviation over seeds; the dashed line joins the "
            "strategies that no other dominates on these two figures.",
            _alt(table, names, "worst_decile", "size_bias_abs"),
        ),
        Picture(
            "The frontier",
            _png(plots.frontier_3d(table)),
            "Mean AUROC, worst decile and absolute size bias together; the best corner is at the top, in the back. "
            "Stems stand on the floor of the box. Grey strategies are dominated on all three.",
            _alt(table, names, "auroc", "worst_decile", "size_bias_abs"),
        ),
    ]
    pictures += _size_picture(hospitals) + _curves_picture(rounds)
    return _render(
        "comparison.html.j2",
        title=title,
        provenance=provenance,
        answer=answer(per_seed),
        columns=[heading for _, heading, *_ in _COLUMNS],
        body=_body(table, names),
        several=len(provenance.seeds) > 1,
        baseline=names[_row(table, against)] if against else "",
        differences=_differences(table, names, per_seed, hospitals, baseline),
        undefined=_undefined(hospitals, table),
        pictures=pictures,
    )


def run_page(
    title: str,
    per_model: pd.DataFrame,
    provenance: Provenance,
    *,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
) -> str:
    """The page of one run, as HTML text: ``per_model`` has a row a model served, columns as ``per_seed``."""
    table = tables.comparison(per_model)
    names = [str(model) for model in table["model"]]
    return _render(
        "run.html.j2",
        title=title,
        provenance=provenance,
        lead=_run_lead(table, names),
        columns=[heading for _, heading, *_ in _COLUMNS],
        body=_body(table, names),
        undefined=_undefined(hospitals, table),
        worst=_worst(hospitals),
        pictures=_size_picture(hospitals) + _curves_picture(rounds),
    )


def write(html: str, path: Path | str) -> None:
    """Write a page as UTF-8."""
    Path(path).write_text(html, encoding="utf-8")


def _render(template: str, **values: Any) -> str:
    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def _png(figure: Figure) -> str:
    """A figure as a data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=plots.DPI, facecolor="white")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _body(table: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Rows of the main table: a name and cells of text, the best of each column marked as displayed."""
    columns = []
    for figure, _, larger, digits, with_sign in _COLUMNS:
        means, stds = table[figure].to_numpy(float), table[f"{figure}_std"].to_numpy(float)
        shown = np.round(means, digits)
        best = np.zeros(len(means), dtype=bool)
        if larger is not None and len(means) > 1 and np.isfinite(shown).any():
            best = shown == (np.nanmax(shown) if larger else np.nanmin(shown))
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


def _differences(
    table: pd.DataFrame, names: Sequence[str], per_seed: pd.DataFrame, hospitals: pd.DataFrame | None, baseline: str
) -> list[Row]:
    """Rows of the table of differences: mean AUROC, worst decile and |size bias| minus the baseline's."""
    found = tables.differences(per_seed, hospitals, baseline)
    if found.empty:
        return []
    by_key = found.set_index(["strategy", "model", "figure"])
    rows = []
    for name, strategy, model in zip(names, table["strategy"], table["model"], strict=True):
        if (strategy, model, "auroc") not in by_key.index:
            continue
        cells = []
        for figure, digits in (("auroc", 3), ("worst_decile", 3), ("size_bias_abs", 4)):
            d = by_key.loc[(strategy, model, figure)]
            mean, std, low, high = (float(d[c]) for c in ("mean", "std", "low", "high"))
            cells.append(
                Cell(
                    signed(mean, digits) if np.isfinite(mean) else "undefined",
                    f"{std:.{digits}f}" if np.isfinite(std) else "",
                    interval=f"{signed(low, digits)} to {signed(high, digits)}" if np.isfinite(low) else "",
                )
            )
        rows.append(Row(name, cells))
    return rows


def _undefined(hospitals: pd.DataFrame | None, table: pd.DataFrame) -> str:
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


def _worst(hospitals: pd.DataFrame | None) -> dict[str, Any]:
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


def _run_lead(table: pd.DataFrame, names: Sequence[str]) -> str:
    """What a run reached, a sentence or two for each model served."""
    parts = []
    for name, (_, row) in zip(names, table.iterrows(), strict=True):
        if not np.isfinite(row["auroc"]):
            parts.append(f"The {name} model has no defined AUROC at any hospital.")
            continue
        parts.append(
            f"The {name} model reaches a mean AUROC of {plus_minus(row['auroc'], row['auroc_std'], 3)}, and "
            f"{plus_minus(row['worst_decile'], row['worst_decile_std'], 3)} at the worst tenth of hospitals."
        )
        bias = float(row["size_bias"])
        if np.isfinite(bias) and bias != 0:
            side, times = ("Larger", "twice") if bias > 0 else ("Smaller", "half")
            more = abs(bias) * np.log(2)
            parts.append(f"{side} hospitals do better: {times} the stays goes with {more:.4f} more AUROC.")
    return " ".join(parts)


def _size_picture(hospitals: pd.DataFrame | None) -> list[Picture]:
    if hospitals is None or hospitals.empty:
        return []
    means = tables.hospital_means(hospitals)
    said = []
    groups = list(means.groupby(tables.KEYS, sort=False))
    names = tables.labels(pd.DataFrame([key for key, _ in groups], columns=tables.KEYS))
    for name, (_, group) in zip(names, groups, strict=True):
        values = group.loc[group["n_test"] > 0, "auroc"].dropna().to_numpy()
        if len(values):
            lowest = float(worst_decile(values))
            said.append(
                f"{name}: {len(values)} hospitals from {values.min():.2f} to {values.max():.2f}, worst decile {lowest:.2f}"
            )
    dot = "a hospital's mean over seeds" if "seed" in hospitals and hospitals["seed"].nunique() > 1 else "a hospital"
    return [
        Picture(
            "AUROC by hospital size",
            _png(plots.auroc_by_size(hospitals)),
            f"Each dot is {dot}; triangles are the tenth with the lowest AUROC. A line that rises means that larger "
            "hospitals do better.",
            f"Scatter plots of AUROC against stays. {'; '.join(said) or 'No hospital has a defined AUROC'}.",
        )
    ]


def _curves_picture(rounds: pd.DataFrame | None) -> list[Picture]:
    if rounds is None or "auroc" not in rounds or rounds["auroc"].notna().sum() == 0:
        return []
    known = rounds[rounds["auroc"].notna()]
    last = known[known["round"] == known["round"].max()].groupby("strategy", sort=False)["auroc"].mean()
    said = "; ".join(f"{name} ends at {value:.3f}" for name, value in last.items())
    several = "seed" in rounds and rounds["seed"].nunique() > 1
    return [
        Picture(
            "Accuracy by round",
            _png(plots.curves(rounds)),
            "Mean AUROC over hospitals after each round." + (" Bands: one deviation over seeds." if several else ""),
            f"Line plot of mean AUROC by round. {said}.",
        )
    ]


def _alt(table: pd.DataFrame, names: Sequence[str], *figures: str) -> str:
    """The plotted points as a sentence."""
    words = {"auroc": "mean AUROC", "worst_decile": "worst decile", "size_bias_abs": "absolute size bias"}
    points = [
        f"{name}: "
        + ", ".join(f"{words[f]} {plus_minus(value, float('nan'), 3)}" for f, value in zip(figures, row, strict=True))
        for name, row in zip(names, table[list(figures)].to_numpy(float), strict=True)
    ]
    return "Scatter plot. " + "; ".join(points) + "."


def _row(table: pd.DataFrame, key: tuple[str, str]) -> int:
    return list(zip(table["strategy"], table["model"], strict=True)).index(key)
