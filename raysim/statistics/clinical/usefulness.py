"""The net benefit of acting on a model, compared with acting on all patients or on none.

The interval for a population of similar hospitals is that of :mod:`raysim.statistics.differences.paired`. Source of net
benefit: A. J. Vickers, E. B. Elkin, *Decision Curve Analysis*, 2006. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.curves import CURVE, net_benefit_curve, predicted_at, unless_broken
from raysim.statistics.differences.paired import Limits, Paired, paired


class Usefulness(NamedTuple):
    """The gain in net benefit of acting on a model, as the mean over training seeds.

    - ``at``: the threshold. ``default``: whether acting on everybody or on nobody has the larger net benefit at this
      threshold.
    - ``value``: the net benefit of acting on the model minus that of ``default``, in true positives per row.
      ``limits``: its interval.
    - ``worth``: the ranges of thresholds at which, over the rows of all hospitals, acting on the model has a larger net
      benefit than either default.
    - ``demonstrated``: the ranges of thresholds, within ``worth``, at which the interval of the gain is above 0.
    """

    at: float
    default: Literal["everybody", "nobody"]
    value: float
    limits: Limits
    worth: tuple[tuple[float, float], ...]
    demonstrated: tuple[tuple[float, float], ...] = ()
    seeds: int = 1


def usefulness(seeds: Sequence[ScoreCounts], thresholds: Sequence[float], at: float) -> Usefulness:
    """Compute the gain in net benefit of acting on a model. ``at`` is the threshold, and ``seeds`` are the hospitals'
    counts of the model's scores in each training seed.

    ``thresholds`` are the probabilities at which rows were counted. Raises ``ValueError`` if ``at`` is not one of them.
    """
    place = list(thresholds).index(at)
    at_threshold = [(counts.at_least[:, place, 0], counts.at_least[:, place, 1]) for counts in seeds]
    pair, everybody = _gain(seeds, at, at_threshold)
    gains = []
    for counts in seeds:
        curve = net_benefit_curve(counts.together(), CURVE)
        gains.append(curve.value[0] - np.maximum(curve.everyone[0], 0.0))
    worth = np.mean(gains, axis=0) > 0
    predicted = zip(*(predicted_at(counts, CURVE[worth]) for counts in seeds), strict=True)
    demonstrated = np.zeros_like(worth)
    demonstrated[worth] = [
        _limits(_gain(seeds, t, each)[0]).low > 0 for t, each in zip(CURVE[worth], predicted, strict=True)
    ]
    default: Literal["everybody", "nobody"] = "everybody" if everybody else "nobody"
    return Usefulness(at, default, pair.difference, _limits(pair), _ranges(worth), _ranges(demonstrated), len(seeds))


def _gain(
    seeds: Sequence[ScoreCounts], at: float, predicted: Sequence[tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[Paired, bool]:
    """Return the gain in net benefit over the better default at threshold ``at``, and whether this default is acting on
    everybody.
    """
    odds = at / (1 - at)
    events = np.stack([unless_broken(counts, counts.events) for counts in seeds])
    rows = np.stack([unless_broken(counts, counts.rows) for counts in seeds])
    hits, alarms = (np.stack(each).astype(float) for each in zip(*predicted, strict=True))
    everybody = bool(np.nansum(events - odds * (rows - events)) > 0)
    gained, lost = (events - hits, rows - events - alarms) if everybody else (hits, alarms)
    sign = -1.0 if everybody else 1.0  # only rows that are predicted negative differ from acting on everybody
    tested = np.where(rows > 0, rows, np.nan)
    difference = sign * (gained - odds * lost) / tested
    variance = np.maximum((gained + odds**2 * lost) / tested - difference**2, 0.0) / tested
    # Seeds share many test patients, but it is unknown which: all are treated as the same patients.
    patients = np.square(np.nansum(np.sqrt(variance) * rows, axis=0))
    return paired(difference, np.zeros_like(difference), np.nan_to_num(rows), patients=patients), everybody


def _limits(pair: Paired) -> Limits:
    return pair.population() if pair.hospitals > 1 else pair.fixed()


def _ranges(among: NDArray[np.bool_]) -> tuple[tuple[float, float], ...]:
    """Return the first and the last threshold of each stretch of True in ``among [99]``, for the thresholds .01 to
    .99.
    """
    padded = np.concatenate([[False], among, [False]])
    first, last = np.flatnonzero(padded[1:] & ~padded[:-1]), np.flatnonzero(~padded[1:] & padded[:-1]) - 1
    return tuple((float(CURVE[a]), float(CURVE[b])) for a, b in zip(first, last, strict=True))
