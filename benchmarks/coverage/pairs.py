"""Strategies compared: the difference of two, and of many at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np

from benchmarks.coverage.tally import Tally
from benchmarks.coverage.truth import Compared, Effects, compared
from raysim.core.levels import ALPHA
from raysim.metrics.equity import paired_interval, worst_decile
from raysim.statistics.differences.harm import harm
from raysim.statistics.differences.one_hospital import Sent, gain
from raysim.statistics.differences.paired import Paired, paired
from raysim.statistics.differences.simultaneous import adjusted, not_dominated
from raysim.statistics.differences.worst_decile import worst_decile_difference
from raysim.statistics.discrimination.auroc import PairSums, Placements
from raysim.statistics.discrimination.sketches import patient_part, sketches

MODELS = 6

FEW_MODELS = 4
"""Where worst deciles are drawn again for each pair."""

RESAMPLED = 1000
"""Draws of hospitals for each pair, as many as a comparison's non-dominated set has."""

TRUTHS = 1000
"""Federations whose mean difference of worst deciles is taken for the true one."""


def pairs(hospitals: int, seeds: int, effects: Effects, rng: np.random.Generator, draws: int) -> Tally:
    """Two strategies, the second with the advantage: the interval for hospitals like these, and for these."""
    tally = Tally()
    for _ in range(draws):
        drawn = compared(hospitals, seeds, 2, effects, rng)
        sent = _sent(drawn, rng)
        (pair,) = _differences(drawn, sent, [(1, 0)])
        interval = pair.population()
        tally.covers("hospitals like these", *interval, _truth(effects))
        tally.add("difference claimed", np.nan if np.isnan(interval.low) else interval.shows)
        tally.add("width", interval.high - interval.low)
        weights = np.where(np.isfinite(drawn.auroc).all(axis=0), drawn.rows, 0.0).sum(axis=0)
        each = effects.auroc(effects.advantage, drawn.fixed[1]) - effects.auroc(0.0, drawn.fixed[0])
        tally.covers("these hospitals", *pair.fixed(), float(weights @ each / weights.sum()))
        gained = gain(sent[1], sent[0])
        defined = np.isfinite(gained.low) & (gained.seeds == seeds)
        tally.add("one hospital", float(np.mean(((gained.low <= each) & (each <= gained.high))[defined])))
        if not effects.hospital and not effects.advantage:
            tally.add(
                "some hospital is claimed to lose although strategies are equal",
                harm(sent[1], sent[0]).losses.at_least > 0,
            )
    return tally


def families(hospitals: int, seeds: int, effects: Effects, rng: np.random.Generator, draws: int) -> Tally:
    """Six strategies, the last with the advantage: all against the first, and all pairs, adjusted together."""
    tally = Tally()
    for _ in range(draws):
        drawn = compared(hospitals, seeds, MODELS, effects, rng)
        sent = _sent(drawn, rng)
        for name, against in (
            ("against a reference", [(k, 0) for k in range(1, MODELS)]),
            ("all pairs", list(combinations(range(MODELS - 1, -1, -1), 2))),
        ):
            differences = _differences(drawn, sent, against)
            intervals = adjusted(differences)
            equal = [k for k, (a, _) in enumerate(against) if a < MODELS - 1 or not effects.advantage]
            tally.add(f"at least one equal strategy claimed to differ, {name}", any(intervals[k].shows for k in equal))
            tally.add(f"the same unadjusted, {name}", any(differences[k].population().shows for k in equal))
            truth = [0.0 if k in equal else _truth(effects) for k in range(len(against))]
            inside = [low <= value <= high for (low, high), value in zip(intervals, truth, strict=True)]
            tally.add(f"all intervals cover the true differences, {name}", all(inside))
            if effects.advantage:
                better = [intervals[k].low > 0 for k in range(len(against)) if k not in equal]
                tally.add(f"advantage claimed, {name}", float(np.mean(better)))
    return tally


