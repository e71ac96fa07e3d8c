"""What a comparison says, in plain words, computed from its numbers.

A difference counts as found only when it is larger than its own spread: the gap between two strategies is taken seed by
seed, and where its mean is no larger than its standard deviation over seeds, the two are called equal. With one seed
only the same figures are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from raysim.metrics.equity import paired_difference, pareto_front
from raysim.metrics.labels import reporting
from raysim.report.tables import KEYS, comparison, complete, labels


def questions(table: pd.DataFrame) -> tuple[tuple[str, str, str, bool, int], ...]:
    """Figure, the question it answers, its name, whether larger is better, decimals."""
    kind = reporting(table)
    digits = kind.decimals(table[kind.headline])
    worst = f"{kind.title} of the worst decile"
    return (
        (kind.headline, "Most accurate on average", f"mean {kind.title}", kind.larger, digits),
        ("worst_decile", "Best for the worst-served hospitals", worst, kind.larger, digits),
        ("size_bias_abs", "Least dependent on hospital size", "absolute size bias", False, digits + 1),
    )


@dataclass(frozen=True)
class Finding:
    """The answer to one question: who is best, its figure, and who is no different."""

    question: str
    figure: str
    winner: str
    value: str
    superlative: str
    equal: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Answer:
    """One sentence, the findings behind it, and the strategies that no other dominates."""

    lead: str
    findings: tuple[Finding, ...]
    front: str
    caution: str


def answer(per_seed: pd.DataFrame) -> Answer:
    """The answer of a comparison; ``per_seed`` as in :mod:`raysim.report.tables`."""
    rows = complete(per_seed)
    if not rows["yardstick"].all():
        rows = rows[~rows["yardstick"]]
    table = comparison(rows)
    names = labels(table)
    seeds = rows["seed"].nunique()
    asked = questions(table)
    findings = tuple(_finding(rows, table, names, seeds, *question) for question in asked)
    figures = table[[figure for figure, *_ in asked]].to_numpy(float)
    known = np.logical_and.reduce(np.isfinite(figures), axis=1)
    front = ""
    if known.sum() > 1:
        values = figures * [1 if larger else -1 for _, _, _, larger, _ in asked]
        best = [name for name, there in zip(names, pareto_front(values), strict=True) if there]
        front = f"Not dominated (no other is as good on all three figures and better on one): {listed(best)}."
    caution = ""
    if seeds < 2:
        caution = "One seed was run, so the spread over seeds is unknown: read small differences as no difference."
    elif seeds < 5:
        caution = f"{seeds} seeds give a rough idea of the spread only."
    return Answer(_lead(findings, names, seeds), findings, front, caution)


def listed(names: Sequence[str]) -> str:
    """Names as a phrase.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def plus_minus(mean: float, std: float, digits: int) -> str:
    """A mean and its deviation, as far as they are defined.

    >>> plus_minus(0.9123, 0.0041, 3), plus_minus(0.9123, float("nan"), 3), plus_minus(float("nan"), 0.0, 3)
    ('0.912 ± 0.004', '0.912', 'undefined')
    """
    if not np.isfinite(mean):
        return "undefined"
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if np.isfinite(std) else f"{mean:.{digits}f}"


def _finding(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    names: list[str],
    seeds: int,
    figure: str,
    question: str,
    name: str,
    larger: bool,
    digits: int,
) -> Finding:
    values = table[figure].to_numpy(float)
    if not np.isfinite(values).any():
        return Finding(question, name, "undefined", "", "", (), f"The {name} is undefined for every strategy.")
    best = int(np.nanargmax(values if larger else -values))
    by_key = {key: group.set_index("seed")[figure] for key, group in rows.groupby(KEYS, sort=False)}
    keys = list(zip(table["strategy"], table["model"], strict=True))
    equal, apart, unknown = [], [], []
    for k, key in enumerate(keys):
        if k == best:
            continue
        gap = paired_difference(*by_key[keys[best]].align(by_key[key], join="inner"))
        if gap.pairs < min(seeds, 2):
            unknown.append(names[k])
        elif abs(gap.mean) <= (gap.std if seeds > 1 else 0.0):
            equal.append(names[k])
        else:
            apart.append(names[k])
    spread = table[f"{figure}_std"].to_numpy(float)[best]
    value = plus_minus(values[best], spread, digits)
    note = _note(equal, apart, unknown, seeds)
    return Finding(question, name, names[best], value, "highest" if larger else "smallest", tuple(equal), note)


def _note(equal: Sequence[str], apart: Sequence[str], unknown: Sequence[str], seeds: int) -> str:
    """What is known of the others' differences from the best: within the spread, beyond it, or undefined."""
    said = []
    if equal and seeds > 1:
        said.append(f"{listed(equal)} {_differ(equal)} from it by no more than the spread over seeds.")
    elif equal:
        said.append(f"{listed(equal)} {'has' if len(equal) == 1 else 'have'} the same.")
    elif apart and seeds > 1:
        others = listed(apart) if unknown else "Every other"
        what = _differ(apart) if unknown else "differs"
        said.append(f"{others} {what} from it by more than the spread over seeds.")
    if unknown:
        why = ": fewer than two seeds define both" if seeds > 1 else ""
        said.append(f"The difference from {listed(unknown)} is undefined{why}.")
    return " ".join(said)


def _differ(names: Sequence[str]) -> str:
    return "differs" if len(names) == 1 else "differ"


def _lead(findings: Sequence[Finding], names: list[str], seeds: int) -> str:
    defined = [f for f in findings if f.value]
    if not defined:
        return "No figure of this comparison is defined, so it says nothing about the strategies."
    if len(names) == 1:
        return f"Only {names[0]} was run, so there is nothing to compare it with."
    tied = [{f.winner, *f.equal} for f in defined]
    if all(len(t) == len(names) for t in tied):
        same = "The differences are within the spread over seeds" if seeds > 1 else "All figures are the same"
        return f"{same}: this comparison does not separate the strategies."
    everywhere = [name for name in names if all(name in t for t in tied)]
    count = {1: "the one figure", 2: "both figures", 3: "all three figures"}[len(defined)]
    if everywhere:
        outright = all(f.winner == everywhere[0] and not f.equal for f in defined)
        verb = "is" if len(everywhere) == 1 else "are"
        how = "best" if outright or seeds < 2 else "best, or within the spread over seeds of the best,"
        return f"{listed(everywhere)} {verb} {how} on {count}."
    parts = [f"{f.winner} has the {f.superlative} {f.figure}" for f in defined]
    return f"No way of federating is best on {count}: {listed(parts)}."
