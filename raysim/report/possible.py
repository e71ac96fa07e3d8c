"""Intervals as they are printed: cut to what a figure can be, and without numbers where they say nothing.

Files keep the intervals as they were computed (``comparison.csv``, ``hospitals.csv``): what reaches beyond the possible
is a finding about the interval. Pages, the terminal, forests and sentences go by the functions here.
"""

from __future__ import annotations

import math

import numpy as np

from raysim.statistics.differences.paired import Limits

WIDEST = 0.5
"""Width of an interval of an AUROC, or of a difference of two, beyond which it says nothing."""

NOTHING = Limits(-math.inf, math.inf)
"""Stands for an interval that says nothing; printed as :data:`SAYS_NOTHING`, and not drawn."""

SAYS_NOTHING = "says nothing"


def within(interval: Limits, low: float, high: float, widest: float = math.inf) -> Limits:
    """The ``interval`` cut to ``low`` to ``high``; :data:`NOTHING` where it is then wider than ``widest``.

    One that excludes 0 is a finding however wide it is, and keeps its limits. NaN stays NaN.

    >>> within(Limits(-1.3, 0.2), -0.8, 0.2), within(Limits(-0.1, 0.3), -0.8, 0.2, WIDEST)
    (Limits(low=-0.8, high=0.2), Limits(low=-0.1, high=0.2))
    >>> within(Limits(-1.3, 0.2), -0.8, 0.2, WIDEST) == NOTHING
    True
    """
    cut = Limits(float(np.clip(interval.low, low, high)), float(np.clip(interval.high, low, high)))
    return NOTHING if cut.high - cut.low > widest and not cut.shows else cut


def difference(interval: Limits, larger: bool, reference: float = math.nan) -> Limits:
    """The interval of a difference of two AUROCs, within ``-reference`` and ``1 - reference``.

    ``reference`` is the AUROC of what is subtracted; NaN where it is not known. Errors (not ``larger``) have no bounds.
    """
    if not larger:
        return interval
    low, high = (-reference, 1.0 - reference) if math.isfinite(reference) else (-1.0, 1.0)
    return within(interval, low, high, WIDEST)


def level(interval: Limits, larger: bool) -> Limits:
    """The interval of an AUROC, within 0 and 1, or of an error (not ``larger``), at least 0."""
    if not larger:
        return within(interval, 0.0, math.inf)
    cut = within(interval, 0.0, 1.0)
    return NOTHING if cut.high - cut.low > WIDEST else cut


def visible(size: float, larger: bool, reference: float = math.nan) -> bool:
    """Whether a smallest visible difference of this ``size`` can occur at all beside an AUROC of ``reference``."""
    if not math.isfinite(size):
        return False
    if not larger or not math.isfinite(reference):
        return not larger or size <= 1.0
    return size <= min(reference, 1.0 - reference)
