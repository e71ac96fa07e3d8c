"""Each hospital's gain by federating, the mean over seeds, with an interval over its patients and the seeds.

A gain is a hospital's AUROC or error under one model minus that under another, on the same test rows. Rows and
predictions stay at the hospital (:mod:`raysim.statistics.differences.one_hospital`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.words import counted
from raysim.engine.job import Outcome, Result
from raysim.metrics.labels import TaskKind
from raysim.report import svg
from raysim.report.naming import MODELS, Key, number
from raysim.report.tables import made_of
from raysim.statistics.differences.one_hospital import Sent, gain
from raysim.statistics.over_seeds import OverSeeds, over_seeds
from raysim.storage.run_tables import auroc_intervals

MUCH = 0.05
"""Hospitals whose AUROC falls by more than this are counted separately."""

GAIN, LOSS = svg.Style(4, "triangle"), svg.Style(11, "down")
"""The markers of hospitals that demonstrably gain or lose."""


@dataclass(frozen=True, eq=False)
class Gains:
    """What each of ``H`` hospitals gains by using one model instead of another, in AUROC or error."""

    value: Floats
    """Each hospital's metric under ``better`` minus that under ``against``, the mean over seeds, ``[H]``; NaN if
    undefined."""
    low: Floats
    """The lower limits of the intervals of ``value``, ``[H]``; NaN if there is none."""
    high: Floats
    """The upper limits of the intervals of ``value``, ``[H]``; NaN if there is none."""
    seeds: NDArray[np.int64]
    """The number of seeds for which each gain is defined, ``[H]``."""
    trained: int
    """The number of seeds with which both models were trained."""
    better: str
    """The display name of the model that is used instead of ``against``."""
    against: str
    """The display name of the model with which ``better`` is compared."""
    kind: TaskKind

    @property
    def sign(self) -> int:
        """The sign of an improvement: 1 if larger values of the metric are better (AUROC), -1 otherwise (errors)."""
        return 1 if self.kind.larger else -1

    def gaining(self) -> NDArray[np.bool_]:
        """Whether each hospital demonstrably gains: the interval of its gain contains improvements only."""
        return self._judged() & (self.low > 0 if self.sign > 0 else self.high < 0)

    def losing(self) -> NDArray[np.bool_]:
        """Whether each hospital demonstrably loses: the interval of its gain contains losses only."""
        return self._judged() & (self.high < 0 if self.sign > 0 else self.low > 0)

    def _judged(self) -> NDArray[np.bool_]:
        """Whether each hospital's gain is defined for at least two seeds.

        If the models were trained with one seed only, the result is true for every hospital.
        """
        return (self.seeds > 1) | (self.trained == 1)

    def sentences(self) -> list[str]:
        """Return sentences on how many hospitals gain and lose."""
        up = self.sign * self.value[np.isfinite(self.value)]
        if not len(up):
            return [f"No hospital has a defined {self.kind.title} with both models, so gains cannot be computed."]
        gain, lose = int((up > 0).sum()), int((up < 0).sum())
        much = f" ({int((up < -MUCH).sum())} by more than {MUCH:g})" if self.kind.larger else ""
        first = (
            f"Of {len(up)} judged hospitals, {gain} gain over {self.against}, {lose} lose{much}, and "
            f"{len(up) - gain - lose} do not change."
        )
        judged = int((np.isfinite(self.low) & self._judged()).sum())
        if not judged:
            return [first]
        of = (
            "over patients (one training seed)"
            if self.trained == 1
            else f"over patients and {self.trained} training seeds"
        )
        return [
            first,
            f"The 95 % interval {of} demonstrates a gain at {counted(int(self.gaining().sum()), 'hospital')} and a "
            f"loss at {int(self.losing().sum())}. Intervals are not adjusted for the number of hospitals: without true "
            f"differences, at most {by_chance(judged)} would gain by chance on average, and as many lose.",
        ]


def by_chance(judged: int) -> str:
    """Return, as text, the largest mean number of ``judged`` hospitals that gain by chance, if there is no true
    difference.

    An interval lies above 0 in at most 2.5 % of cases. The intervals of several seeds are wide, and lie above 0 far
    less often.
    """
    expected = 0.025 * judged
    return number(expected, 0 if expected >= 2 else 1)


def served(results: Sequence[Result], key: Key) -> OverSeeds:
    """Return each hospital's mean main metric over seeds under the model ``key``, with an interval if available."""
    runs = [result for result in results if result.label == key[0] and key[1] in result.outcome.figures]
    each = [_of_seed(result.outcome, key[1], result.federation.task) for result in runs]
    bounds = (0.0, 1.0) if runs[0].federation.task.larger else (0.0, np.inf)
    return over_seeds(*np.stack(each, axis=1), within=bounds)


