"""The card at the top of a comparison's page: what to take, why, at what price, and when to take another.

Every claim comes from :mod:`raysim.report.judgement.evidence`; here it is put into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from raysim.report.judgement.answer import Answer, possible
from raysim.report.judgement.evidence import Evidence
from raysim.report.naming import Key, number, times, with_interval
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
    """Bytes down and up, set-up included, compared with another strategy."""
    parts = []
    for heading, columns in (
        ("download", ("bytes_down", "bytes_setup_down")),
        ("upload", ("bytes_up", "bytes_setup_up")),
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
