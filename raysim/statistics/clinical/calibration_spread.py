"""How differently hospitals are calibrated: their intercepts in the large, and whether chance explains them.

The test draws every hospital's events from the predictions, recalibrated once for all hospitals, and needs no minimum
of events; the mean and the spread are of the hospitals whose own intercept is defined well enough. Those are chosen by
the events that are expected, and weighed by the variance that is: hospitals that happen to have events have intercepts
that are too large. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raysim.statistics.clinical.calibration import ENOUGH, Groups, calibration
from raysim.statistics.spread import Mean, hartung_knapp, paule_mandel, q_profile

Floats = NDArray[np.float64]

NAN = float("nan")

CACHED = 1 << 17
"""Rows that are drawn at a time, which stay in the processor's cache."""

FEWEST = 3
"""Hospitals below which nothing is said of their spread."""


@dataclass(frozen=True, eq=False)
class CalibrationSpread:
    """Intercepts in the large of ``H`` hospitals.

    - ``intercept [H]`` with ``se [H]``: NaN where the predictions, recalibrated once for all, expect fewer than ten
      events or non-events, or with one class only.
    - ``hospitals``: how many have one. ``mean`` of them with its interval; ``tau``, their true standard deviation, with
      ``tau_low`` to ``tau_high``. NaN for fewer than three.
    - ``p``: how often equally calibrated hospitals, at these predictions, differ as much in observed and expected
      events.
    """

    intercept: Floats
    se: Floats
    hospitals: int
    mean: Mean
    tau: float
    tau_low: float
    tau_high: float
    p: float


def calibration_spread(hospitals: Sequence[Groups], rng: np.random.Generator, draws: int = 1000) -> CalibrationSpread:
    """The spread of calibration over ``hospitals``, each with its groups of rows. NaN where a prediction is 0 or 1."""
    intercept, se = np.full((2, len(hospitals)), np.nan)
    common = _common(hospitals)
    for h, groups in enumerate(hospitals):
        p = expit(groups.logit + common)
        expected, information = float(groups.rows @ p), float(groups.rows @ (p * (1 - p)))
        if min(expected, groups.rows.sum() - expected) >= ENOUGH:
            intercept[h], se[h] = calibration(groups).in_the_large.estimate, information**-0.5
    se[np.isnan(intercept)] = np.nan
    defined = np.isfinite(intercept)
    mean, tau, limits = Mean(NAN, NAN, NAN, NAN), NAN, (NAN, NAN)
    if defined.sum() >= FEWEST:
        y, v = intercept[defined], np.square(se[defined])
        t = paule_mandel(y, v)
        mean, tau, limits = hartung_knapp(y, v, t), float(np.sqrt(t)), q_profile(y, v)
    return CalibrationSpread(
        intercept,
        se,
        int(defined.sum()),
        mean,
        tau,
        float(np.sqrt(limits[0])),
        float(np.sqrt(limits[1])),
        _chance(hospitals, common, rng, draws),
    )


def calibration_chance(hospitals: Sequence[Groups], rng: np.random.Generator, draws: int = 1000) -> float:
    """The ``p`` of :func:`calibration_spread` alone, which needs no hospital's own intercept."""
    return _chance(hospitals, _common(hospitals), rng, draws)


def _common(hospitals: Sequence[Groups]) -> float:
    """The intercept in the large of all rows; NaN where there is none."""
    if not hospitals:
        return NAN
    together = Groups(*(np.concatenate(parts) for parts in zip(*hospitals, strict=True)))
    return calibration(together).in_the_large.estimate


def _chance(hospitals: Sequence[Groups], common: float, rng: np.random.Generator, draws: int) -> float:
    """The p-value of the squared differences of observed and expected events, each in units of its own variance."""
    full = [groups for groups in hospitals if len(groups.rows)]
    if len(full) < FEWEST or not np.isfinite(common):
        return NAN
    together = Groups(*(np.concatenate(parts) for parts in zip(*full, strict=True)))
    p = expit(together.logit + common)
    first = np.cumsum([0, *(len(groups.rows) for groups in full[:-1])])
    observed, expected, variance = (
        np.add.reduceat(each, first) for each in (together.events, together.rows * p, together.rows * (p * (1 - p)))
    )

    def statistic(events: Floats) -> Floats:
        return np.asarray((np.square(events - expected) / variance).sum(axis=-1))

    # Row by row, in single precision: a chance is off by less than one in ten million.
    counts = together.rows.astype(np.int64)
    of_hospital = np.repeat(np.arange(len(full)), [len(groups.rows) for groups in full]).repeat(counts)
    of_row = np.repeat(p.astype(np.float32), counts)
    reached, size = 0, max(1, CACHED // len(of_row))
    for start in range(0, draws, size):
        federations = min(size, draws - start)
        drawn, row = np.nonzero(rng.random((federations, len(of_row)), np.float32) < of_row)
        events = np.bincount(drawn * len(full) + of_hospital[row], minlength=federations * len(full))
        reached += int((statistic(events.reshape(federations, -1).astype(np.float64)) >= statistic(observed)).sum())
    return (1 + reached) / (draws + 1)
