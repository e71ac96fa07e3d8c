"""The part of the differences between hospitals, and between groups of patients, that chance alone explains.

Runs with different seeds share most test patients, so tests and intervals use only the first seed
(:mod:`raysim.statistics.chance.noise_floor`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from raysim.core.streams import stream
from raysim.engine.job import Outcome, Result
from raysim.metrics.labels import REGRESSION
from raysim.report.judgement import fairness
from raysim.statistics.chance.inversion import Estimate
from raysim.statistics.chance.noise_floor import NoiseFloor, error_floor, noise_floor
from raysim.statistics.chance.simulate import Chance
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.meta_analysis.size_slope import SizeSlope, size_slope
from raysim.statistics.meta_analysis.spread import paule_mandel
from raysim.statistics.patient_groups.within import WithinGap

DRAWS = 200
"""The number of federations simulated for each assumed true spread between hospitals."""

FEWEST_DRAWS = 40
"""The smallest number of federations simulated: with 40, the smallest p-value is 1/41, below 2.5 %."""

MOST_HOSPITALS = 10_000_000
"""The federations simulated for one true spread have at most this many hospitals in total, unless there are only
:data:`FEWEST_DRAWS` federations.
"""

NO_SLOPE = SizeSlope(*[float("nan")] * 5)


@dataclass(frozen=True, eq=False)
class Noise:
    """How one model's performance differs between hospitals and patient groups, compared with chance, for one seed."""

    seed: int
    floor: NoiseFloor
    """The spread of the main metric (AUROC or MAE) over hospitals, compared with the spread by chance alone."""
    slope: SizeSlope
    """The slope of AUROC on the natural logarithm of hospital size; NaN for a numeric label."""
    gaps: Mapping[str, WithinGap] = field(default_factory=dict)
    """For each attribute of patients, the gap in the metric between groups within hospitals; empty except for a main
    model.
    """
    pooled: Mapping[str, float] = field(default_factory=dict)
    """For each attribute of ``gaps``, the largest difference between groups over all rows; it includes differences
    between hospitals."""

    def sentences(self) -> list[str]:
        """Return sentences on how performance differs between hospitals, with hospital size, and between patient
        groups.
        """
        lines = [self.floor.sentence()]
        if np.isfinite(self.slope.low):
            lines.append(size_sentence(self.slope))
        return [*lines, *fairness.sentences(list(self.gaps.values()))]


def size_sentence(slope: SizeSlope) -> str:
    """Return a sentence on whether the AUROC demonstrably depends on hospital size."""
    if not np.isfinite([slope.slope, slope.low, slope.high]).all():
        return "Whether AUROC depends on hospital size cannot be estimated."
    doubling, low, high = (value * np.log(2.0) for value in (slope.slope, slope.low, slope.high))
    interval = f"{doubling:+.4f} AUROC for twice the stays ({low:+.4f} to {high:+.4f})"
    if not slope.demonstrated:
        return f"No dependence of AUROC on hospital size was demonstrated: {interval}."
    return f"AUROC is higher at {'larger' if slope.slope > 0 else 'smaller'} hospitals: {interval}."


def slope_of(sums: PairSums, sizes: Sequence[int]) -> SizeSlope:
    """Estimate the slope of AUROC on hospital size from sums over pairs of rows; undefined if no AUROC is defined."""
    curve = common_curve(sums)
    judged = curve.judged
    if not judged.any():
        return size_slope(curve.auroc, curve.variance, sizes, 0.0)
    spread = paule_mandel(curve.auroc[judged], curve.variance[judged])
    return size_slope(curve.auroc, curve.variance, sizes, spread if np.isfinite(spread) else 0.0)


