"""The findings of a curve: each strategy's best value, whether it is demonstrably better than others, and whether it is
the smallest or largest tried.

All pairs of a strategy's values are compared by the unweighted mean of the curve's metric over hospitals
(:func:`raysim.statistics.differences.paired.paired`). A hospital counts for a seed only if its metric is defined for
all values. The confidence intervals hold jointly for all pairs
(:func:`raysim.statistics.differences.simultaneous.adjusted`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from raysim.core.atomic import plain
from raysim.core.words import counted, number
from raysim.engine.timing import LARGER, SMALLER
from raysim.experiment.tuning import is_bound
from raysim.metrics.declared import SCORES
from raysim.report.figures.curve import UNITS
from raysim.report.judgement.facts.wording import figure, some
from raysim.report.possible import difference as possible
from raysim.statistics.differences.paired import Limits, Paired, paired
from raysim.statistics.differences.simultaneous import adjusted

NAN = math.nan

SHARES = tuple(figure.name for figure in SCORES if figure.larger)
"""The metrics from 0 to 1 whose larger values are better, such as AUROC. R², which can be below 0, is not included."""


@dataclass(frozen=True)
class Point:
    """One value of the hyper-parameter for one strategy, with its results."""

    value: float | None
    """The value of the hyper-parameter; None for a strategy that does not have it."""
    mean: float
    """The mean of the metric over hospitals and seeds."""
    difference: float = NAN
    """The mean minus the mean at the best value; NaN for the best value itself, or if values cannot be compared."""
    low: float = NAN
    """The lower limit of the interval of ``difference``, adjusted for the number of pairs of values; NaN if
    undefined."""
    high: float = NAN
    """The upper limit of the interval of ``difference``, adjusted for the number of pairs of values; NaN if
    undefined."""
    verdict: str = ""
    """How the value compares with the best value: ``best`` (the value itself), ``worse``, ``equal`` (the same metric at
    every hospital and seed), ``no difference`` (none was demonstrated), ``one seed`` (differences may be due to the
    seed), or empty (values are not compared)."""


@dataclass(frozen=True)
class Line:
    """The results of one strategy for each value of the hyper-parameter, in ascending order of the values."""

    name: str
    """The strategy's name on pages."""
    points: tuple[Point, ...]
    edge: str = ""
    """``lowest`` or ``highest`` if the best value is the smallest or largest tried and values beyond it are allowed;
    else empty."""

    @property
    def best(self) -> Point | None:
        """The point with the best mean; None if no value is the best."""
        return next((point for point in self.points if point.verdict == "best"), None)


