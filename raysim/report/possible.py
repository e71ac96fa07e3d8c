"""Intervals as they are printed: cut to possible values, and without numbers if they are uninformative.

``comparison.csv`` and ``hospitals.csv`` have the intervals as computed, including uninformative ones. In
``comparison.csv``, limits may be impossible, such as a difference of AUROC above 1.
"""

from __future__ import annotations

import math

import numpy as np

from raysim.statistics.differences.paired import Limits

WIDEST = 0.5
"""An interval of an AUROC is uninformative if it is wider than this. An interval of a difference is uninformative only
if it also includes 0.

The width of an interval of a difference is measured before the interval is cut to possible values. The cut may shorten
only one side, which would make an uninformative interval look narrow.
"""

NOTHING = Limits(-math.inf, math.inf)
"""Stands for an uninformative interval, which is printed as :data:`SAYS_NOTHING` and not plotted."""

SAYS_NOTHING = "says nothing"


def within(interval: Limits, low: float, high: float, widest: float = math.inf) -> Limits:
    """Cut the ``interval`` to the range from ``low`` to ``high``, or return :data:`NOTHING` if it is uninformative.

    An interval is uninformative if it is wider than ``widest`` before the cut, and includes 0. NaN stays NaN.

    >>> within(Limits(-1.3, 0.2), -0.8, 0.2), within(Limits(-0.1, 0.3), -0.8, 0.2, WIDEST)
    (Limits(low=-0.8, high=0.2), Limits(low=-0.1, high=0.2))
    >>> within(Limits(-1.3, 0.2), -0.8, 0.2, WIDEST) == NOTHING
    True
    """
    if interval.high - interval.low > widest and not interval.shows:
        return NOTHING
    return Limits(float(np.clip(interval.low, low, high)), float(np.clip(interval.high, low, high)))


def difference(interval: Limits, larger: bool, reference: float = math.nan) -> Limits:
    """Cut the interval of a difference of two AUROCs to the range from ``-reference`` to ``1 - reference``.

    ``reference`` is the subtracted AUROC; NaN if unknown. An uninformative interval becomes :data:`NOTHING`. ``larger``
    says whether larger values of the metric are better. If it is False, the metric is an error, and its interval is
    returned unchanged.
    """
    if not larger:
        return interval
    low, high = (-reference, 1.0 - reference) if math.isfinite(reference) else (-1.0, 1.0)
    return within(interval, low, high, WIDEST)


def level(interval: Limits, larger: bool) -> Limits:
    """Cut the interval of an AUROC to the range from 0 to 1, or return :data:`NOTHING` if the cut interval is too wide.

    ``larger`` says whether larger values of the metric are better. If it is False, the metric is an error, and its
    interval is cut at 0 only.
    """
    if not larger:
        return within(interval, 0.0, math.inf)
    cut = within(interval, 0.0, 1.0)
    return NOTHING if cut.high - cut.low > WIDEST else cut


def visible(size: float, larger: bool, reference: float = math.nan) -> bool:
    """Whether an AUROC can differ from the AUROC ``reference`` by ``size`` in both directions.

    ``reference`` is NaN if unknown. For an error (``larger`` is False), every finite size is possible.
    """
    if not math.isfinite(size):
        return False
    if not larger or not math.isfinite(reference):
        return not larger or size <= 1.0
    return size <= min(reference, 1.0 - reference)
