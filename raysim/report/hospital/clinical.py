"""Plots and tables of calibration and decisions, for all rows or for one hospital."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from raysim.core.words import listed
from raysim.report import svg
from raysim.report.hospital.clinical_rows import ClinicalRows
from raysim.report.naming import interval, number, short
from raysim.report.svg import ENDS, PANEL, PLAIN, Chart, Figure, element, joined
from raysim.report.terms import explained

OVERALL = (
    ("calibration_slope", "calibration slope (1 is right)", 2),
    ("calibration_in_the_large", "calibration in the large (0 is right)", 2),
    ("observed_over_expected", "observed over expected events (1 is right)", 2),
    ("calibration_error", "calibration error (0 is right)", 3),
    ("sensitivity_at_specificity", "sensitivity at specificity {at:g}", 3),
    ("specificity_at_sensitivity", "specificity at sensitivity {at:g}", 3),
)
"""The columns without decision thresholds in the table of clinical metrics: metric, heading and decimals."""

LEAST = 5
"""Values based on fewer rows than this are removed from pages for sharing."""

ROUNDING = 1e-9
"""Net benefits that differ by less than this are treated as equal."""

Columns = list[tuple[str, float | None, str, int]]
"""For each column of a table, its metric, decision threshold (None: none), heading and decimals."""

AT_THRESHOLDS = (
    ("sensitivity", "sensitivity from {at:.0%}", 3),
    ("alerts", "alerts per 100 patients from {at:.0%}", 1),
    ("ppv", "PPV from {at:.0%}", 3),
    ("net_benefit", "net benefit at {at:.0%}", 4),
)


def plots(served: Sequence[ClinicalRows], part: str = "test", first: Sequence[str] = ()) -> list[Figure]:
    """Return the decision curve, the calibration plots, and a table of clinical metrics with intervals.

    The result is empty without clinical metrics. ``part`` names the evaluated rows, such as test. If ``first`` has
    labels of methods, the first figures show only these methods; figures of all methods follow, collapsed.
    """
    if not served:
        return []
    seeds = served[0].seeds
    of = f"{part} rows" if seeds == 1 else f"{part} rows, means over {seeds} seeds"
    chosen = [each for label in first for each in served if each.label == label] or served
    figures = [_decision_curve(chosen, of), _calibration(chosen, of), _table(chosen, part)]
    if len(chosen) == len(served):
        return figures
    every = [
        _decision_curve(served, of, "-each"),
        _calibration(served, of, "-each"),
        _table(served, part, "-each"),
    ]
    return [*figures, *(replace(figure, more=True) for figure in every)]


def shared(served: Sequence[ClinicalRows], part: str = "test", first: Sequence[str] = ()) -> list[Figure]:
    """Return the figures of :func:`plots` without metrics, bins and curves based on fewer than :data:`LEAST` rows.

    If ``first`` has labels of methods, only these methods are shown.
    """
    remaining = [each.without_few(LEAST) for each in served]
    chosen = [each for each in remaining if each is not None and (each.label in first or not first)]
    if not chosen:
        return []
    rows = min(len(each.net_benefit) for each in chosen)
    return plots([replace(each, net_benefit=each.net_benefit[:rows]) for each in chosen], part)


def _table(served: Sequence[ClinicalRows], part: str, suffix: str = "") -> Figure:
    thresholds = served[0].figures.loc[served[0].figures["figure"] == "ppv", "at"].tolist()
    overall: Columns = [(name, None, head, digits) for name, head, digits in OVERALL if name in served[0].by_figure]
    decided: Columns = [(name, at, heading, digits) for at in thresholds for name, heading, digits in AT_THRESHOLDS]
    rows = served[0].rows.replace(" rows", f" {part} rows")
    of = f"{rows}. Below each figure is its 95 % interval over patients."
    if (seeds := served[0].seeds) > 1:
        of = f"Means over {seeds} training seeds, each on {rows}. Below each is its 95 % interval (patients and seeds)."
    every = ": all methods" if suffix else ""
    regions = [
        _region(served, f"Calibration and operating points{every}", of, overall),
        _region(served, f"Acting at a threshold{every}", _acting(served[0], thresholds), decided),
    ]
    caption = (
        "Slope below 1: predictions are too extreme. Calibration in the large above 0: risks are predicted too low. "
        "Few "
        'rows increase the calibration error: "by chance to" is what perfectly calibrated predictions exceed in one of '
        "20 federations. Thresholds for a specificity or sensitivity are chosen on validation rows; without these they "
        "are chosen on the rows judged here, which is optimistic. A dash means undefined. clinical.csv of the run has "
        "the figures of every hospital."
    )
    return Figure(f"clinical-table{suffix}", "Calibration and decisions", joined(regions), caption)


def _acting(model: ClinicalRows, thresholds: Sequence[float]) -> str:
    """Return a sentence on how many alerts a model gives, and how many are false."""
    parts = []
    for at in thresholds:
        alerts, row = 100 * model.alerts(at), model.row("ppv", at)
        if row is not None and np.isfinite(alerts * row["value"]):
            parts.append(f"{number(alerts, 1)} from {at:.0%} ({number(alerts * (1 - row['value']), 1)} false)")
    sentence = f" Alerts per 100 patients with {model.name}: {'; '.join(parts)}." if parts else ""
    return f"Acting on risks from a threshold on, for the same rows.{sentence}"


def _region(served: Sequence[ClinicalRows], name: str, caption: str, columns: Columns) -> Markup:
    headings, body = [], []
    for figure, at, heading, _ in columns:
        row = served[0].row(figure, at)
        chosen = at if row is None else float(row["at"])
        headings.append(heading.format(at=chosen))
    for each in served:
        cells = [element("th", each.name, scope="row")]
        cells += [_cell(each, figure, at, digits) for figure, at, _, digits in columns]
        body.append(element("tr", *cells))
    head = element(
        "tr", element("th", "Strategy", scope="col"), *(element("th", explained(h), scope="col") for h in headings)
    )
    table = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        style=f"--columns: {len(headings)}",
    )
    return element("div", table, class_="wide plain", tabindex="0", role="region", aria_label=name)


def _cell(each: ClinicalRows, name: str, at: float | None, digits: int) -> Markup:
    if name == "alerts":
        share = each.alerts(at)
        return element("td", number(100 * share, digits) if np.isfinite(share) else "–")
    row = each.row(name, at)
    if row is None or pd.isna(row["value"]):
        why = "" if row is None or pd.isna(row["undefined"]) else str(row["undefined"])
        return element("td", "–", element("span", why, class_="interval"))
    below = [interval(float(row["low"]), float(row["high"]), digits)] if np.isfinite(row["low"]) else []
    floor = each.row("calibration_error_floor") if name == "calibration_error" else None
    if floor is not None:
        below.append(f"by chance to {floor['high']:.{digits}f}")
    spans = [element("span", each, class_="interval") for each in below or [""]]
    return element("td", number(float(row["value"]), digits), *spans)


def _calibration(served: Sequence[ClinicalRows], of: str, suffix: str = "") -> Figure:
    most = max(float(np.nanmax(each.calibration[["predicted", "observed"]].to_numpy())) for each in served)
    charts = []
    for i, each in enumerate(served):
        x = svg.share("predicted risk", [0.0, most], margin=0.04)
        y = svg.share("share with the event", [0.0, most], margin=0.04)
        description = "; ".join(
            f"predicted {p:.0%}, observed {o:.0%}"
            for p, o in each.calibration[["predicted", "observed"]].itertuples(index=False)
        )
        chart = Chart(
            x,
            y,
            name=f"calibration{suffix}-{i}",
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
        f"Each dot is a bin of predicted risk over all hospitals, with the 95 % interval of its share of events "
        f"({of}). On the dashed line risks are right; below it they are too high."
    )
    return svg.figure(f"calibration{suffix}", "Are the predicted risks right?", charts, caption)


def _decision_curve(served: Sequence[ClinicalRows], of: str, suffix: str = "") -> Figure:
    curves = [each.net_benefit for each in served]
    everyone = curves[0]["of_all"].to_numpy(float)
    thresholds = curves[0]["threshold"].to_numpy(float)
    highest = max(float(np.nanmax(curve["value"])) for curve in curves)
    top = max(highest, float(np.nanmax(everyone)), 0.01)
    useful = np.max([curve["value"].to_numpy(float) for curve in curves], axis=0) > 0
    end = min(float(thresholds[useful].max()) + 0.05, 1.0) if useful.any() else 1.0
    lowest = min(float(np.nanmin(curve["value"][thresholds <= end])) for curve in curves)
    y = svg.linear("net benefit per patient", [max(-0.6 * top, min(lowest, -0.25 * top)), top], include=(0.0,))
    x = svg.share("threshold: the risk from which one acts", [0.0, end])
    answers = [f"{each.name}: {worth_using(each.net_benefit)}" for each in served]
    chart = Chart(x, y, name=f"decision-curve{suffix}", description=f"{'; '.join(answers)}.", height=320, right=ENDS)
    visible = (everyone >= y.low) & (thresholds <= end)
    chart.line(thresholds[visible], everyone[visible], PLAIN, class_="rule dashed")
    chart.rule(y=0.0)
    if visible.any():
        last = int(np.flatnonzero(visible)[-1])
        chart.text(float(thresholds[last]), float(everyone[last]), "act on all", dx=6.0, dy=-2.0)
    ends = []
    for each in served:
        value = each.net_benefit["value"].to_numpy(float)
        inside = (value >= y.low) & (thresholds <= end)
        chart.marked_line(thresholds[inside], value[inside], each.style)
        ends.append((short(each.name), float(value[inside][-1]) if inside.any() else np.nan, each.style))
    chart.ends([*(one for one in ends if np.isfinite(one[1])), ("act on nobody", 0.0, PLAIN)])
    entries = [(each.name, each.style) for each in served]
    caption = (
        f"{'; '.join(answers[:2])}. Net benefit per patient is true alarms minus false alarms, where false alarms are "
        f"weighted by the odds of the threshold ({of}). A model is worth using where it is above both acting on all "
        "and acting on nobody. net_benefit.csv of the run has intervals."
    )
    return svg.figure(
        f"decision-curve{suffix}",
        "Is acting on the predictions worth it?",
        [chart],
        caption,
        svg.legend(entries, lines=True),
    )


def worth_using(curve: pd.DataFrame) -> str:
    """Describe at which thresholds a model's net benefit is negative, and at which it exceeds the net benefit of acting
    on all patients and of acting on none.

    ``curve`` has the columns ``threshold``, ``value`` (the model's net benefit) and ``of_all`` (that of acting on all).
    """
    value, everyone = curve["value"].to_numpy(float), curve["of_all"].to_numpy(float)
    at = curve["threshold"].to_numpy(float)
    worth = _ranges(at, value > np.maximum(everyone, 0.0) + ROUNDING)
    below = _ranges(at, value < -ROUNDING)
    first = f"worth using {worth}" if worth else "worth using at no threshold"
    return f"{first}; net benefit below 0 {below}" if below else first


def _ranges(at: NDArray[np.float64], holds: NDArray[np.bool_]) -> str:
    """List the thresholds ``at`` for which ``holds`` is True, with neighbouring ones as a range.

    >>> _ranges(np.array([0.1, 0.2, 0.3, 0.4]), np.array([True, True, False, True]))
    'between 10 % and 20 % and at 40 %'
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], holds, [False]]).astype(int)))
    parts = []
    for first, stop in edges.reshape(-1, 2):
        low, high = (f"{100 * at[i]:.3g} %" for i in (first, stop - 1))
        parts.append(f"at {low}" if stop - first == 1 else f"between {low} and {high}")
    return listed(parts)