@dataclass(frozen=True)
class Found:
    """What a curve shows: which value of the hyper-parameter is best for each strategy."""

    field: str
    figure: str
    lines: tuple[Line, ...]
    seeds: int

    @property
    def headline(self) -> str:
        """One or two sentences on each strategy that was tried with several values; one sentence if there is no such
        strategy.
        """
        varied = [line for line in self.lines if len(line.points) > 1]
        return " ".join(self._sentence(line) for line in varied) or f"{self.field} took one value: nothing to compare."

    def rows(self) -> list[list[str]]:
        """Return the rows of a table of results.

        If there are several curves, each has one row, for its best value. A curve that is the only one, or that has no
        best value, has one row per value. A strategy without the hyper-parameter has one row.
        """
        varied = [line for line in self.lines if len(line.points) > 1]
        digits = _digits([point.mean for line in self.lines for point in line.points])
        end = "lowest" if self.figure in SMALLER else "highest"
        ends = {"best": f"its {end}" if len(self.lines) > 1 else end}  # another strategy may lie beyond
        rows = []
        for line in sorted(self.lines, key=lambda line: line not in varied):
            best = line.best
            for point in [best] if len(varied) > 1 and best is not None else line.points:
                name = line.name if point.value is None else f"{line.name}, {self.field} {point.value:g}"
                level = math.nan if best is None else best.mean
                limits = possible(Limits(point.low, point.high), self.figure in SHARES, level)
                against = figure(point.difference, limits, digits, sign=True)
                cells = ["" if math.isnan(point.difference) else against, ends.get(point.verdict, point.verdict)]
                rows.append([name, number(point.mean, digits), *cells])
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``curve_answer.json``. An infinite hyper-parameter becomes the text ``inf``; all other
        numbers that are not finite become None.
        """
        return dict(plain({"headline": self.headline, **dataclasses.asdict(self, dict_factory=_stored)}))

    @staticmethod
    def read(tree: Mapping[str, Any]) -> Found:
        """Restore a ``Found`` from the content of ``curve_answer.json``."""
        lines = [Line(each["name"], tuple(map(_point, each["points"])), each["edge"]) for each in tree["lines"]]
        return Found(tree["field"], tree["figure"], tuple(lines), tree["seeds"])

    def _sentence(self, line: Line) -> str:
        means = [point.mean for point in line.points]
        digits, word = _digits(means), UNITS.get(self.figure, self.figure).partition(",")[0]
        best, others = line.best, [point for point in line.points if point.verdict != "best"]
        if best is None:
            same = len(set(means)) == 1
            ends = [f"{point.value:g}" for point in (min(line.points, key=_mean), max(line.points, key=_mean))]
            return (
                f"{line.name}: {self.field} has no effect on {word}."
                if same
                else f"{line.name}: mean {word} is lowest at {self.field} {ends[0]} and highest at {ends[1]}."
            )
        end = "lowest" if self.figure in SMALLER else "highest"
        has = f"has the {end} mean {word}, {number(best.mean, digits)}"
        at = f"{line.name}: {self.field} {best.value:g}"
        open_ = [f"{self.field} {point.value:g}" for point in others if point.verdict in ("no difference", "equal")]
        if self.seeds == 1:
            text = f"{at} {has}, for these trained models; repeat with 3 seeds to compare values."
        elif open_:
            text = f"{at} {has}, but no difference from {some(open_)} was demonstrated."
        else:
            text = f"{at} is the best of {counted(len(means), 'value')}: it {has}."
        return f"{text} It is the {line.edge} value tried: also try values beyond it." if line.edge else text


def found(
    hospitals: pd.DataFrame,
    field: str,
    name: str,
    lines: Mapping[str, tuple[str, float | None]],
    names: Mapping[str, str],
) -> Found:
    """Compare the values of a hyper-parameter by a metric of hospitals.

    - ``hospitals``: the content of ``hospitals.csv``. ``field`` and ``name``: the hyper-parameter and the metric.
    - ``lines``: for each strategy label, the name of the strategy's line in the plot, and the strategy's value of the
      hyper-parameter (None for a horizontal line).
    - ``names``: the readable name of each line.
    """
    by_line: dict[str, dict[float | None, pd.DataFrame]] = {}
    for label, (line, value) in lines.items():
        rows = hospitals[hospitals["strategy"] == label]
        rows = rows[rows["model"] == rows["model"].iloc[-1]]
        by_line.setdefault(line, {})[value] = rows.pivot(index="seed", columns="hospital", values=name).astype(float)
    made = [_line(names.get(line, line), field, name, tables) for line, tables in by_line.items()]
    return Found(field, name, tuple(made), int(hospitals["seed"].nunique()))


def _line(title: str, field: str, name: str, tables: Mapping[float | None, pd.DataFrame]) -> Line:
    values = sorted(tables, key=lambda value: NAN if value is None else value)
    lacking = pd.concat(list(tables.values())).isna().groupby(level="seed").any()
    tables = {value: table.mask(lacking) for value, table in tables.items()}
    means = [float(tables[value].mean(axis=1).mean()) for value in values]
    usable = np.array([mean if name in LARGER else -mean for mean in means])
    if len(values) < 2 or name not in (*LARGER, *SMALLER) or not np.isfinite(usable).any() or len(set(means)) == 1:
        return Line(title, tuple(Point(value, mean) for value, mean in zip(values, means, strict=True)))
    best = int(np.nanargmax(usable))
    pairs = list(combinations(range(len(values)), 2))
    tested = [_pair(tables[values[i]], tables[values[j]]) for i, j in pairs]
    intervals = dict(zip(pairs, zip(tested, adjusted(tested), strict=True), strict=True))
    points = []
    for k, (value, mean) in enumerate(zip(values, means, strict=True)):
        if k == best:
            points.append(Point(value, mean, verdict="best"))
            continue
        pair, limits = intervals[min(k, best), max(k, best)]
        sign = 1.0 if k < best else -1.0
        low, high = (limits.low, limits.high) if k < best else (-limits.high, -limits.low)
        verdict = "one seed" if not pair.of_training else "worse" if limits.shows else "no difference"
        points.append(Point(value, mean, sign * pair.difference, low, high, "equal" if pair.equal else verdict))
    at = values[best]
    end = {0: "lowest", len(values) - 1: "highest"}.get(best, "")
    return Line(title, tuple(points), "" if at is None or is_bound(f"strategy.{field}", at) else end)


def _pair(first: pd.DataFrame, second: pd.DataFrame) -> Paired:
    """Compute the paired difference of two tables over the hospitals and seeds that both have.

    Every hospital has equal weight.
    """
    ours, theirs = first.align(second, join="inner")
    return paired(ours, theirs, np.ones(ours.shape))


def _mean(point: Point) -> float:
    return point.mean


def _digits(means: Sequence[float]) -> int:
    """Return the number of decimals with which ``means`` are printed."""
    largest = max((abs(mean) for mean in means if math.isfinite(mean)), default=0.0)
    return 3 if largest <= 1 else max(0, 2 - math.floor(math.log10(largest)))


def _stored(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: str(value) if name == "value" and value == math.inf else value for name, value in fields}


def _point(tree: Mapping[str, Any]) -> Point:
    mean, difference, low, high = (NAN if tree[k] is None else tree[k] for k in ("mean", "difference", "low", "high"))
    value = tree["value"]
    return Point(float(value) if isinstance(value, str) else value, mean, difference, low, high, tree["verdict"])