def between(results: Sequence[Result], key: Key, base: Key, names: tuple[str, str]) -> Gains:
    """Return what each hospital gains by using the model ``key`` instead of the model ``base``.

    ``names`` are the display names of ``key`` and ``base``; ``results`` contains the runs of all strategies and seeds.
    """
    of: dict[str, dict[int, Result]] = {key[0]: {}, base[0]: {}}
    for result in results:
        if result.label in of:
            of[result.label][result.seed] = result
    seeds = [seed for seed in of[key[0]] if seed in of[base[0]]]
    kind = results[0].federation.task
    pairs = [(of[key[0]][seed].outcome, of[base[0]][seed].outcome) for seed in seeds]
    if all(key[1] in first.sketches and base[1] in second.sketches for first, second in pairs):
        models = [_sent(first, key[1]) for first, _ in pairs]
        against = [_sent(second, base[1]) for _, second in pairs]
        return Gains(*gain(models, against), len(seeds), *names, kind)
    each = [_of_seed(first, key[1], kind)[0] - _of_seed(second, base[1], kind)[0] for first, second in pairs]
    nothing = np.full(np.shape(each), np.nan)
    return Gains(*over_seeds(each, nothing, nothing), len(seeds), *names, kind)


def _sent(outcome: Outcome, model: str) -> Sent:
    return Sent(outcome.pairs[model], outcome.sketches[model])


def _of_seed(outcome: Outcome, model: str, kind: TaskKind) -> tuple[Floats, Floats, Floats]:
    """Return each hospital's main metric in one run, and the limits of its interval, ``[H]`` each."""
    value = outcome.figures[model][:, list(kind.figures).index(kind.headline)].astype(np.float64)
    value = np.where(np.isfinite(value), value, np.nan)
    intervals = auroc_intervals(outcome, model)
    if not intervals:
        nothing = np.full_like(value, np.nan)
        return value, nothing, nothing
    return value, intervals["auroc_low"], intervals["auroc_high"]


def compared_with(
    results: Sequence[Result], reference: str, recommended: Key, by_itself: Key | None = None
) -> Key | None:
    """Return the model against which hospitals' gains are measured.

    It is a model trained alone (``by_itself`` if several were trained alone) or, if there is none, a model of the
    strategy ``reference``, preferably its global model. It is never the model ``recommended``, and with or without
    recalibration a model counts as the same. The result is None if no other model was run.
    """
    alones = [result for result in results if result.alone]
    alone = next((each for each in alones if by_itself and each.label == by_itself[0]), alones[0] if alones else None)
    chosen = alone or next((result for result in results if result.label == reference), None)
    if chosen is None:
        return None
    keys = [(chosen.label, model) for model in chosen.outcome.figures]
    original = made_of(keys)
    others = [key for key in keys if original.get(key, key) != original.get(recommended, recommended)]
    if chosen is alone:
        return keys[-1] if keys[-1] in others else None
    return next((key for key in others if key[1] == "global"), others[-1] if others else None)