def draws_for(hospitals: int) -> int:
    """Return how many federations are simulated; fewer for many hospitals, to limit the time."""
    return max(FEWEST_DRAWS, min(DRAWS, MOST_HOSPITALS // max(hospitals, 1)))


def noise(results: Sequence[Result], minimum_events: int) -> dict[tuple[str, str], Noise]:
    """Compare each model's differences between hospitals with chance, for the first seed; empty for more than two
    classes.

    The lowest AUROC is sought among hospitals with at least ``minimum_events`` rows of each class. For a numeric label,
    the highest error is sought among hospitals with at least this many rows.
    """
    if not results:
        return {}
    first = results[0].seed
    if results[0].federation.task is REGRESSION:
        return _of_errors([result for result in results if result.seed == first], minimum_events)
    # All models share the random numbers, so that only their figures differ.
    chance = Chance(lambda: stream(first, "noise floor"))
    return {
        (result.label, model): Noise(
            first,
            noise_floor(
                sums,
                result.outcome.stays(result.federation, model),
                chance,
                minimum_events=minimum_events,
                draws=draws_for(len(sums.events)),
            ),
            slope_of(sums, result.outcome.stays(result.federation, model).tolist()),
            *_gaps(result.outcome, model),
        )
        for result in results
        if result.seed == first
        for model, sums in result.outcome.pairs.items()
    }


def _of_errors(results: Sequence[Result], minimum_rows: int) -> dict[tuple[str, str], Noise]:
    mae, rmse, rows = (REGRESSION.figures.index(name) for name in ("mae", "rmse", "n"))
    # All models share the random assignments of errors.
    chance = Chance(partial(stream, results[0].seed, "noise floor"))
    return {
        (result.label, model): Noise(
            result.seed,
            error_floor(
                REGRESSION.title,
                figures[:, mae],
                figures[:, rmse],
                counts.errors,
                np.nan_to_num(figures[:, rows]).astype(np.int64),
                result.outcome.stays(result.federation, model),
                chance,
                minimum_rows=minimum_rows,
                draws=draws_for(len(figures)),
            ),
            NO_SLOPE,
            *_gaps(result.outcome, model),
        )
        for result in results
        for model, counts in result.outcome.errors.items()
        for figures in [result.outcome.figures[model]]
    }


def _gaps(outcome: Outcome, model: str) -> tuple[Mapping[str, WithinGap], Mapping[str, float]]:
    """Return the gaps between groups of patients, within hospitals and over all rows; empty unless ``model`` is the
    main model.
    """
    if model != list(outcome.figures)[-1]:
        return {}, {}
    return outcome.gaps, {attribute: outcome.metrics[model][f"{attribute}_gap"] for attribute in outcome.gaps}


def table(noise_of: Mapping[tuple[str, str], Noise]) -> pd.DataFrame:
    """Return ``noise.csv``: one row for each strategy, model and measure of dispersion; empty cells are undefined.

    - ``value``: the measure on the test rows.
    - ``floor`` with ``floor_low`` and ``floor_high``: the measure if all hospitals had equal true performance.
    - ``p``: the probability of a value at least as bad under equal true performance.
    - ``excess`` with its interval: what a true spread between hospitals adds to ``floor``.
    - ``true`` with its interval: the measure without the noise of finite test rows.

    The rows ``size_slope`` are slopes of AUROC per unit of the natural logarithm of hospital size, with their interval
    in ``true``.
    The rows ``<attribute>_within`` are gaps between groups of patients within hospitals, with their interval in
    ``true``. The rows ``<attribute>_gap`` are gaps over all rows, which are not tested.
    """
    return pd.DataFrame(_rows(noise_of))


def _rows(noise_of: Mapping[tuple[str, str], Noise]) -> Iterator[dict[str, Any]]:
    for (strategy, model), model_noise in noise_of.items():
        head = {"strategy": strategy, "model": model}
        for name, figure in model_noise.floor.figures.items():
            yield {
                **head,
                "figure": name,
                "hospitals": model_noise.floor.hospitals,
                "value": figure.value,
                "floor": figure.floor,
                "floor_low": figure.low,
                "floor_high": figure.high,
                "p": figure.p,
                **_columns("excess", figure.excess),
                **_columns("true", figure.true),
            }
        if np.isfinite(model_noise.slope.low):
            slope = Estimate(model_noise.slope.low, model_noise.slope.slope, model_noise.slope.high)
            yield {**head, "figure": "size_slope", "hospitals": model_noise.floor.hospitals, **_columns("true", slope)}
        for attribute, gap in model_noise.gaps.items():
            yield {**head, "figure": f"{attribute}_gap", "value": model_noise.pooled[attribute]}
            within = Estimate(gap.low, gap.estimate, gap.high)
            counted = {"hospitals": gap.hospitals, "value": gap.estimate, "p": gap.p}
            yield {**head, "figure": f"{attribute}_within", **counted, **_columns("true", within)}


def _columns(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.estimate, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
