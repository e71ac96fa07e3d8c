"""Calibration and decisions on a page: from the clinical tables of run folders, for all rows or for one hospital.

Of several seeds figures are means, with intervals over patients and seeds (:mod:`raysim.statistics.over_seeds`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from raysim.core.csv_files import cell, text_of
from raysim.engine.measuring.subgroups import EVERYWHERE
from raysim.report import svg
from raysim.report.naming import MODELS, interval, number
from raysim.report.svg import PANEL, PLAIN, Chart, Figure, Style, element, joined
from raysim.statistics.over_seeds import OverSeeds, over_seeds
from raysim.storage.clinical_tables import CALIBRATION, FIGURES, NET_BENEFIT

TEXTS = ("hospital", "model", "figure", "undefined")
"""Columns of these tables that hold no numbers."""

OVERALL = (
    ("calibration_slope", "calibration slope (1 is right)", 2),
    ("calibration_in_the_large", "calibration in the large (0 is right)", 2),
    ("observed_over_expected", "observed over expected events (1 is right)", 2),
    ("calibration_error", "calibration error (0 is right)", 3),
    ("sensitivity_at_specificity", "sensitivity at specificity {at:g}", 3),
    ("specificity_at_sensitivity", "specificity at sensitivity {at:g}", 3),
)
"""What the first table shows, its heading and decimals; the second shows :data:`AT_THRESHOLDS` for each threshold."""

Columns = list[tuple[str, float | None, str, int]]
"""Figure, threshold, heading and decimals."""

AT_THRESHOLDS = (("ppv", "PPV from {at:.0%}", 3), ("net_benefit", "net benefit at {at:.0%}", 4))


@dataclass(frozen=True, eq=False)
class Served:
    """What a model serves to all hospitals together, or to one: the rows of the clinical tables that are about it.

    Of several ``seeds`` they are means with their intervals; ``rows`` says of how many rows and events.
    """

    name: str
    style: Style
    seeds: int
    rows: str
    figures: pd.DataFrame
    calibration: pd.DataFrame
    net_benefit: pd.DataFrame

    @cached_property
    def by_figure(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of ``figures`` by their figure."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.figures.to_dict("records"):
            rows.setdefault(str(row["figure"]), []).append({str(name): value for name, value in row.items()})
        return rows


def of_runs(runs: Sequence[tuple[str, str, Path]], hospital: str = EVERYWHERE) -> list[Served]:
    """The headline model of each strategy: label, what people call it, and folder of each of its runs, one a seed.

    Runs that left no clinical tables are passed over.
    """
    folders: dict[tuple[str, str], list[Path]] = {}
    for label, name, folder in runs:
        if (folder / FIGURES).is_file():
            folders.setdefault((label, name), []).append(folder)
    last = {label: _models(seed_folders[0])[-1] for (label, _), seed_folders in folders.items()}
    styles = svg.styles(list(last.items()), among=[label for label, *_ in runs])
    return [
        _served(name, len(seeds), _about(hospital, seeds, {last[at]}), last[at], styles[at, last[at]])
        for (at, name), seeds in folders.items()
    ]


def of_run(label: str, folder: Path, hospital: str = EVERYWHERE) -> list[Served]:
    """Every model that a run serves; nothing where it left no clinical tables."""
    if not (folder / FIGURES).is_file():
        return []
    models = _models(folder)
    styles = svg.styles([(label, model) for model in models])
    tables = _about(hospital, [folder], set(models))
    return [_served(MODELS.get(model, model), 1, tables, model, styles[label, model]) for model in models]


def drawn(served: Sequence[Served], part: str = "test") -> list[Figure]:
    """A table with intervals, the calibration plots, and the decision curve, as far as there are rows for them.

    ``part`` of the rows was evaluated.
    """
    shown = [each for each in served if len(each.figures)]
    if not shown:
        return []
    seeds = shown[0].seeds
    of = f"{part} rows" if seeds == 1 else f"{part} rows, means over {seeds} seeds"
    return [_table(shown, part), _calibration(shown, of), _decision_curve(shown, of)]


def read_rows(path: Path, **wanted: Set[str]) -> pd.DataFrame:
    """The rows of a clinical table whose columns hold one of the ``wanted`` texts: few of many, as every hospital has
    rows for every figure."""
    text = path.read_bytes().decode()
    if '"' in text:
        lines: Iterable[str] = io.StringIO(text, newline="")
    else:  # no cell spans lines or has a comma in it
        lines = _possible_lines(text, wanted)
    names, *rows = filter(None, csv.reader(lines))
    for name, texts in wanted.items():
        place, cells = names.index(name), {cell(each) for each in texts}
        rows = [row for row in rows if row[place] in cells]
    if not rows:
        return pd.DataFrame(columns=names)
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return pd.DataFrame({name: _column(name, cells) for name, cells in columns})


def _possible_lines(text: str, wanted: Mapping[str, Set[str]]) -> list[str]:
    """The first line of a table without quotes, and those that hold a wanted text in each of the columns, or in
    another: they are looked at before they are taken apart, which takes longer."""
    head, line_end, rest = text.partition("\n")
    among = dict(wanted)
    lines = _beginning(line_end + rest, among.pop("hospital")) if "hospital" in among else rest.split("\n")
    for texts in among.values():
        cells = "|".join(re.escape(cell(each)) for each in texts)
        holds = re.compile(f",(?:{cells})(?:,|$)").search
        lines = [line for line in lines if holds(line)]
    return [head, *lines]


def _beginning(text: str, firsts: Set[str]) -> list[str]:
    """The lines of ``text``, each behind a line end, whose first cell is one of ``firsts``; in their order."""
    lines: dict[int, str] = {}
    for first in firsts:
        searched = f"\n{cell(first)},"
        at = text.find(searched)
        while at >= 0:
            end = text.find("\n", at + 1)
            end = len(text) if end < 0 else end
            lines[at] = text[at + 1 : end]
            at = text.find(searched, end)
    return [lines[at] for at in sorted(lines)]


def _column(name: str, cells: Sequence[str]) -> list[str] | NDArray[Any]:
    """A column as it was before it was written."""
    if name in TEXTS:
        texts = {each: text_of(each) for each in set(cells)}
        return [texts[each] for each in cells]
    try:
        return np.array([int(each) for each in cells], np.int64)
    except ValueError:
        return np.array([float(each or "nan") for each in cells])


def possible(figure: str) -> tuple[float, float]:
    """What a clinical figure can be at all.

    >>> possible("ppv"), possible("observed_over_expected"), possible("calibration_slope")
    ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    if figure.startswith(("sensitivity", "specificity", "ppv", "npv", "calibration_error", "observed")):
        return 0.0, np.inf if figure == "observed_over_expected" else 1.0
    return -np.inf, np.inf


