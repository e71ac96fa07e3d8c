"""How much of the differences between hospitals, and between groups of patients, chance alone explains.

Runs with other seeds test on largely the same patients, so their figures are no independent evidence: tests and
intervals come from the first seed alone, which is named (:mod:`raysim.statistics.chance.noise_floor`).
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
from raysim.engine.measuring.subgroups import UNKNOWN
from raysim.metrics.labels import REGRESSION, TaskKind
from raysim.statistics.chance.drawn import Chance
from raysim.statistics.chance.group_gap import GroupGap, error_gap, group_difference, group_gap
from raysim.statistics.chance.inversion import Estimate
from raysim.statistics.chance.noise_floor import NoiseFloor, error_floor, noise_floor
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.intervals import hanley_mcneil
from raysim.statistics.levels import ALPHA
from raysim.statistics.meta_analysis.size_slope import SizeSlope, size_slope
from raysim.statistics.meta_analysis.spread import paule_mandel

DRAWS = 200
"""Federations drawn for each true spread that is tried, and for gaps: a third of a second for 208 hospitals."""

NONE = Estimate(float("nan"), float("nan"), float("nan"))
NO_SLOPE = SizeSlope(*[float("nan")] * 5)


@dataclass(frozen=True, eq=False)
class Gap:
    """The gap between an attribute's known groups of patients."""

    of: GroupGap
    """The gap on the test rows, with what equal groups would show."""
    true: Estimate
    """The true gap of exactly two groups with its interval, which begins at 0 where either may be the larger; NaN for
    more groups."""


@dataclass(frozen=True, eq=False)
class Noise:
    """One model's differences between hospitals and between patients, compared with chance, for one training seed."""

    seed: int
    """The training seed."""
    floor: NoiseFloor
    """Spread over hospitals."""
    slope: SizeSlope
    """The slope of AUROC on hospitals' size."""
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    """Gaps between groups of patients by attribute; only of the headline model of a strategy."""

    def sentences(self) -> list[str]:
        """Sentences on what these differences show."""
        lines = [self.floor.sentence()]
        if np.isfinite(self.slope.low):
            lines.append(size_sentence(self.slope))
        tested = {attribute: gap.of for attribute, gap in self.gaps.items() if np.isfinite(gap.of.p)}
        digits = ".3f" if self.floor.larger else ".3g"
        level = ALPHA / max(len(tested), 1)  # Bonferroni: a claim for any of the attributes errs in 5 %
        beyond = [_gap(attribute, gap, digits) for attribute, gap in tested.items() if gap.p <= level]
        within = [_gap(attribute, gap, digits) for attribute, gap in tested.items() if gap.p > level]
        by = f" at {level:.2g}, 5 % over all attributes" if len(tested) > 1 else ""
        if beyond:
            lines.append(f"Groups of patients are served differently{by}: {'; '.join(beyond)}.")
        if within:
            lines.append(f"No gap between groups of patients beyond test noise can be shown{by}: {'; '.join(within)}.")
        return lines


def _gap(attribute: str, gap: GroupGap, digits: str) -> str:
    low, high = f"{gap.low:{digits}}", f"{gap.high:{digits}}"
    return f"{attribute} {gap.value:{digits}} (equal groups of these sizes show {low} to {high}, p = {gap.p:.2f})"


def size_sentence(slope: SizeSlope) -> str:
    """A sentence on whether larger hospitals are shown to be served better, for a slope with an interval."""
    doubling, low, high = (value * np.log(2.0) for value in (slope.slope, slope.low, slope.high))
    interval = f"{doubling:+.4f} AUROC for twice the stays ({low:+.4f} to {high:+.4f})"
    if not slope.shown:
        return f"That AUROC depends on hospitals' size cannot be shown: {interval}."
    return f"{'Larger' if slope.slope > 0 else 'Smaller'} hospitals are served better: {interval}."


def slope_of(sums: PairSums, sizes: Sequence[int]) -> SizeSlope:
    """The slope of hospitals' AUROC on their size, from what each sends; undefined where none has both classes."""
    curve = common_curve(sums)
    judged = curve.judged
    if not judged.any():
        return size_slope(curve.auroc, curve.variance, sizes, 0.0)
    spread = paule_mandel(curve.auroc[judged], curve.variance[judged])
    return size_slope(curve.auroc, curve.variance, sizes, spread if np.isfinite(spread) else 0.0)


