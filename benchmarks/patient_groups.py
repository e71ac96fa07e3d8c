"""How often gaps between patient groups are claimed where there are none, found where there are, and covered.

    python -m benchmarks.patient_groups --draws 1000 [--only Simpson]

Federations with a known truth are drawn; their hospitals send what the product's hospitals send, with 199 permutations.
The last column is what a test of the gap over all patients would say. Results: ``docs/statistics.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

from raysim.core.levels import ALPHA
from raysim.statistics.discrimination.auroc import delong, placements
from raysim.statistics.patient_groups.arrangements import permuted
from raysim.statistics.patient_groups.contributions import averaged, contribution, pairs, ranked, weights
from raysim.statistics.patient_groups.risks import group_risks, risk_sums
from raysim.statistics.patient_groups.within import AttributeSums, WithinGap, merged, within_gap

Floats = NDArray[np.float64]
Generator = np.random.Generator

DRAWS = 199
"""Permutations of each federation, as in few runs, so that many federations can be drawn."""


@dataclass(frozen=True)
class Rows:
    """A hospital's rows: ``score [n]``, ``event [n]`` (None: ``score`` is an absolute error), ``group [n]``."""

    score: Floats
    event: NDArray[np.bool_] | None
    group: NDArray[np.int64]


Federation = list[Rows]


@dataclass(frozen=True)
class Design:
    """A way of drawing federations, with the true gap of the first group less the second."""

    draw: Callable[[Generator], Federation]
    gap: float = 0.0
    groups: int = 2
    alike: bool = False
    """Whether scores are risks that are right for both groups, up to a shift for each hospital."""
    varies: bool = False
    """Whether hospitals' gaps differ: then ``gap`` is the mean over hospitals like these alone."""


def shift(auroc: float | Floats) -> Floats:
    """How far events lie above non-events, in standard deviations, at an AUROC."""
    return np.asarray(np.sqrt(2.0) * ndtri(auroc))


def simpson(rng: Generator) -> Federation:
    """Ten hospitals, half of which see few events and many of the first group; scores know how often events are."""
    made = []
    for h in range(10):
        intercept, share = ((-2.5, 0.6), (1.5, 0.04))[h % 2]
        x = rng.standard_normal(160)
        logit = intercept + x
        made.append(Rows(logit, rng.random(160) < expit(logit), (rng.random(160) >= share).astype(np.int64)))
    return made


def apart(rng: Generator) -> Federation:
    """Twenty hospitals where the model ranks well and has many of the first group, or ranks badly and has few."""
    return [hospital(rng, 150, 0.2, ((0.92, 0.8), (0.66, 0.15))[h % 2]) for h in range(20)]


def hospital(rng: Generator, rows: int, events: float, of: tuple[float, float]) -> Rows:
    """``rows`` of two groups that are ranked alike, at an AUROC and a share of the first group."""
    auroc, share = of
    event = rng.random(rows) < events
    return Rows(rng.standard_normal(rows) + event * shift(auroc), event, (rng.random(rows) >= share).astype(np.int64))


def sizes(rng: Generator, hospitals: int, median: float) -> NDArray[np.int64]:
    rows = np.maximum(4.0, np.exp(np.log(median) + 0.8 * rng.standard_normal(hospitals)))
    return np.asarray(rows.astype(np.int64))


def usual(
    rng: Generator,
    *,
    rows: Callable[[Generator], NDArray[np.int64]],
    events: tuple[float, ...] = (0.2, 0.2),
    share: float = 0.5,
    auroc: tuple[float, ...] = (0.8, 0.8),
    moved: float = 0.0,
    spread: float = 1.0,
    varies: float = 0.0,
) -> Federation:
    """Hospitals whose groups have their own events and AUROC; scores of the first are ``moved`` and more spread.

    ``varies``: the standard deviation over hospitals of the first group's distance between events and others.
    """
    made = []
    for n in rows(rng):
        shares = (share, 1 - share) if len(auroc) == 2 else (1 / len(auroc),) * len(auroc)
        group = rng.choice(len(auroc), n, p=shares)
        event = rng.random(n) < np.array(events)[group]
        distance = shift(np.array(auroc)) + varies * rng.standard_normal() * (np.arange(len(auroc)) == 0)
        score = rng.standard_normal(n) + event * distance[group]
        first = group == 0
        made.append(Rows(np.where(first, moved + spread * score, score), event, group))
    return made


