"""Calibration of predicted risks for each group of patients at its own hospitals.

Each hospital's risks are first shifted on the logit scale, so that they add up to its events. Remaining differences
between groups are tested by the score test of a group's own intercept, stratified by hospital (Day and Byar 1979).
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
"""Number of Newton steps. It is fixed, so that a hospital's message does not depend on the other hospitals of a
call."""

LARGEST_STEP = 3.0
"""Largest Newton step of a shift."""

OBSERVED, EXPECTED, INFORMATION, PREDICTED = range(4)
"""The columns of :func:`risk_sums`."""


class GroupRisk(NamedTuple):
    """A group's events compared with the events expected at its hospitals.

    ``ratio`` is observed over expected events. ``log_odds`` is the group's log odds ratio against the other patients of
    its hospitals at equal predicted risk, with its 95 % interval and ``p``. The log odds ratio is estimated by one
    Newton step.
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
    """Return the shift ``a [H]`` of each hospital's ``logits [n]`` at which risks add up to events; NaN for one class.

    Hospital ``h`` has rows ``offsets[h]:offsets[h + 1]``.
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
    """Compute each hospital's sums of its groups' risks, ``[H, groups, 4]``; zeros if a logit is not finite.

    ``labels [n]`` are the groups of the rows. Columns: events, events expected after the shift, the information on a
    group's intercept, and events predicted before the shift. At a hospital with one class the shift is infinite:
    expected equals observed, without information.
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
    """Return each hospital's observed over predicted events ``[H]``, from its ``sums [H, G, 4]``; NaN without rows."""
    of_hospital = sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(of_hospital[:, OBSERVED] / of_hospital[:, PREDICTED])


def group_risks(groups: Sequence[str], sums: Floats) -> tuple[GroupRisk, ...]:
    """Compute each group's risk from the ``sums [H, G, 4]`` of all hospitals."""
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
