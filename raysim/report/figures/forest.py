"""The forest plot of a comparison: each method's differences of the mean and of the worst decile.

A method is a strategy with one of its models. The figure is a table on the page, and one or two charts in separate
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from markupsafe import Markup

from raysim.core.words import counted, listed
from raysim.report import svg
from raysim.report.judgement.evidence import Entry, Evidence
from raysim.report.naming import Key, number, short, with_interval
from raysim.report.possible import NOTHING, SAYS_NOTHING, WIDEST, difference
from raysim.report.svg import Axis, Chart, Figure, Style, element, joined
from raysim.report.svg.figure import sign_of
from raysim.report.terms import explained
from raysim.statistics.differences.paired import Limits

NONE = Limits(float("nan"), float("nan"))

WIDE, HIGH = 160.0, 20.0
"""The width and height of the drawing of one interval, in units of its ``viewBox``."""


@dataclass(frozen=True)
class Difference:
    """A difference from the reference strategy, with its 95 % confidence interval; NaN where undefined.

    As text, it has ``digits`` decimals.
    """

    value: float
    limits: Limits
    digits: int = 3

    def __str__(self) -> str:
        return with_interval(self.value, *self.limits, self.digits, sign=True)


@dataclass(frozen=True)
class Row:
    """A row of the plot: a method, or several methods with equal results at every hospital."""

    name: str
    look: Style
    mean: Difference
    worst: Difference
    reference: bool

    def differences(self, columns: int) -> tuple[Difference, ...]:
        """Return the difference of the mean from the reference strategy and, if ``columns`` is 2, that of the worst
        decile.
        """
        return (self.mean, self.worst)[:columns]


def forest(evidence: Evidence, differences: pd.DataFrame, looks: Mapping[Key, Style]) -> list[Figure]:
    """Plot each method's difference from the reference strategy.

    The result is empty if the reference was not run, or if no difference is defined. ``differences`` are from
    :func:`raysim.report.tables.differences`.
    """
    if evidence.base is None:
        return []
    base, kind = evidence.entries[evidence.base], evidence.kind

    def row(entry: Entry, mean: Difference, reference: bool) -> Row:
        worst = _of(differences, entry.key, "worst_decile", kind.larger)
        return Row(short(entry.name), looks[entry.key], mean, worst, reference)

    rows = [row(entry, _between(evidence, i), False) for i, entry in enumerate(evidence.entries) if i != evidence.base]
    for r, entry in enumerate(evidence.references):
        if r == evidence.alone:
            mean = Difference(*evidence.alone_less(evidence.base))
        else:
            mean = _of(differences, entry.key, kind.headline, kind.larger, evidence.levels[evidence.base])
        rows.append(row(entry, mean, True))
    rows = [each for each in rows if np.isfinite(each.mean.value)]
    if not rows:
        return []
    digits = kind.decimals([each.value for row in rows for each in row.differences(2)])
    rows = [
        replace(row, mean=replace(row.mean, digits=digits), worst=replace(row.worst, digits=digits)) for row in rows
    ]
    level = evidence.levels[evidence.base]
    against = f"{short(base.name)}, whose mean {kind.title} is {number(level, kind.decimals([level]))}"
    headings = [f"mean {kind.title}"]
    if any(np.isfinite(each.worst.limits.low) for each in rows):
        headings.append("worst tenth of hospitals")
    charts = [_chart(rows, heading, short(base.name), j, kind.larger) for j, heading in enumerate(headings)]
    return [
        Figure(
            "forest",
            f"Difference from {short(base.name)}",
            _table(rows, headings, against, kind.larger),
            _caption(evidence, len(headings) > 1, sum(each.mean.limits == NOTHING for each in rows)),
            tuple(charts),
        )
    ]


def _between(evidence: Evidence, i: int) -> Difference:
    base = evidence.base or 0
    value, limits = evidence.between(i, base)
    return Difference(value, difference(limits, evidence.kind.larger, evidence.levels[base]))


def _of(differences: pd.DataFrame, key: Key, figure: str, larger: bool, level: float = float("nan")) -> Difference:
    """Return the difference of one metric between the model ``key`` and the reference strategy.

    ``level`` is the reference's metric; NaN if unknown. The interval of a difference of AUROCs is cut to the values
    that are possible with this ``level``.
    """
    rows = differences[(differences["strategy"] == key[0]) & (differences["model"] == key[1])]
    rows = rows[rows["figure"] == figure]
    if rows.empty:
        return Difference(float("nan"), NONE)
    row = rows.iloc[0]
    return Difference(float(row["mean"]), difference(Limits(float(row["low"]), float(row["high"])), larger, level))


def _caption(evidence: Evidence, worst: bool, empty: int) -> str:
    """Return the caption that explains the intervals; ``empty`` is the number of intervals that are too wide to be
    informative.
    """
    parts = equal_sentences(evidence)
    if empty:
        wide = f"{counted(empty, 'interval')} of the mean {'is' if empty == 1 else 'are'} wider than {WIDEST:g}"
        parts.append(f"{wide} and {'says' if empty == 1 else 'say'} nothing; add seeds or hospitals.")
    parts.append("If an interval includes 0, no difference is demonstrated.")
    pairs = len(evidence.differences)
    adjusted = f"95 % intervals of the mean are adjusted for all {pairs} pairs of methods"
    parts.append(f"{adjusted}." if pairs > 1 else "Intervals are at 95 %.")
    if evidence.alone is not None and len(evidence.entries) > 1:
        parts.append("Intervals against training alone are adjusted for all methods.")
    by_itself = ["other references"] if any(r != evidence.alone for r in range(len(evidence.references))) else []
    by_itself += ["the worst tenth"] if worst else []
    if by_itself:
        parts.append(f"Intervals of {listed(by_itself)} are not adjusted.")
    if evidence.one_seed:
        parts.append("They apply to these trained models: one seed cannot compare methods.")
    return " ".join(parts)


def equal_sentences(evidence: Evidence) -> list[str]:
    """Return one sentence on each group of methods with equal results at every hospital."""
    sentences = []
    for entry in (*evidence.entries, *evidence.references):
        others = [short(each) for each in entry.names if each != entry.name]
        if others:
            sentences.append(f"{listed(others)}: the same figures as {short(entry.name)}.")
    return sentences


def _ends(differences: Iterable[Difference]) -> list[float]:
    return [end for each in differences for end in (each.value, *each.limits)]


def _table(rows: Sequence[Row], headings: Sequence[str], against: str, larger: bool) -> Markup:
    better = "right is better" if larger else "left is better"
    columns = len(headings)
    # Each column has its own axis: the worst decile differs so much more that marks of the mean would lie on zero.
    axes = [
        svg.linear("", _ends(column), include=(0.0,), signed=True, count=3)
        for column in zip(*(row.differences(columns) for row in rows), strict=True)
    ]
    head = element(
        "tr",
        element("th", "", element("span", "Method", class_="unseen"), scope="col"),
        *(element("th", explained(heading), scope="col", colspan=2) for heading in headings),
    )
    body = []
    for reference in (False, True):
        group = [row for row in rows if row.reference == reference]
        if reference and group:
            cells = element("th", "References, not federated", scope="row", colspan=1 + 2 * columns)
            body.append(element("tr", cells, class_="between"))
        body += [_line(row, axes) for row in group]
    foot = element("tr", element("td", ""), *(cell for axis in axes for cell in (ticks(_few(axis)), element("td", ""))))
    return element(
        "table",
        element("caption", f"against {against}; {better}"),
        element("thead", head),
        element("tbody", *body),
        element("tfoot", foot),
        class_="forest" if columns > 1 else "forest one",
    )


def _few(axis: Axis) -> Axis:
    """Return the axis with two ticks only: 0 and the tick farthest from 0. More ticks would overlap."""
    far = max(axis.ticks, key=abs)
    labelled = [(tick, text) for tick, text in zip(axis.ticks, axis.texts, strict=True) if tick in (0.0, far)]
    return replace(axis, ticks=tuple(tick for tick, _ in labelled), texts=tuple(text for _, text in labelled))


def _line(row: Row, axes: Sequence[Axis]) -> Markup:
    sign = element("svg", sign_of(row.look, False), viewBox="0 0 24 16", class_="sign", aria_hidden="true")
    cells = [element("th", sign, element("span", row.name), scope="row")]
    for each, axis in zip(row.differences(len(axes)), axes, strict=True):
        zero = f"--zero: {100 * float(axis.places([0.0])[0]):.1f}%"
        cells.append(element("td", _mark(each, row.look, axis), class_="mark", style=zero))
        cells.append(_figure(each))
    return element("tr", *cells)


def _figure(difference: Difference) -> Markup:
    if not np.isfinite(difference.value):
        return element("td", "–", class_="figure")
    value = number(difference.value, difference.digits, sign=True)
    if difference.limits == NOTHING:
        return element("td", SAYS_NOTHING, class_="figure")
    limits = str(difference).removeprefix(value)
    return element("td", value, element("span", limits, class_="limits"), class_="figure")


def _mark(difference: Difference, look: Style, axis: Axis) -> Markup:
    """Draw one difference as an SVG image: a dot, and its interval as a line."""
    parts = []
    if np.isfinite(difference.limits.low):
        low, high = WIDE * axis.places(np.clip(difference.limits, axis.low, axis.high))
        parts.append(element("path", d=f"M{low:.1f} {HIGH / 2:g}H{high:.1f}", class_=f"c{look.colour} whisker"))
    if np.isfinite(difference.value) and difference.limits != NOTHING:
        parts.append(look.marker(WIDE * float(axis.places([difference.value])[0]), HIGH / 2, 4.5))
    return element("svg", joined(parts), viewBox=f"0 0 {WIDE:g} {HIGH:g}", aria_hidden="true")


def ticks(axis: Axis) -> Markup:
    """Return the table cell with the ticks of an axis."""
    texts = [
        element(
            "span", text, style=f"left: {100 * float(axis.places([tick])[0]):.1f}%", class_=None if tick else "zero"
        )
        for tick, text in zip(axis.ticks, axis.texts, strict=True)
    ]
    return element("td", *texts, class_="ticks")


def _chart(rows: Sequence[Row], heading: str, base: str, column: int, larger: bool) -> Chart:
    """Draw the differences of one column (0: the mean, 1: the worst decile) as a chart."""
    differences = [row.worst if column else row.mean for row in rows]
    better = "(better →)" if larger else "(← better)"
    chart = Chart(
        svg.linear(f"difference from {base} {better}", _ends(differences), include=(0.0,), signed=True, count=3),
        svg.names("", [row.name for row in rows]),
        name=f"forest-{column}",
        title=heading,
        description="; ".join(f"{row.name} {each}" for row, each in zip(rows, differences, strict=True)) + ".",
        width=640.0,
        height=24.0 * len(rows) + 74,
        right=190.0,
        gridlines="",
    )
    chart.rule(x=0.0)
    for i, (row, each) in enumerate(zip(rows, differences, strict=True)):
        if each.limits != NOTHING:
            chart.whiskers([each.limits.low], [each.limits.high], [i], row.look)
            chart.dots([each.value], [i], row.look, size=5.0)
        if np.isfinite(each.value):
            chart.text(chart.x.high, i, str(each), dx=8.0)
    return chart