def _models(folder: Path) -> list[str]:
    """The models that a run serves, in its order."""
    together = read_rows(folder / FIGURES, hospital={EVERYWHERE})
    return list(dict.fromkeys(together["model"]))


def _about(hospital: str, folders: Sequence[Path], models: Set[str]) -> list[pd.DataFrame]:
    """The rows of figures, calibration and net benefit that are about a hospital and some models, one run's after the
    other's."""
    return [
        pd.concat(
            [read_rows(folder / file, hospital={hospital}, model=models) for folder in folders], ignore_index=True
        )
        for file in (FIGURES, CALIBRATION, NET_BENEFIT)
    ]


def _served(name: str, seeds: int, tables: Sequence[pd.DataFrame], model: str, style: Style) -> Served:
    """``tables`` as :func:`_about` gives them, of this model and maybe others."""
    figures, calibration, benefit = (table[table["model"] == model].reset_index(drop=True) for table in tables)
    if figures.empty:
        return Served(name, style, seeds, "", figures, calibration, benefit)
    return Served(
        name,
        style,
        seeds,
        " with ".join(_range(figures[column], word) for column, word in (("n", "rows"), ("events", "events"))),
        _means(figures, ["figure", "at"]),
        _means(calibration, ["from", "to"]).sort_values("from"),
        _means(benefit, ["threshold"]),
    )


def _range(counts: pd.Series, word: str) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,} {word}" if low == high else f"{low:,} to {high:,} {word}"