def caterpillar(gains: Gains) -> svg.Chart | None:
    """Plot each hospital's gain with its interval, from the largest loss to the largest gain; None without gains."""
    order = [h for h in np.argsort(gains.sign * gains.value, kind="stable").tolist() if np.isfinite(gains.value[h])]
    if not order:
        return None
    value, low, high = (each[order] for each in (gains.value, gains.low, gains.high))
    rank = np.arange(1, len(order) + 1, dtype=float)
    better = "(up is better)" if gains.sign > 0 else "(down is better)"
    reach = np.concatenate([value, np.nan_to_num(low), np.nan_to_num(high)])
    chart = svg.Chart(
        svg.linear("hospitals, from the least to the most gain", rank, margin=0.01, whole=True),
        svg.linear(f"gain in {gains.kind.title} {better}", reach, include=(0.0,), signed=True),
        name="caterpillar",
        description=" ".join(gains.sentences()),
        height=330.0,
        gridlines="y",
    )
    gaining, losing = gains.gaining()[order], gains.losing()[order]
    groups = ((~gaining & ~losing, svg.PLAIN, "faint"), (losing, LOSS, ""), (gaining, GAIN, ""))
    for rows, look, class_ in groups:
        of = [h for h, inside in zip(order, rows, strict=True) if inside]
        kind = f"whisker thin {class_}".strip()
        chart.whiskers(low[rows], high[rows], rank[rows], look, upright=True, of=of, class_=kind)
    chart.rule(y=0.0)
    for rows, look, class_ in groups:
        of = [h for h, inside in zip(order, rows, strict=True) if inside]
        chart.dots(rank[rows], value[rows], look, of=of, size=2.4 if class_ else 4.2)
    return chart


def standing(figures: OverSeeds, kind: TaskKind, model: str) -> list[svg.Figure]:
    """Plot each hospital's main metric under one model with its interval, from the worst to the best."""
    sign = 1 if kind.larger else -1
    order = [h for h in np.argsort(sign * figures.value, kind="stable").tolist() if np.isfinite(figures.value[h])]
    if not order:
        return []
    value, low, high = (each[order] for each in (figures.value, figures.low, figures.high))
    rank = np.arange(1, len(order) + 1, dtype=float)
    digits = kind.decimals(value)
    chart = svg.Chart(
        svg.linear("hospitals, from the worst to the best", rank, margin=0.01, whole=True),
        svg.linear(f"{kind.title} at the hospital", np.concatenate([value, low, high])),
        name="caterpillar",
        description=(
            f"{counted(len(order), 'hospital')} from {number(value[0], digits)} to {number(value[-1], digits)}, "
            "in order."
        ),
        height=300.0,
        gridlines="y",
    )
    chart.whiskers(low, high, rank, upright=True, of=order, class_="whisker thin faint")
    chart.dots(rank, value, of=order, size=2.4)
    return [
        svg.figure(
            "caterpillar",
            f"{kind.title} of each hospital, {MODELS.get(model, f'{model} model')}",
            [chart],
            "A dot is a hospital; its line is the 95 % interval over that hospital's patients. With long lines the "
            "order means little.",
        )
    ]


def figure(gains: Gains) -> list[svg.Figure]:
    """Plot hospitals' gains and their intervals; empty if no gain is defined."""
    chart = caterpillar(gains)
    if chart is None:
        return []
    of = (
        "of one training seed; its line is the 95 % interval over that hospital's patients"
        if gains.trained == 1
        else f"the mean of {gains.trained} training seeds; its line is the 95 % interval over that hospital's patients "
        "and training seeds"
    )
    return [
        svg.figure(
            "caterpillar",
            f"What each hospital gains: {gains.better} against {gains.against}",
            [chart],
            f"A dot is a hospital's gain, {of}. Intervals are not adjusted for the number of hospitals.",
            svg.legend(
                [
                    ("gains beyond chance", GAIN),
                    ("loses beyond chance", LOSS),
                    ("no difference demonstrated", svg.PLAIN),
                ]
            ),
        )
    ]
