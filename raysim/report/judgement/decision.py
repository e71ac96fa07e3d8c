"""The card at the top of a comparison's page: what to take, why, at what price, and when to take another.

Every claim comes from :mod:`raysim.report.judgement.evidence`; here it is put into words, and into a forest plot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from raysim.report import svg
from raysim.report.judgement.answer import Answer, possible
from raysim.report.judgement.evidence import Evidence
from raysim.report.naming import Key, number, times, with_interval
from raysim.report.tables import KEYS
from raysim.statistics.differences.paired import Limits

NONE = Limits(float("nan"), float("nan"))


@dataclass(frozen=True)
class Line:
    """A line of the card: its ``heading``, its ``text``, and the ``kind`` that colours it (``good``, ``bad``,
    ``open``).
    """

    heading: str
    text: str
    kind: str = "open"


@dataclass(frozen=True)
class Card:
    """The card: the name of the ``recommended`` strategy, the ``lead`` sentence, and the lines below."""

    recommended: str
    lead: str
    lines: tuple[Line, ...]


def card(shown: Evidence, answer: Answer, frame: pd.DataFrame, differences: pd.DataFrame) -> Card:
    """The card of a comparison with the evidence ``shown`` and its answer.

    ``frame`` has one row per strategy, model and seed; ``differences`` as :func:`raysim.report.tables.differences`.
    """
    best = shown.entries[shown.best]
    if len(shown.entries) == 1:
        return Card(best.name, answer.lead, ())
    against = _against(shown)
    other = shown.entries[against]
    value, limits = _between(shown, shown.best, against)
    digits = shown.kind.decimals([value])
    lines = [_judged(f"Mean {shown.kind.title} against {other.name}", value, limits, shown, digits)]
    if against == shown.base:
        lines += _worst_tenth(shown, differences, best.key, other.name, digits)
    lines += [_price(frame, best.key, other.key, other.name), _runner_up(shown)]
    return Card(best.name, answer.lead, tuple(lines))


def _between(shown: Evidence, i: int, j: int) -> tuple[float, Limits]:
    """A difference with its interval, cut to possible values."""
    value, limits = shown.between(i, j)
    return value, possible(limits, shown)


def _against(shown: Evidence) -> int:
    """The entry that the recommended one is compared with: the reference, or if it is that itself, the runner-up."""
    if shown.base is not None and shown.base != shown.best:
        return shown.base
    return _second(shown)


def _second(shown: Evidence) -> int:
    """The runner-up: of the others not shown to be worse, or of all others, the one with the best mean."""
    others = [i for i in shown.unbeaten if i != shown.best] or [i for i in range(len(shown.entries)) if i != shown.best]
    sign = 1 if shown.kind.larger else -1
    return max(others, key=lambda i: (sign * shown.between(i, shown.best)[0], -i))


def _judged(heading: str, value: float, limits: Limits, shown: Evidence, digits: int) -> Line:
    text = with_interval(value, limits.low, limits.high, digits, sign=True)
    if shown.one_seed:
        return Line(heading, f"{text}: of these trained models; one training seed shows nothing of the methods")
    if not np.isfinite(limits.low):
        return Line(heading, f"{text}, without an interval")
    if not limits.shows:
        return Line(heading, f"{text}: no difference shown")
    better = (limits.low > 0) == shown.kind.larger
    return Line(heading, f"{text}: {'better' if better else 'worse'}", "good" if better else "bad")


def _worst_tenth(shown: Evidence, differences: pd.DataFrame, key: Key, other: str, digits: int) -> list[Line]:
    row = _row(differences, key, "worst_decile")
    if row is None or not np.isfinite(row["low"]):
        return []
    limits = Limits(float(row["low"]), float(row["high"]))
    return [_judged(f"The worst-served tenth of hospitals against {other}", float(row["mean"]), limits, shown, digits)]


def _row(differences: pd.DataFrame, key: Key, figure: str) -> pd.Series | None:
    of = differences[(differences["strategy"] == key[0]) & (differences["model"] == key[1])]
    of = of[of["figure"] == figure]
    return None if of.empty else of.iloc[0]


def _price(frame: pd.DataFrame, key: Key, other: Key, name: str) -> Line:
    """Bytes down and up, set-up included, and computing time, compared with another strategy."""
    parts = []
    for heading, columns in (
        ("download", ("bytes_down", "bytes_setup_down")),
        ("upload", ("bytes_up", "bytes_setup_up")),
        ("computing time", ("seconds",)),
    ):
        present = [column for column in columns if column in frame]
        ours, theirs = (_mean(frame, each, present) for each in (key, other))
        if present and theirs > 0:
            word = times(ours / theirs)
            parts.append(f"{'the same' if word == 'as much' else f'{word} the'} {heading}")
    included = "; bytes with the set-up" if "bytes_setup_down" in frame else ""
    return Line("Price", f"{', '.join(parts)} of {name}{included}" if parts else "nothing is exchanged", "open")


def _mean(frame: pd.DataFrame, key: Key, columns: Sequence[str]) -> float:
    of = frame[(frame["strategy"] == key[0]) & (frame["model"] == key[1])]
    return float(of[list(columns)].astype(float).sum(axis=1).mean()) if len(of) else float("nan")


def _runner_up(shown: Evidence) -> Line:
    best, second = shown.best, _second(shown)
    one, other = shown.entries[second], shown.entries[best]
    value, limits = _between(shown, second, best)
    digits = shown.kind.decimals([value])
    text = with_interval(value, limits.low, limits.high, digits, sign=True)
    worst = shown.worst_decile(second, best)
    less = times(one.bytes / other.bytes) if other.bytes > 0 else ""
    if shown.one_seed:
        when = "more seeds are needed before one can be preferred"
    elif worst.shows and (worst.low > 0) == shown.kind.larger:
        gain = f"{number(worst.low, digits, sign=True)} to {number(worst.high, digits, sign=True)}"
        when = f"prefer it where the worst-served tenth of hospitals counts most ({gain} there)"
    elif one.bytes < other.bytes:
        when = f"prefer it where bytes count more than that: it moves {less} the bytes"
    elif shown.better[best, second]:
        when = "nothing here speaks for it"
    else:
        when = "nothing here tells the two apart"
        if less:
            when += ", and it moves as many bytes" if less == "as much" else f" but bytes: it moves {less} as many"
    return Line(f"Runner-up: {one.name}", f"{text} against {other.name}; {when}")


def forest(
    shown: Evidence, differences: pd.DataFrame, names: Mapping[Key, str], looks: Mapping[Key, svg.Style]
) -> list[svg.Figure]:
    """Differences from the reference with their intervals: of the mean, and of the worst decile where it has some.

    Those of ways of federating hold together; those of references, and of the worst decile, hold by themselves.
    """
    if shown.base is None:
        return []
    base, kind = shown.entries[shown.base], shown.kind
    rows: list[tuple[str, svg.Style, float, Limits]] = [
        (entry.name, looks[entry.key], *_between(shown, i, shown.base))
        for i, entry in enumerate(shown.entries)
        if i != shown.base
    ]
    for entry in shown.references:
        row = _row(differences, entry.key, kind.headline)
        if row is not None:
            rows.append((entry.name, looks[entry.key], float(row["mean"]), Limits(row["low"], row["high"])))
    if not rows:
        return []
    panels = [_forest(rows, f"{kind.title}, mean over hospitals", base.name, "forest-mean", kind.larger)]
    worst = []
    for key, group in differences[differences["figure"] == "worst_decile"].groupby(KEYS, sort=False):
        difference = group.iloc[0]
        model_key = (str(key[0]), str(key[1]))
        if model_key in base.members or model_key in shown.made_of.values():
            continue
        if np.isfinite(difference["low"]) and model_key in names:
            limits = Limits(difference["low"], difference["high"])
            worst.append((names[model_key], looks[model_key], float(difference["mean"]), limits))
    if worst:
        panels.append(_forest(worst, f"{kind.title} of the worst tenth", base.name, "forest-worst", kind.larger))
    one = " One training seed shows nothing of the methods: these are intervals of the trained models." * shown.one_seed
    return [
        svg.figure(
            "forest",
            f"Difference from {base.name}",
            panels,
            "A dot is the difference, a line its 95 % interval. Where the line crosses the vertical rule at 0, no "
            "difference is shown. The intervals of the mean hold together for all pairs of ways of federating; those "
            f"of references, and of the worst tenth, hold by themselves.{one}",
        )
    ]


def _forest(
    rows: Sequence[tuple[str, svg.Style, float, Limits]], title: str, base: str, name: str, larger: bool
) -> svg.Chart:
    ends = [end for *_, value, limits in rows for end in (value, *limits)]
    digits = 3
    texts = [with_interval(value, *limits, digits, sign=True) for *_, value, limits in rows]
    better = "(better →)" if larger else "(← better)"
    x = svg.linear(f"difference from {base} {better}", ends, include=(0.0,), signed=True, count=4)
    chart = svg.Chart(
        x,
        svg.names("", [""] * len(rows)),
        name=name,
        title=title,
        description="; ".join(f"{row[0]} {text}" for row, text in zip(rows, texts, strict=True)) + ".",
        height=38.0 * len(rows) + 74,
        gridlines="",
    )
    for i, (called, look, value, limits) in enumerate(rows):
        # Names and figures stand above their line, where no other line runs.
        chart.segment(0.0, i - 0.02, i + 0.38)
        chart.whiskers([limits.low], [limits.high], [i + 0.18], look)
        chart.dots([value], [i + 0.18], look, size=5.0)
        chart.beside(i - 0.24, called, texts[i])
    return chart