def errors(rng: Generator, *, law: str, apart: bool) -> Federation:
    """Twenty hospitals' absolute errors, whose level varies; ``apart``: the first group goes to where it is high."""
    made = []
    for n in sizes(rng, 20, 60):
        level = rng.standard_normal()
        share = (0.8 if level > 0 else 0.15) if apart else 0.4
        group = (rng.random(n) >= share).astype(np.int64)
        error = np.abs(rng.standard_normal(n)) if law == "normal" else rng.lognormal(size=n)
        made.append(Rows(error * np.exp(0.5 * level), None, group))
    return made


def equal(count: int, rows: int) -> Callable[[Generator], NDArray[np.int64]]:
    return lambda _: np.full(count, rows)


def varied(count: int, median: float) -> Callable[[Generator], NDArray[np.int64]]:
    return lambda rng: sizes(rng, count, median)


TWENTY, MANY = varied(20, 100), varied(208, 17)

DESIGNS = {
    "Simpson: 10 x 160, rare and frequent events, 60 or 4 % of a group": Design(simpson, alike=True),
    "20 x 150, AUROC .92 or .66, 80 or 15 % of a group": Design(apart, alike=True),
    "20, median 100 rows, nothing": Design(partial(usual, rows=TWENTY), alike=True),
    "the same, a group's scores shifted by 1, other prevalence": Design(
        partial(usual, rows=TWENTY, events=(0.35, 0.15), moved=1.0)
    ),
    "the same, a group of 15 % with scores twice as spread": Design(
        partial(usual, rows=TWENTY, share=0.15, spread=2.0)
    ),
    "4 x 150, a group's scores three times as spread": Design(
        partial(usual, rows=equal(4, 150), share=0.3, spread=3.0)
    ),
    "208, median 17 rows, 9 % events": Design(partial(usual, rows=MANY, events=(0.09, 0.09)), alike=True),
    "three groups, 20 x 100": Design(
        partial(usual, rows=equal(20, 100), events=(0.2,) * 3, auroc=(0.8,) * 3), groups=3, alike=True
    ),
    "three groups, 20 x 100, one shifted": Design(
        partial(usual, rows=equal(20, 100), events=(0.2,) * 3, auroc=(0.8,) * 3, moved=1.0), groups=3
    ),
    "20, median 100, AUROC .70 and .80": Design(partial(usual, rows=TWENTY, auroc=(0.7, 0.8)), gap=-0.1),
    "208, median 17, 9 % events, AUROC .70 and .80": Design(
        partial(usual, rows=MANY, events=(0.09, 0.09), auroc=(0.7, 0.8)), gap=-0.1
    ),
    "20 x 200, the gap differs between hospitals": Design(
        partial(usual, rows=equal(20, 200), varies=0.5),
        gap=float(ndtr(shift(0.8) / 1.5)) - 0.8,
        varies=True,
    ),
    "errors, 20, median 60, level varies": Design(partial(errors, law="normal", apart=False)),
    "errors, the same, a group goes to where they are large": Design(partial(errors, law="normal", apart=True)),
    "errors, the same, log-normal": Design(partial(errors, law="log-normal", apart=True)),
    "four groups, 20 x 130, one shifted": Design(
        partial(usual, rows=equal(20, 130), events=(0.2,) * 4, auroc=(0.8,) * 4, moved=1.0), groups=4
    ),
}


