"""The gap between groups of patients: the largest less the smallest AUROC, or error, beside what chance shows.

A gap of equal groups is above 0 by construction, the more so the smaller the groups. Patients of unknown group are no
group: leave them out, and report them beside. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.statistics.chance.drawn import BLOCK, Chance, centres, federations
from raysim.statistics.chance.inversion import SAME
from raysim.statistics.discrimination.common_curve import EDGE
from raysim.statistics.intervals import Interval, auroc_interval, difference_interval, hanley_mcneil
from raysim.statistics.levels import LEVEL

Floats = NDArray[np.float64]

NAN = float("nan")


class GroupGap(NamedTuple):
    """A gap with its noise floor: mean and central 95 % (``low`` to ``high``) of the gap that equal groups show.

    ``p`` is how often they show one as large; ``groups`` how many have both classes, or of errors rows. NaN for fewer
    than two.
    """

    value: float
    floor: float
    low: float
    high: float
    p: float
    groups: int


def group_gap(
    auroc: ArrayLike,
    events: ArrayLike,
    non_events: ArrayLike,
    event_sd: float,
    rng: np.random.Generator | Chance,
    draws: int = 1000,
) -> GroupGap:
    """The gap of ``G`` groups' AUROC, from ``auroc [G]``, ``events [G]`` and ``non_events [G]`` of each group's rows.

    ``event_sd`` is the shape of the common curve (:mod:`raysim.statistics.discrimination.common_curve`). Groups without
    both classes, or with a NaN, are left out.
    """
    a, m, n = np.asarray(auroc, dtype=np.float64), np.asarray(events), np.asarray(non_events)
    defined = np.isfinite(a) & (m > 0) & (n > 0)
    a, m, n = a[defined], m[defined], n[defined]
    if len(a) < 2:
        return GroupGap(NAN, NAN, NAN, NAN, NAN, len(a))
    weights = m * n / (m + n)
    common = float(np.clip(weights @ a / weights.sum(), EDGE, 1 - EDGE))
    drawn = np.concatenate(
        [
            np.ptp(block.observed[0], axis=1)
            for block in federations(m, n, centres(common, [0.0]), event_sd, [0.0], draws, rng)
        ]
    )
    return _beside(float(np.ptp(a)), drawn, len(a))


def error_gap(
    mean_absolute: ArrayLike,
    rows: ArrayLike,
    errors_of_all: ArrayLike,
    rng: np.random.Generator | Chance,
    draws: int = 1000,
) -> GroupGap:
    """The gap of ``G`` groups' mean absolute error ``[G]`` over ``rows [G]`` each, groups without rows left out.

    ``errors_of_all [N]`` are the absolute errors of all rows, those of unknown group among them. Equal groups have one
    distribution of errors: dealing all errors out to rows anew is then as likely as what was seen, whatever the
    distribution. All NaN where groups have more rows than there are errors.
    """
    mae, n = np.asarray(mean_absolute, dtype=np.float64), np.asarray(rows, dtype=np.int64)
    errors = np.asarray(errors_of_all, dtype=np.float64)
    defined = np.isfinite(mae) & (n > 0)
    mae, n = mae[defined], n[defined]
    total, count = int(n.sum()), len(n)
    if count < 2 or total > len(errors):
        return GroupGap(NAN, NAN, NAN, NAN, NAN, count)
    chance = rng if isinstance(rng, Chance) else Chance(lambda: rng)
    first, size = np.cumsum(n) - n, max(1, min(draws, BLOCK // len(errors)))
    drawn = np.concatenate(
        [
            np.ptp(np.add.reduceat(errors[deals.order[:, :total]], first, axis=1) / n, axis=1)
            for deals in chance.deals(len(errors), count, draws, size)
        ]
    )
    return _beside(float(np.ptp(mae)), drawn, count)


def _beside(value: float, drawn: Floats, groups: int) -> GroupGap:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p = (1 + int((drawn >= value - SAME * max(1.0, value)).sum())) / (len(drawn) + 1)
    return GroupGap(value, float(drawn.mean()), float(low), float(high), p, groups)


def group_difference(
    auroc: tuple[float, float],
    variance: tuple[float, float],
    events: tuple[int, int],
    non_events: tuple[int, int],
) -> Interval:
    """The interval of the first group's AUROC less the second's, from the printed interval of each.

    ``variance`` is DeLong's. The groups' rows are different patients, so that their variances add up.
    """
    both = auroc_interval(auroc, variance, events, non_events, hanley_mcneil)
    first, second = (Interval(both.low[g], both.high[g]) for g in (0, 1))
    return difference_interval(auroc[0], first, auroc[1], second)
