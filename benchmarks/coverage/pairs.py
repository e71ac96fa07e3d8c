"""Strategies compared: the difference of two, and of many at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from benchmarks.coverage.tally import Tally
from benchmarks.coverage.truth import Compared, Effects, Floats, compared
from raysim.statistics.paired import Paired, paired
from raysim.statistics.patients import patient_covariance, patient_sums
from raysim.statistics.simultaneous import adjusted

MODELS = 6


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


def _truth(effects: Effects) -> float:
    return float(effects.auroc(effects.advantage) - effects.auroc(0.0))


def _differences(drawn: Compared, covariance: Floats, against: list[tuple[int, int]]) -> list[Paired]:
    return [
        paired(drawn.auroc[a], drawn.auroc[b], drawn.rows, patients=patient_sums(covariance, a, b)) for a, b in against
    ]