def noise(results: Sequence[Result], minimum_events: int) -> dict[tuple[str, str], Noise]:
    """The noise of every model served by the runs of the first seed; empty for labels of several classes.

    For real labels it is that of the mean absolute error, without a slope on size and without intervals of gaps.
    """
    if not results:
        return {}
    first = results[0].seed
    if results[0].federation.task is REGRESSION:
        return _of_errors([result for result in results if result.seed == first], minimum_events)
    # All models share the draws, so that they differ by their figures alone.
    chance = Chance(lambda: stream(first, "noise floor"))
    of_groups = {
        attribute: Chance(partial(stream, first, f"noise floor/{attribute}"))
        for result in results
        if result.outcome.grouping is not None
        for attribute, _ in result.outcome.grouping.levels
    }
    return {
        (result.label, model): Noise(
            first,
            noise_floor(
                sums,
                result.outcome.stays(result.federation, model),
                chance,
                minimum_events=minimum_events,
                draws=DRAWS,
            ),
            slope_of(sums, result.outcome.stays(result.federation, model).tolist()),
            _gaps(result.outcome, model, result.federation.task, of_groups),
        )
        for result in results
        if result.seed == first
        for model, sums in result.outcome.pairs.items()
    }


def _of_errors(results: Sequence[Result], minimum_rows: int) -> dict[tuple[str, str], Noise]:
    mae, rmse, rows = (REGRESSION.figures.index(name) for name in ("mae", "rmse", "n"))
    # The same deals of errors for all.
    chance = Chance(partial(stream, results[0].seed, "noise floor"))
    # For gaps another stream: rows are dealt out to groups, not to hospitals.
    of_gaps = Chance(partial(stream, results[0].seed, "noise floor/groups"))
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
                draws=DRAWS,
            ),
            NO_SLOPE,
            _error_gaps(result.outcome, model, of_gaps),
        )
        for result in results
        for model, counts in result.outcome.errors.items()
        for figures in [result.outcome.figures[model]]
    }


def _error_gaps(outcome: Outcome, model: str, chance: Chance) -> dict[str, Gap]:
    if outcome.grouping is None or model != list(outcome.figures)[-1]:
        return {}
    mae, rows = (REGRESSION.figures.index(name) for name in ("mae", "n"))
    errors, gaps = outcome.errors[model].errors, {}
    for attribute, levels in outcome.grouping.levels:
        level_figures = outcome.groups[model][attribute][1][[level != UNKNOWN for level in levels]]
        gaps[attribute] = Gap(
            error_gap(level_figures[:, mae], np.nan_to_num(level_figures[:, rows]), errors, chance, DRAWS), NONE
        )
    return gaps


def _gaps(outcome: Outcome, model: str, task: TaskKind, chance: Mapping[str, Chance]) -> dict[str, Gap]:
    if outcome.grouping is None or model != list(outcome.pairs)[-1]:
        return {}
    column = {name: i for i, name in enumerate(task.figures)}
    shape, gaps = common_curve(outcome.pairs[model]).event_sd, {}
    for attribute, levels in outcome.grouping.levels:
        together = outcome.groups[model][attribute][1]
        level_figures = together[[level != UNKNOWN for level in levels]]
        auroc = level_figures[:, column["auroc"]]
        events = np.nan_to_num(level_figures[:, column["events"]]).astype(np.int64)
        non_events = level_figures[:, column["n"]].astype(np.int64) - events
        sd = shape if np.isfinite(shape) else 1.0
        gap = group_gap(auroc, events, non_events, sd, chance[attribute], DRAWS)
        defined = np.isfinite(auroc) & (events > 0) & (non_events > 0)
        true = _of_two(auroc[defined], events[defined], non_events[defined]) if gap.groups == 2 else NONE
        gaps[attribute] = Gap(gap, true)
    return gaps


def _of_two(auroc: Any, events: Any, non_events: Any) -> Estimate:
    """The size of the difference of two groups, with its interval."""
    m, n = (tuple(int(count) for count in counts) for counts in (events, non_events))
    variance = hanley_mcneil(
        auroc, events, non_events
    )  # an upper bound of the groups' own variances, which are not sent
    a, v = (float(auroc[0]), float(auroc[1])), (float(variance[0]), float(variance[1]))
    limits = group_difference(a, v, (m[0], m[1]), (n[0], n[1]))
    low, high = float(limits.low), float(limits.high)
    return Estimate(max(0.0, low, -high), abs(a[0] - a[1]), max(-low, high))


def table(noise_of: Mapping[tuple[str, str], Noise]) -> pd.DataFrame:
    """``noise.csv``: a row a strategy, model and figure of dispersion; empty cells are undefined.

    ``value`` on the test rows; ``floor`` with ``floor_low`` and ``floor_high``, what equal service shows; ``p``, how
    often it shows one as bad; ``excess`` with its interval, what a true spread adds to the floor; ``true`` with its
    interval, the figure without test noise. ``size_slope`` is per unit of ln stays, with its interval as ``true``.
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
            gap_test = gap.of
            yield {
                **head,
                "figure": f"{attribute}_gap",
                "hospitals": model_noise.floor.hospitals,
                "value": gap_test.value,
                "floor": gap_test.floor,
                "floor_low": gap_test.low,
                "floor_high": gap_test.high,
                "p": gap_test.p,
                **_columns("true", gap.true),
            }


def _columns(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.estimate, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
