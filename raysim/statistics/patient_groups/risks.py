"""Calibration of predicted risks for each group of patients at the hospitals that treat it.

Each hospital's risks are first shifted on the logit scale, so that their sum is the hospital's number of events.
Any remaining difference between a group and the other patients is tested by the score test of an intercept for this
group (Day and Byar 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.arrays import Floats
from raysim.core.levels import Z
from raysim.metrics.segments import Segments

NAN = float("nan")

STEPS = 40
"""Number of Newton steps that find the shift of a hospital's risks. It is fixed, so that a hospital's result does not
depend on other hospitals."""

LARGEST_STEP = 3.0
"""Largest change, in one Newton step, of the shift of a hospital's risks on the logit scale."""

OBSERVED, EXPECTED, INFORMATION, PREDICTED = range(4)
"""Indices of the four sums in the last axis of the result of :func:`risk_sums`."""


class GroupRisk(NamedTuple):
    """A group's number of events compared with the number expected at its hospitals.

    ``ratio`` is observed over expected events. ``log_odds`` is the log odds ratio of an event for the group's patients,
    compared with other patients of the same hospitals who have the same predicted risk. ``low`` to ``high`` is the 95 %
    interval of ``log_odds``, and ``p`` its p-value.
    """

    group: str
    observed: int
    expected: float
    ratio: float
    log_odds: float
    low: float
    high: float
    p: float


def in_the_large(logits: ArrayLike, event: ArrayLike, offsets: ArrayLike) -> Floats:
    """Return for each of ``H`` hospitals the number that must be added to its logits so that its predicted risks sum to
    its number of events. The result is NaN for a hospital with one class only.

    Hospital ``h`` has the rows ``offsets[h]:offsets[h + 1]``.
    """
    from scipy.special import expit  # actors start without it

    margin, positive = np.asarray(logits, dtype=np.float64), np.asarray(event, dtype=np.int64)
    segments = Segments.of(offsets, margin, positive, classes=2)
    ids = segments.ids()
    events = segments.counts(positive.astype(bool))
    shift = np.where((events > 0) & (events < segments.lengths), 0.0, np.nan)
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            risk = expit(margin + shift[ids])
            step = (events - segments.sums(risk)) / segments.sums(risk * (1.0 - risk))
            shift = shift + np.clip(np.nan_to_num(step), -LARGEST_STEP, LARGEST_STEP)
    return shift


def risk_sums(logits: ArrayLike, event: ArrayLike, offsets: ArrayLike, labels: ArrayLike, groups: int) -> Floats:
    """Compute sums over the rows of each group of patients at each of ``H`` hospitals, ``[H, groups, 4]``. All sums
    of a hospital are 0 if one of its logits is not finite.

    ``labels [n]`` are the groups of the rows. The four sums are:

    - the number of events;
    - the expected number of events, after the hospital's risks were shifted so that their sum is the hospital's number
      of events;
    - the Fisher information on an intercept for the group;
    - the predicted number of events, before the shift.

    At a hospital with one class, the expected number equals the observed one, and the information is 0.
    """
    from scipy.special import expit  # actors start without it

    margin, positive = np.asarray(logits, dtype=np.float64), np.asarray(event, dtype=np.float64)
    segments = Segments.of(offsets, margin, positive, classes=2)
    hospital, broken = segments.ids(), segments.counts(~np.isfinite(margin)) > 0
    shift = in_the_large(margin, positive, offsets)[hospital]
    risk = np.where(np.isfinite(shift), expit(margin + shift), positive)
    columns = (positive, risk, risk * (1.0 - risk), expit(margin))
    cell, size = hospital * groups + np.asarray(labels, dtype=np.int64), len(broken) * groups
    sums = np.stack([np.bincount(cell, column, size) for column in columns], axis=1).astype(np.float64)
    sums = sums.reshape(len(broken), groups, len(columns))
    sums[broken] = 0.0
    return sums


def ratios(sums: Floats) -> Floats:
    """Return each hospital's ratio of observed to predicted events, ``[H]``, from ``sums [H, G, 4]`` of
    :func:`risk_sums`; NaN for a hospital whose sums are 0.
    """
    of_hospital = sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(of_hospital[:, OBSERVED] / of_hospital[:, PREDICTED])


def group_risks(groups: Sequence[str], sums: Floats) -> tuple[GroupRisk, ...]:
    """Compare each group's number of events with the number expected at its hospitals, from ``sums [H, G, 4]`` of
    :func:`risk_sums`.
    """
    from scipy.special import ndtr  # actors start without it

    found = []
    for g, name in enumerate(groups):
        observed, expected = float(sums[:, g, OBSERVED].sum()), float(sums[:, g, EXPECTED].sum())
        mine, every = sums[:, g, INFORMATION], sums[:, :, INFORMATION].sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            information = float(np.where(every > 0, mine - mine * mine / every, 0.0).sum())
        excess = observed - expected
        if information > 0:
            beta, half_width = excess / information, Z / float(np.sqrt(information))
            p = 2.0 * float(ndtr(-abs(excess) / np.sqrt(information)))
        else:
            beta = half_width = p = NAN
        ratio = observed / expected if expected > 0 else NAN
        found.append(GroupRisk(name, round(observed), expected, ratio, beta, beta - half_width, beta + half_width, p))
    return tuple(found)