def sent(rows: Rows, groups: int, rng: Generator) -> AttributeSums:
    """What a hospital sends."""
    strata = [rows.group] if rows.event is None else [rows.group[rows.event], rows.group[~rows.event]]
    counts, risks = np.stack([np.bincount(each, minlength=groups) for each in strata], axis=1), None
    if rows.event is not None:
        risks = risk_sums(rows.score, rows.event, [0, len(rows.score)], rows.group, groups)
    weight = weights(counts)
    value, variance = np.full((2, 1, groups), np.nan)
    units = np.zeros((2, len(pairs(groups)), DRAWS + 1), dtype=np.int64)
    scale = 0
    if (weight > 0).any():
        if rows.event is None:
            figures, scale = averaged(rows.score, permuted(rows.group, DRAWS, rng), groups)
        else:
            labels = permuted(rows.group[rows.event], DRAWS, rng), permuted(rows.group[~rows.event], DRAWS, rng)
            figures = ranked(rows.score, rows.event, labels, groups)
        units += contribution(figures, weight)
        value[0], variance[0] = (
            np.ldexp(figures.value[:, 0], scale),
            np.ldexp(figures.variance[:, 0], 2 * scale),
        )
    return AttributeSums(counts[None], value, variance, risks, {scale: units})


def pooled_p(federation: Federation) -> float:
    """What a normal test of the first group less the second over all rows says."""
    score, group = (np.concatenate([getattr(rows, name) for rows in federation]) for name in ("score", "group"))
    if federation[0].event is None:
        parts = [score[group == g] for g in (0, 1)]
        difference, variance = parts[0].mean() - parts[1].mean(), sum(part.var(ddof=1) / len(part) for part in parts)
    else:
        event = np.concatenate([rows.event for rows in federation if rows.event is not None])
        order = np.argsort(group, kind="stable")
        cuts = np.searchsorted(group[order], np.arange(3))
        kept = order[: cuts[-1]]
        of = delong(placements(score[kept], event[kept].astype(int), cuts))
        difference, variance = of.auroc[0, 0] - of.auroc[0, 1], of.variance[0, 0] + of.variance[0, 1]
    return float(2 * ndtr(-abs(difference) / np.sqrt(variance)))


def outcomes(design: Design, rng: Generator) -> Iterator[tuple[str, float]]:
    """What one federation of a design shows."""
    federation = design.draw(rng)
    parts = [sent(rows, design.groups, rng) for rows in federation]
    sums = merged(parts, np.arange(len(parts)))
    names = [str(g) for g in range(design.groups)]
    found: WithinGap = within_gap("group", names, sums, larger=sums.risks is not None)
    pair = found.pairs[0]
    yield "claimed", found.p <= ALPHA
    if not design.varies:
        yield "covered", pair.low <= design.gap <= pair.high
    yield "covered for hospitals like these", pair.like_low <= design.gap <= pair.like_high
    if design.alike and sums.risks is not None:
        yield "risks claimed", group_risks(names, sums.risks)[0].p <= ALPHA
    yield "over all patients", pooled_p(federation) <= ALPHA


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    columns = ("claimed", "covered", "covered for hospitals like these", "risks claimed", "over all patients")
    print("| federations | " + " | ".join(columns) + " | draws |")
    print("|---|" + "---|" * (len(columns) + 1))
    for k, (name, design) in enumerate(DESIGNS.items()):
        if asked.only not in name:
            continue
        seen: dict[str, list[float]] = {}
        for draw in range(asked.draws):
            for column, value in outcomes(design, np.random.default_rng([k, draw])):
                seen.setdefault(column, []).append(value)
        cells = [f"{np.mean(seen[column]):.3f}".lstrip("0") if column in seen else "" for column in columns]
        print(f"| {name} | " + " | ".join(cells) + f" | {asked.draws} |", flush=True)


if __name__ == "__main__":
    main()