def deciles(hospitals: int, seeds: int, effects: Effects, rng: np.random.Generator, draws: int) -> Tally:
    """The worst decile of two strategies, the second with the advantage."""
    tally = Tally()
    truth = _true_decile_difference(hospitals, effects)
    for _ in range(draws):
        drawn = compared(hospitals, seeds, 2, effects, rng)
        sides = drawn.auroc[1], drawn.auroc[0], drawn.rows
        interval = worst_decile_difference(*sides, rng, draws=RESAMPLED)
        tally.covers("worst decile", *interval, truth)
        tally.add("difference claimed, worst decile", np.nan if np.isnan(interval.low) else interval.shows)
        alone = paired_interval(*sides, rng, figure="worst_decile", draws=RESAMPLED)
        tally.covers("worst decile, hospitals alone", *alone, truth)
    return tally


def fronts(hospitals: int, seeds: int, effects: Effects, rng: np.random.Generator, draws: int) -> Tally:
    """Four strategies, the last with the advantage: which are dominated on the mean and the worst decile."""
    tally = Tally()
    pairs = list(combinations(range(FEW_MODELS), 2))
    for _ in range(draws):
        drawn = compared(hospitals, seeds, FEW_MODELS, effects, rng)
        intervals = adjusted(_differences(drawn, _sent(drawn, rng), pairs))
        better = np.zeros((FEW_MODELS, FEW_MODELS, 2), dtype=bool)
        for (i, j), of_mean in zip(pairs, intervals, strict=True):
            sides = drawn.auroc[i], drawn.auroc[j], drawn.rows
            level = 1 - ALPHA / len(pairs)
            of_decile = worst_decile_difference(*sides, rng, draws=RESAMPLED, level=level)
            for figure, interval in enumerate((of_mean, of_decile)):
                better[i, j, figure], better[j, i, figure] = interval.low > 0, interval.high < 0
        left = not_dominated(better)
        if not effects.advantage:
            tally.add("at least one equal strategy called dominated", not left.all())
        else:
            tally.add("the best strategy called dominated", not left[-1])
            tally.add("worse strategies called dominated", float(1 - left[:-1].mean()))
    return tally


@cache
def _true_decile_difference(hospitals: int, effects: Effects) -> float:
    """The mean over federations; 0 where strategies are equal."""
    if not effects.advantage:
        return 0.0
    rng, differences = np.random.default_rng(0), []
    for _ in range(TRUTHS):
        drawn = compared(hospitals, 1, 2, effects, rng)
        both = drawn.auroc[:, 0, np.isfinite(drawn.auroc[:, 0]).all(axis=0)]
        first, second = worst_decile(both)
        differences.append(float(second - first))
    return float(np.mean(differences))


def _truth(effects: Effects) -> float:
    return float(effects.auroc(effects.advantage) - effects.auroc(0.0))


def _sent(drawn: Compared, rng: np.random.Generator) -> list[list[Sent]]:
    """What hospitals send of each strategy and seed, ``[K][S]``; no patient is in two draws."""
    first = int(rng.integers(2**40))
    return [
        [
            Sent(_pairs(placed, k), sketches(_alone(placed, k), np.arange(len(placed.events)), first + ids))
            for placed, ids in zip(drawn.placed, drawn.ids, strict=True)
        ]
        for k in range(len(drawn.auroc))
    ]


def _alone(placed: Placements, k: int) -> Placements:
    return replace(placed, auroc=placed.auroc[k : k + 1], influence=placed.influence[k : k + 1])


def _pairs(placed: Placements, k: int) -> PairSums:
    """Those of which a difference needs nothing but the AUROC."""
    first = np.nan_to_num(4 * placed.auroc[k] * placed.events * placed.non_events, nan=-1.0).round().astype(np.int64)
    return PairSums(placed.events, placed.non_events, first, first, first, first)


def _differences(drawn: Compared, sent: list[list[Sent]], against: list[tuple[int, int]]) -> list[Paired]:
    sums = [[each.sketches for each in seeds] for seeds in sent]
    found = []
    for a, b in against:
        rows = np.where(np.isfinite(drawn.auroc[a] - drawn.auroc[b]), drawn.rows, 0.0)
        patients = patient_part(sums[a], sums[b], rows)
        found.append(paired(drawn.auroc[a], drawn.auroc[b], drawn.rows, patients=patients))
    return found
