"""The net benefit of acting on a model, compared with acting on all patients or on none.

The difference is a mean over rows. Its interval over hospitals like these is computed like the interval of a difference
between models (:mod:`raysim.statistics.differences.paired`). Source of net benefit: Vickers and Elkin 2006.
Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.curves import CURVE, net_benefit_curve, unless_broken
from raysim.statistics.differences.paired import Limits, paired


class Usefulness(NamedTuple):
    """The value of acting on a model, as the mean over seeds.

    - ``at``: the threshold; ``default``: the better of acting on all patients and on none at this threshold.
    - ``value`` and ``limits``: net benefit minus the net benefit of ``default``, in true positives per row.
    - ``worth``: the ranges of thresholds, in steps of .01, in which acting on the model is worth it. There the net
      benefit of all rows together exceeds that of acting on everybody and on nobody. A range is its first and last
      threshold.
    - ``seeds``: the number of seeds.
    """

    at: float
    default: Literal["everybody", "nobody"]
    value: float
    limits: Limits
    worth: tuple[tuple[float, float], ...]
    seeds: int = 1


def usefulness(seeds: Sequence[ScoreCounts], thresholds: Sequence[float], at: float) -> Usefulness:
    """Compute usefulness at the threshold ``at`` from a model's counts at the same hospitals in each seed.

    ``thresholds`` are the thresholds of the counts. Raises ``ValueError`` if ``at`` is not one of them.
    """
    place, odds = list(thresholds).index(at), at / (1 - at)
    events = np.stack([unless_broken(counts, counts.events) for counts in seeds])
    rows = np.stack([unless_broken(counts, counts.rows) for counts in seeds])
    hits, alarms = (np.stack([counts.called[:, place, part] for counts in seeds]).astype(float) for part in (0, 1))
    everybody = np.nansum(events - odds * (rows - events)) > 0
    gained, lost = (events - hits, rows - events - alarms) if everybody else (hits, alarms)
    sign = -1.0 if everybody else 1.0  # acting on everybody adds the rows that are not called
    tested = np.where(rows > 0, rows, np.nan)
    difference = sign * (gained - odds * lost) / tested
    variance = np.maximum((gained + odds**2 * lost) / tested - difference**2, 0.0) / tested
    # Seeds share many test patients, but it is unknown which: all are treated as the same patients.
    patients = np.square(np.nansum(np.sqrt(variance) * rows, axis=0))
    pair = paired(difference, np.zeros_like(difference), np.nan_to_num(rows), patients=patients)
    limits = pair.population() if pair.hospitals > 1 else pair.fixed()
    return Usefulness(at, "everybody" if everybody else "nobody", pair.difference, limits, _worth(seeds), len(seeds))


def _worth(seeds: Sequence[ScoreCounts]) -> tuple[tuple[float, float], ...]:
    gains = []
    for counts in seeds:
        curve = net_benefit_curve(counts.together(), CURVE)
        gains.append(curve.value[0] - np.maximum(curve.everyone[0], 0.0))
    worth = np.concatenate([[False], np.mean(gains, axis=0) > 0, [False]])
    first, last = np.flatnonzero(worth[1:] & ~worth[:-1]), np.flatnonzero(~worth[1:] & worth[:-1]) - 1
    return tuple((float(CURVE[a]), float(CURVE[b])) for a, b in zip(first, last, strict=True))