def over_runs(stacked: pd.DataFrame, keys: Sequence[str], value: str = "value") -> tuple[pd.DataFrame, OverSeeds]:
    """Of clinical rows of several runs, one a seed: the first row for each of ``keys``, in order, and what all say.

    ``value`` is the column with the figure, beside ``low`` and ``high``.
    """
    groups = stacked.groupby(list(keys), sort=False, dropna=False)
    group, seed = groups.ngroup().to_numpy(), groups.cumcount().to_numpy()
    first = stacked[seed == 0].reset_index(drop=True)
    figures = np.full((3, seed.max(initial=0) + 1, len(first)), np.nan)
    figures[:, seed, group] = stacked[[value, "low", "high"]].to_numpy(float).T
    bounds = [possible(str(name)) for name in (first["figure"] if "figure" in first else [value] * len(first))]
    lowest, highest = np.array(bounds).reshape(-1, 2).T
    return first, over_seeds(*figures, within=(lowest, highest))


def _means(stacked: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Of the rows of several seeds one for each of ``keys``: means, with the interval over patients and seeds."""
    if not stacked.duplicated(keys).any():
        return stacked
    value = next(name for name in ("value", "observed") if name in stacked)
    row, estimates = over_runs(stacked, keys, value)
    groups = stacked.groupby(keys, sort=False, dropna=False)
    several = groups.size().to_numpy() > 1
    numbers = [str(name) for name in stacked.select_dtypes("number") if name not in keys]
    row[numbers] = np.where(several[:, None], groups[numbers].mean().to_numpy(float), row[numbers].to_numpy(float))
    row[value] = np.where(several, estimates.value, row[value])
    limited = several & ~np.isnan(estimates.low)  # what only has a limit above, as what chance explains, keeps its mean
    for name, limit in (("low", estimates.low), ("high", estimates.high)):
        row[name] = np.where(limited, limit, row[name])
    return row


def _table(served: Sequence[Served], part: str) -> Figure:
    thresholds = served[0].figures.loc[served[0].figures["figure"] == "ppv", "at"].tolist()
    overall: Columns = [(name, None, said, digits) for name, said, digits in OVERALL]
    decided: Columns = [(name, at, said, digits) for at in thresholds for name, said, digits in AT_THRESHOLDS]
    rows = served[0].rows.replace(" rows", f" {part} rows")
    of = f"{rows}. Below each figure its 95 % interval over patients."
    if (seeds := served[0].seeds) > 1:
        of = f"Means over {seeds} training seeds, each on {rows}. Below each figure its 95 % interval, seeds included."
    regions = [
        _region(served, "Calibration and operating points", of, overall),
        _region(served, "Acting from a threshold on", "Acting from a threshold on; rows as above.", decided),
    ]
    caption = (
        "A slope below 1: predictions are too extreme. In the large, above 0: risks are predicted too low. Few "
        "rows alone make the calibration error larger: below its interval stands what perfectly calibrated predictions "
        "reach in one of 20 federations. The thresholds for a specificity or sensitivity are chosen on validation "
        "rows; in a run without such rows they are chosen on these, which flatters. A dash is undefined. "
        "Every figure, for every hospital, is in clinical.csv of the run."
    )
    return Figure("clinical-table", "Calibration and decisions", joined(regions), caption)


def _region(served: Sequence[Served], name: str, caption: str, columns: Columns) -> Markup:
    """A table of a row a model, which scrolls by itself where it is too wide."""
    headings, body = [], []
    for figure, at, said, _ in columns:
        row = _row(served[0], figure, at)
        headings.append(said.format(at=float(row["at"])) if row is not None else said)
    for each in served:
        cells = [element("th", each.name, scope="row")]
        cells += [_cell(each, figure, at, digits) for figure, at, _, digits in columns]
        body.append(element("tr", *cells))
    head = element("tr", element("th", "Strategy", scope="col"), *(element("th", h, scope="col") for h in headings))
    table = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        style=f"--columns: {len(headings)}",
    )
    return element("div", table, class_="wide plain", tabindex="0", role="region", aria_label=name)


def _cell(each: Served, name: str, at: float | None, digits: int) -> Markup:
    row = _row(each, name, at)
    if row is None or pd.isna(row["value"]):
        why = "" if row is None or pd.isna(row["undefined"]) else str(row["undefined"])
        return element("td", "–", element("span", why, class_="interval"))
    below = [interval(float(row["low"]), float(row["high"]), digits)] if np.isfinite(row["low"]) else []
    floor = _row(each, "calibration_error_floor", None) if name == "calibration_error" else None
    if floor is not None:
        below.append(f"by chance to {floor['high']:.{digits}f}")
    spans = [element("span", each, class_="interval") for each in below or [""]]
    return element("td", number(float(row["value"]), digits), *spans)


def _row(each: Served, name: str, at: float | None) -> dict[str, Any] | None:
    """The first row of a figure, at a threshold or whichever (None)."""
    return next((row for row in each.by_figure.get(name, ()) if at is None or row["at"] == at), None)


def _calibration(served: Sequence[Served], of: str) -> Figure:
    """A panel a model: the share of events against what was predicted, by bins."""
    most = max(float(np.nanmax(each.calibration[["predicted", "observed"]].to_numpy())) for each in served)
    charts = []
    for i, each in enumerate(served):
        x = svg.share("predicted risk", [0.0, most], margin=0.04)
        y = svg.share("share with the event", [0.0, most], margin=0.04)
        said = "; ".join(
            f"predicted {p:.0%}, observed {o:.0%} of {n}"
            for p, o, n in each.calibration[["predicted", "observed", "n"]].itertuples(index=False)
        )
        chart = Chart(x, y, name=f"calibration-{i}", title=each.name, said=said, width=PANEL * 1.2, height=PANEL * 1.2)
        chart.line([0.0, most], [0.0, most], class_="rule dashed")
        bins = each.calibration
        chart.whiskers(bins["low"], bins["high"], bins["predicted"], each.style, upright=True)
        chart.dots(bins["predicted"], bins["observed"], each.style)
        charts.append(chart)
    caption = (
        f"Each dot is the rows of a bin of predicted risk, with the 95 % interval of its share of events ({of}, all "
        "together). On the dashed line predictions are right; dots below it: risks are predicted too high."
    )
    return svg.figure("calibration", "Are the predicted risks right?", charts, caption)


def _decision_curve(served: Sequence[Served], of: str) -> Figure:
    """Net benefit by threshold: a line a model, acting on everyone, and on no one."""
    curves = [each.net_benefit for each in served]
    everyone = curves[0]["of_all"].to_numpy(float)
    thresholds = curves[0]["threshold"].to_numpy(float)
    highest = max(float(np.nanmax(curve["value"])) for curve in curves)
    top = max(highest, float(np.nanmax(everyone)), 0.01)
    useful = np.max([curve["value"].to_numpy(float) for curve in curves], axis=0) > 0
    end = min(float(thresholds[useful].max()) + 0.05, 1.0) if useful.any() else 1.0
    y = svg.linear("net benefit per patient", [-0.15 * top, top], include=(0.0,))
    x = svg.share("threshold: the risk from which one acts", [0.0, end])
    said = f"Net benefit by threshold: the best model reaches {highest:.3f}."
    chart = Chart(x, y, name="decision-curve", said=said, height=320)
    shown = (everyone >= y.low) & (thresholds <= end)
    chart.line(thresholds[shown], everyone[shown], PLAIN, class_="rule dashed")
    chart.rule(y=0.0)
    for each in served:
        value = each.net_benefit["value"].to_numpy(float)
        inside = (value >= y.low) & (thresholds <= end)
        chart.marked_line(thresholds[inside], value[inside], each.style)
    entries = [(each.name, each.style) for each in served]
    caption = (
        f"Per patient, the events that are acted on less false alarms, weighted by the odds of the threshold ({of}). "
        "The dashed line acts on everyone, the level one on no one. A model is worth using at a threshold where it is "
        "above both; one that is not calibrated may be below them. Intervals are in net_benefit.csv of the run."
    )
    return svg.figure("decision-curve", "Is acting on it worth it?", [chart], caption, svg.legend(entries, lines=True))
