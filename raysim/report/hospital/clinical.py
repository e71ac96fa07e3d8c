"""Calibration and decisions on a page, drawn: for all rows or for one hospital."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from raysim.report import svg
from raysim.report.hospital.clinical_rows import ClinicalRows
from raysim.report.naming import interval, number
from raysim.report.svg import PANEL, PLAIN, Chart, Figure, element, joined

OVERALL = (
    ("calibration_slope", "calibration slope (1 is right)", 2),
    ("calibration_in_the_large", "calibration in the large (0 is right)", 2),
    ("observed_over_expected", "observed over expected events (1 is right)", 2),
    ("calibration_error", "calibration error (0 is right)", 3),
    ("sensitivity_at_specificity", "sensitivity at specificity {at:g}", 3),
    ("specificity_at_sensitivity", "specificity at sensitivity {at:g}", 3),
)
"""Figures of the first table with heading and decimals; the second has :data:`AT_THRESHOLDS` for each threshold."""

Columns = list[tuple[str, float | None, str, int]]
"""Figure, threshold, heading and decimals."""

AT_THRESHOLDS = (("ppv", "PPV from {at:.0%}", 3), ("net_benefit", "net benefit at {at:.0%}", 4))


def drawn(served: Sequence[ClinicalRows], part: str = "test") -> list[Figure]:
    """A table with intervals, the calibration plots, and the decision curve, as far as there are rows for them.

    ``part`` of the rows was evaluated.
    """
    shown = [each for each in served if len(each.figures)]
    if not shown:
        return []
    seeds = shown[0].seeds
    of = f"{part} rows" if seeds == 1 else f"{part} rows, means over {seeds} seeds"
    return [_table(shown, part), _calibration(shown, of), _decision_curve(shown, of)]


def _table(served: Sequence[ClinicalRows], part: str) -> Figure:
    thresholds = served[0].figures.loc[served[0].figures["figure"] == "ppv", "at"].tolist()
    overall: Columns = [(name, None, heading, digits) for name, heading, digits in OVERALL]
    decided: Columns = [(name, at, heading, digits) for at in thresholds for name, heading, digits in AT_THRESHOLDS]
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


def _region(served: Sequence[ClinicalRows], name: str, caption: str, columns: Columns) -> Markup:
    """A table with one row per model, which scrolls by itself where it is too wide."""
    headings, body = [], []
    for figure, at, heading, _ in columns:
        row = _row(served[0], figure, at)
        headings.append(heading.format(at=float(row["at"])) if row is not None else heading)
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


def _cell(each: ClinicalRows, name: str, at: float | None, digits: int) -> Markup:
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


def _row(each: ClinicalRows, name: str, at: float | None) -> dict[str, Any] | None:
    """The first row of a figure, at a threshold or at any (None)."""
    return next((row for row in each.by_figure.get(name, ()) if at is None or row["at"] == at), None)


def _calibration(served: Sequence[ClinicalRows], of: str) -> Figure:
    """A panel a model: the share of events against what was predicted, by bins."""
    most = max(float(np.nanmax(each.calibration[["predicted", "observed"]].to_numpy())) for each in served)
    charts = []
    for i, each in enumerate(served):
        x = svg.share("predicted risk", [0.0, most], margin=0.04)
        y = svg.share("share with the event", [0.0, most], margin=0.04)
        description = "; ".join(
            f"predicted {p:.0%}, observed {o:.0%} of {n}"
            for p, o, n in each.calibration[["predicted", "observed", "n"]].itertuples(index=False)
        )
        chart = Chart(
            x,
            y,
            name=f"calibration-{i}",
            title=each.name,
            description=description,
            width=PANEL * 1.2,
            height=PANEL * 1.2,
        )
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


def _decision_curve(served: Sequence[ClinicalRows], of: str) -> Figure:
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
    description = f"Net benefit by threshold: the best model reaches {highest:.3f}."
    chart = Chart(x, y, name="decision-curve", description=description, height=320)
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
