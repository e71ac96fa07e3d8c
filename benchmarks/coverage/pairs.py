"""Strategies compared: the difference of two, and of many at once."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np

from benchmarks.coverage.tally import Tally
from benchmarks.coverage.truth import Compared, Effects, Floats, compared
from raysim.metrics.equity import paired_interval, worst_decile
from raysim.statistics.differences.paired import Paired, paired
from raysim.statistics.differences.simultaneous import adjusted, not_dominated
from raysim.statistics.differences.worst_decile import worst_decile_difference
from raysim.statistics.discrimination.patients import patient_covariance, patient_sums
from raysim.statistics.levels import ALPHA

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
        (pair,) = _differences(drawn, patient_covariance(drawn.placed, drawn.ids), [(1, 0)])
        interval = pair.population()
        tally.covers("hospitals like these", *interval, _truth(effects))
        tally.add("difference shown", np.nan if np.isnan(interval.low) else interval.shows)
        tally.add("width", interval.high - interval.low)
        weights = np.where(np.isfinite(drawn.auroc).all(axis=0), drawn.rows, 0.0).sum(axis=0)
        each = effects.auroc(effects.advantage, drawn.fixed[1]) - effects.auroc(0.0, drawn.fixed[0])
        tally.covers("these hospitals", *pair.fixed(), float(weights @ each / weights.sum()))
    return tally


def families(hospitals: int, seeds: int, effects: Effects, rng: np.random.Generator, draws: int) -> Tally:
    """Six strategies, the last with the advantage: all against the first, and all pairs, adjusted together."""
    tally = Tally()
    for _ in range(draws):
        drawn = compared(hospitals, seeds, MODELS, effects, rng)
        covariance = patient_covariance(drawn.placed, drawn.ids)
        for name, against in (
            ("against a reference", [(k, 0) for k in range(1, MODELS)]),
            ("all pairs", list(combinations(range(MODELS - 1, -1, -1), 2))),
        ):
            differences = _differences(drawn, covariance, against)
            intervals = adjusted(differences)
            equal = [k for k, (a, _) in enumerate(against) if a < MODELS - 1 or not effects.advantage]
            tally.add(f"any equal one shown, {name}", any(intervals[k].shows for k in equal))
            tally.add(f"the same unadjusted, {name}", any(differences[k].population().shows for k in equal))
            truth = [0.0 if k in equal else _truth(effects) for k in range(len(against))]
            inside = [low <= value <= high for (low, high), value in zip(intervals, truth, strict=True)]
            tally.add(f"all intervals hold the truth, {name}", all(inside))
            if effects.advantage:
                better = [intervals[k].low > 0 for k in range(len(against)) if k not in equal]
                tally.add(f"advantage shown, {name}", float(np.mean(better)))
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
        tally.add("difference shown, worst decile", np.nan if np.isnan(interval.low) else interval.shows)
        alone = paired_interval(*sides, rng, figure="worst_decile", draws=RESAMPLED)
        tally.covers("worst decile, hospitals alone", *alone, truth)
    return tally


def fronts(hospitals: int, seeds: int, effects: Effects, rng: np.random.Generator, draws: int) -> Tally:
    """Four strategies, the last with the advantage: which are dominated on the mean and the worst decile."""
    tally = Tally()
    pairs = list(combinations(range(FEW_MODELS), 2))
    for _ in range(draws):
        drawn = compared(hospitals, seeds, FEW_MODELS, effects, rng)
        intervals = adjusted(_differences(drawn, patient_covariance(drawn.placed, drawn.ids), pairs))
        better = np.zeros((FEW_MODELS, FEW_MODELS, 2), dtype=bool)
        for (i, j), of_mean in zip(pairs, intervals, strict=True):
            sides = drawn.auroc[i], drawn.auroc[j], drawn.rows
            level = 1 - ALPHA / len(pairs)
            of_decile = worst_decile_difference(*sides, rng, draws=RESAMPLED, level=level)
            for figure, interval in enumerate((of_mean, of_decile)):
                better[i, j, figure], better[j, i, figure] = interval.low > 0, interval.high < 0
        left = not_dominated(better)
        if not effects.advantage:
            tally.add("any equal one dominated", not left.all())
        else:
            tally.add("the best one dominated", not left[-1])
            tally.add("worse ones shown dominated", float(1 - left[:-1].mean()))
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


def _differences(drawn: Compared, covariance: Floats, against: list[tuple[int, int]]) -> list[Paired]:
    return [
        paired(drawn.auroc[a], drawn.auroc[b], drawn.rows, patients=patient_sums(covariance, a, b)) for a, b in against
    ]
