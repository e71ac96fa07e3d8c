"""Figures of a sweep. Each point or line has the index of its trial, so that a page can highlight a trial in all
figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from markupsafe import Markup
from scipy.special import stdtrit

from raysim.core.arrays import Floats
from raysim.metrics.equity import pareto_front
from raysim.report import svg
from raysim.report.svg import PANEL, WIDTH, Axis, Chart, Figure, Style
from raysim.tune import pareto
from raysim.tune.choice import Choice, title
from raysim.tune.journal import Finished
from raysim.tune.page.importance import importances, varied
from raysim.tune.pareto import signed
from raysim.tune.spaces import Space

RECOMMENDED, FRONT, DOMINATED = Style(11, "diamond"), Style(9, "circle"), Style(-1, "square", "open")

SHORT = {"auroc": "AUROC", "worst_decile": "worst", "size_bias_abs": "size bias", "gini": "Gini", "std": "deviation"}
"""Short names of objectives in a heat map."""

MOST_LINES = 400
"""The largest number of trials in parallel coordinates. The whole Pareto set is drawn, even if it has more trials. If
not all other trials fit, they are thinned out evenly in the order of their numbers."""

STEPS = 300
"""The largest number of points of the hypervolume curve."""


def figures(choice: Choice, space: Space) -> list[Figure]:
    """Return the charts of a sweep's page, in order, without charts for which there are too few objectives, keys or
    trials."""
    if not choice.front.any():
        return []
    keys = varied(choice, space)
    plots = [*([pareto_figure(choice)] if len(choice.sweep.names) > 1 else []), *slices(choice, keys, space)]
    if keys:
        plots.append(parallel(choice, keys, space))
    if (shares := importances(choice, space)) is not None:
        plots.append(_importances(choice, *shares))
    if len(choice.trials) > 1:
        plots.append(hypervolume(choice))
    return plots


def pareto_figure(choice: Choice) -> Figure:
    """Plot trials by every pair of objectives, with 95 % intervals over seeds for the recommended trial."""
    names = choice.sweep.names
    pairs = list(combinations(range(len(names)), 2))
    wide = WIDTH if len(pairs) == 1 else 1.25 * PANEL
    charts = []
    for x, y in pairs:
        limits = [interval(choice.recommended, names[j]) for j in (x, y)]
        axes = [axis(choice, j, limit) for j, limit in zip((x, y), limits, strict=True)]
        description = f"A point is a trial, {title(choice, x)} across and {title(choice, y)} up."
        chart = Chart(*axes, name=f"pareto-{x}-{y}", description=description, width=wide, height=0.72 * wide + 40)
        points = choice.values[:, [x, y]]
        two = signed(points, [choice.sweep.larger[x], choice.sweep.larger[y]])
        line = points[pareto_front(two)]
        line = line[np.argsort(line[:, 0])]
        chart.line(*line.T, class_="rule dashed")
        _dots(chart, choice, points[:, 0], points[:, 1])
        if choice.knee is not None:
            at = points[choice.knee.index]
            for (low, high), upright in zip(limits, (False, True), strict=True):
                chart.whiskers([low], [high], [at[0] if upright else at[1]], RECOMMENDED, upright=upright)
        charts.append(chart)
    several = len(choice.trials[0].finals) > 1
    caption = (
        "The Pareto set contains the trials that no other trial beats in all objectives at once. The dashed line joins "
        "the trials that no other beats in these two. "
        + (
            "Bars: the 95 % interval of the recommended trial over its training seeds, on validation rows, "
            "cut at the frame where it is wide."
            if several
            else "One seed: there is no interval, and neighbouring trials may differ by chance."
        )
    )
    return svg.figure("pareto", "What was reached", charts, caption, _legend(choice))


def slices(choice: Choice, keys: Sequence[str], space: Space) -> list[Figure]:
    """Plot each objective of the trials against each of the searched ``keys``; one figure per objective."""
    plots = []
    for j, name in enumerate(choice.sweep.names):
        charts = []
        for k, key in enumerate(keys):
            x, places = scale(choice, key, space)
            description = f"{title(choice, j)} of each trial against {key}."
            chart = Chart(x, axis(choice, j), name=f"slice-{j}-{k}", description=description, width=PANEL, height=260)
            _dots(chart, choice, places, choice.values[:, j])
            charts.append(chart)
        if charts:
            caption = "Each point is a trial. Other keys vary, too, so a trend need not be caused by this key."
            plots.append(
                svg.figure(f"slices-{name}", f"{title(choice, j)} by key", charts, caption, _legend(choice), row=True)
            )
    return plots


def parallel(choice: Choice, keys: Sequence[str], space: Space) -> Figure:
    """Plot parallel coordinates: one line per trial, through its values of the searched ``keys`` and its objectives."""
    rows = [*keys, *(title(choice, j) for j in range(len(choice.sweep.names)))]
    columns, ends = [], []
    for key in keys:
        x, places = scale(choice, key, space)
        columns.append(x.places(places))
        ends.append((x.texts[0], x.texts[-1]) if x.kind == "names" else _ends(x.low, x.high, places))
    for j, larger in enumerate(choice.sweep.larger):
        values = choice.values[:, j]
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        place = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
        columns.append(place if larger else 1 - place)
        labels = (f"{low:.4g}", f"{high:.4g}")
        ends.append(labels if larger else labels[::-1])
    across = Axis("", -0.02, 1.02, (), ())
    chart = Chart(
        across,
        svg.names("", rows),
        name="parallel",
        description="A line for each trial, through its value of each searched key and of each objective.",
        height=52.0 * len(rows) + 40,
        gridlines="",
    )
    up = np.arange(len(rows), dtype=np.float64)
    for i in _plotted(choice):
        place = np.array([column[i] for column in columns])
        style, class_ = _look(choice, i)
        chart.line(place, up, style, of=i, class_=class_)
    for row, (low_end, high_end) in enumerate(ends):
        chart.line([0.0, 1.0], [row, row], class_="rule")
        chart.text(0.0, row, low_end, dy=-6)
        chart.text(1.0, row, high_end, anchor="end", dy=-6)
    caption = (
        "Each line is a trial: the values it tried above, the objectives it reached below. Right is better for every "
        "objective. Lines end where a trial does not have a key."
    )
    return svg.figure("parallel", "From keys to objectives", [chart], caption, _legend(choice, lines=True))


def hypervolume(choice: Choice) -> Figure:
    """Plot the hypervolume of the Pareto set against the number of completed trials."""
    count = len(choice.trials)
    after = np.unique(np.linspace(1, count, min(count, STEPS)).astype(int))
    larger, reference = choice.sweep.larger, choice.reference
    volumes = [pareto.hypervolume(choice.values[:k], larger, reference) for k in after]
    y = svg.linear("hypervolume", volumes, include=(0.0,), within=(0.0, math.inf))
    chart = Chart(
        svg.linear("completed trials", after, include=(0.0,), within=(0.0, math.inf), whole=True),
        y,
        name="hypervolume",
        description=f"The hypervolume grows to {volumes[-1]:.4g} after {count} completed trials.",
        height=220,
    )
    chart.line(after, volumes, FRONT, steps=True)
    stated = ", ".join(f"{title(choice, j)} {value:g}" for j, value in enumerate(reference))
    caption = (
        f"The volume that the Pareto set dominates, measured from {stated}. If the curve has long been flat, more "
        "trials of this kind would hardly help."
    )
    return svg.figure("hypervolume", "Was the search long enough?", [chart], caption)


def _importances(choice: Choice, keys: Sequence[str], shares: Floats) -> Figure:
    columns = [SHORT.get(name, name) for name in choice.sweep.names]
    texts = [[f"{100 * v:.0f} %" if np.isfinite(v) else "–" for v in row] for row in shares]
    chart = svg.heat_map(
        list(keys),
        columns,
        shares,
        name="importances",
        description="The importance of each searched key for each objective.",
        texts=texts,
        high=1.0,
    )
    caption = (
        f"The share of the variance between {len(choice.trials)} trials that each key explains, alone or in "
        "interactions (functional ANOVA of a random forest). Columns sum to 100 %. Shares depend on the search space: "
        "a key that was varied little explains little."
    )
    return svg.figure("importances", "Which keys matter", [chart], caption)


def interval(trial: Finished | None, name: str) -> tuple[float, float]:
    """Return Student's 95 % confidence interval of a trial's mean objective over seeds; NaN for one seed, or if
    ``trial`` is None."""
    if trial is None:
        return math.nan, math.nan
    return student(*trial.figures[name], len(trial.finals))


def student(mean: float, spread: float, seeds: int) -> tuple[float, float]:
    """Return Student's 95 % confidence interval of a mean over seeds; NaN for one seed.

    ``spread`` is the standard deviation over seeds.
    """
    if seeds < 2 or not math.isfinite(spread):
        return math.nan, math.nan
    reach = float(stdtrit(seeds - 1, 0.975)) * spread / math.sqrt(seeds)
    return mean - reach, mean + reach


def axis(choice: Choice, j: int, further: tuple[float, float] = (math.nan, math.nan)) -> Axis:
    """Return the axis of objective ``j``, with a title that says whether more or less is better.

    The axis is extended to include the interval ``further``, but on each side by at most half of the values' range.
    """
    values = choice.values[:, j]
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.5 * (high - low)
    ends = [end for end in (max(further[0], low - room), min(further[1], high + room)) if math.isfinite(end)]
    better = "more" if choice.sweep.larger[j] else "less"
    return svg.linear(f"{title(choice, j)} ({better} is better)", values, include=ends)


def scale(choice: Choice, key: str, space: Space) -> tuple[Axis, Floats]:
    """Return the axis of a searched key, and each trial's position on it.

    An axis of numbers is logarithmic if the key is searched on a logarithmic scale, or if the tried numbers are spaced
    logarithmically.
    """
    values = [trial.params.get(key) for trial in choice.trials]
    given = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        numbers = np.array([math.nan if value is None else float(value) for value in values])
        return (svg.log if key in space.logarithmic else svg.spaced)(key, numbers), numbers
    words = list(dict.fromkeys(_word(value) for value in given))
    place = {word: float(i) for i, word in enumerate(words)}
    return svg.names(key, words), np.array([math.nan if v is None else place[_word(v)] for v in values])


def _word(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _ends(low: float, high: float, values: Floats) -> tuple[str, str]:
    tried = values[np.isfinite(values)]
    return f"{max(low, float(tried.min())):.4g}", f"{min(high, float(tried.max())):.4g}"


def _dots(chart: Chart, choice: Choice, x: Floats, y: Floats) -> None:
    on = choice.front
    best = np.zeros(len(on), dtype=bool)
    if choice.knee is not None:
        best[choice.knee.index] = True
    for which, style, size, class_ in (
        (~on, DOMINATED, 3.0, "dim"),
        (on & ~best, FRONT, 4.5, None),
        (best, RECOMMENDED, 6.5, None),
    ):
        at = np.flatnonzero(which)
        chart.dots(x[at], y[at], style, of=at.tolist(), size=size, class_=class_)


def _look(choice: Choice, i: int) -> tuple[Style, str]:
    if choice.knee is not None and i == choice.knee.index:
        return RECOMMENDED, "line strong"
    return (FRONT, "line") if choice.front[i] else (DOMINATED, "line thin")


def _plotted(choice: Choice) -> list[int]:
    """Return the indices of the trials in parallel coordinates; the recommended trial is last."""
    others = np.flatnonzero(~choice.front & np.isfinite(choice.values).all(axis=1))
    room = max(MOST_LINES - int(choice.front.sum()), 0)
    if len(others) > room:
        others = others[np.linspace(0, len(others) - 1, room).astype(int)]
    front = [int(i) for i in np.flatnonzero(choice.front)]
    best = None if choice.knee is None else choice.knee.index
    return [*map(int, others), *(i for i in front if i != best), *([] if best is None else [best])]


def _legend(choice: Choice, *, lines: bool = False) -> Markup:
    entries = [("Pareto set, all objectives", FRONT), ("dominated", DOMINATED)]
    if choice.recommended is not None:
        entries.insert(0, (f"recommended: trial {choice.recommended.number}", RECOMMENDED))
    return svg.legend(entries, lines=lines)
