"""Intervals of single figures: the AUROC of a hospital, a share, observed over expected events. All are 95 %.

Every function works element by element on arrays of one shape; a limit that is undefined is NaN. Sources: Hanley and
McNeil 1982; Newcombe 2006 (AUROC, method 5); Wilson 1927; Clopper and Pearson 1934. Which one is printed where, and
what each covers: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.statistics.levels import LEVEL, Z

Floats = NDArray[np.float64]
Variance = Callable[[Floats, Floats, Floats], Floats]
"""Of an AUROC estimate where the true AUROC is ``t`` and there are ``m`` events and ``n`` non-events."""

BISECTIONS = 60
"""Halvings of an interval within 0..1: to the last bit of a limit."""

ENOUGH = 2.5
"""Rows of the rarer class times the distance of the AUROC from the nearer of 0 and 1: from here on the logit interval
covers, whatever the scores' shape; below, the score interval does better."""

FEW_ROWS = 10
"""Below so many rows Wilson's interval of a share covers too little, and Clopper and Pearson's is printed. Below so
many rows of its rarer class an AUROC has the interval of a share of its effective rows."""

OF_RARER, OF_COMMONER = 0.4, 0.2
"""What a row of each class adds to the variance of an AUROC A, over A (1 - A), where the rarer class's scores are the
more spread. Where both are alike these are about a third each."""


class Interval(NamedTuple):
    """An interval's limits, each of the shape of the figure."""

    low: Floats
    high: Floats


def logit_interval(auroc: ArrayLike, variance: ArrayLike) -> Interval:
    """Of an AUROC by its ``variance`` (DeLong's), on the logit scale; NaN for an AUROC of 0 or 1, or no variance."""
    from scipy.special import expit, logit  # a tenth of a second to import

    a, v = np.broadcast_arrays(_floats(auroc), _floats(variance))
    usable = (a > 0) & (a < 1) & (v > 0)
    a, v = np.where(usable, a, np.nan), np.where(usable, v, np.nan)
    reach = Z * np.sqrt(v) / (a * (1 - a))
    return Interval(expit(logit(a) - reach), expit(logit(a) + reach))


def hanley_mcneil(t: Any, events: Any, non_events: Any) -> Any:
    """Hanley and McNeil's variance, that of exponential scores: too large for normal ones, and so the safe one."""
    above, below = t / (2 - t), 2 * t * t / (1 + t)
    return (t * (1 - t) + (events - 1) * (above - t * t) + (non_events - 1) * (below - t * t)) / (events * non_events)


def newcombe(t: Any, events: Any, non_events: Any) -> Any:
    """Newcombe's method 5: Hanley and McNeil's with both classes taken to be equally many in the leading terms."""
    half = (events + non_events) / 2 - 1
    return t * (1 - t) * (1 + half * (1 - t) / (2 - t) + half * t / (1 + t)) / (events * non_events)


def score_interval(
    auroc: ArrayLike, events: ArrayLike, non_events: ArrayLike, variance: Variance = hanley_mcneil
) -> Interval:
    """All true AUROCs ``t`` from which the observed one is within ``Z`` standard deviations, by ``variance`` at ``t``.

    Needs nothing but the AUROC and the counts, and is defined for one event and for an AUROC of 0 or 1, whose own end
    is then exactly that. NaN for a NaN AUROC or without both classes.
    """
    a, m, n = np.broadcast_arrays(*(_floats(x) for x in (auroc, events, non_events)))
    usable = (m > 0) & (n > 0) & ~np.isnan(a)
    a, m, n = (np.where(usable, x, np.nan) for x in (a, m, n))
    limits = []
    for end in (0.0, 1.0):
        outside, inside = np.full_like(a, end), a.copy()
        for _ in range(BISECTIONS):
            t = (outside + inside) / 2
            beyond = np.abs(a - t) > Z * np.sqrt(variance(t, m, n))
            outside, inside = np.where(beyond, t, outside), np.where(beyond, inside, t)
        limits.append(np.where(a == end, end, inside))
    return Interval(*limits)


def few_rows_interval(auroc: ArrayLike, events: ArrayLike, non_events: ArrayLike) -> Interval:
    """Of an AUROC with few rows of one class: Clopper and Pearson's, of a share of its effective rows.

    These are as many as give a share the variance of an AUROC of normal scores whose rarer class is the more spread
    (:data:`OF_RARER`). Skew counts, which a symmetric interval misses. NaN for a NaN AUROC or without both classes.
    """
    a, m, n = np.broadcast_arrays(*(_floats(x) for x in (auroc, events, non_events)))
    usable = (m > 0) & (n > 0) & ~np.isnan(a)
    a, m, n = (np.where(usable, x, np.nan) for x in (a, m, n))
    rows = 1 / (OF_RARER / np.minimum(m, n) + OF_COMMONER / np.maximum(m, n))
    return clopper_pearson(a * rows, rows)


class AurocInterval(NamedTuple):
    """The printed interval of each AUROC, and whether it is the logit one (``by_logit``)."""

    low: Floats
    high: Floats
    by_logit: NDArray[np.bool_]


def auroc_interval(
    auroc: ArrayLike, variance: ArrayLike, events: ArrayLike, non_events: ArrayLike, score: Variance = hanley_mcneil
) -> AurocInterval:
    """The interval that is printed: with :data:`FEW_ROWS` rows of the rarer class DeLong's on the logit scale, where
    they are enough for how far the AUROC is from 0 and 1 (:data:`ENOUGH`), else the score interval with the variance
    ``score``; with fewer that of :func:`few_rows_interval`.
    """
    a, v, m, n = np.broadcast_arrays(*(_floats(x) for x in (auroc, variance, events, non_events)))
    few = np.minimum(m, n) < FEW_ROWS
    by_logit = ~few & (np.minimum(m, n) * np.minimum(a, 1 - a) >= ENOUGH) & (v > 0)
    low, high = np.empty(a.shape), np.empty(a.shape)
    # Each only where it is printed: sixty halvings of the score interval are most of what this costs.
    left = ~by_logit & ~few
    low[by_logit], high[by_logit] = logit_interval(a[by_logit], v[by_logit])
    low[few], high[few] = few_rows_interval(a[few], m[few], n[few])
    low[left], high[left] = score_interval(a[left], m[left], n[left], score)
    return AurocInterval(low, high, np.asarray(by_logit))


def wilson(successes: ArrayLike, rows: ArrayLike) -> Interval:
    """Of a share, by inverting the score test; NaN without rows."""
    x, n = np.broadcast_arrays(_floats(successes), _floats(rows))
    n = np.where(n > 0, n, np.nan)
    p = x / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z / (1 + Z * Z / n) * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    # The limits at 0 and at all rows are exact, which rounding must not undo.
    return Interval(np.where(x == 0, 0 * n, centre - reach), np.where(x == n, 1 + 0 * n, centre + reach))


def clopper_pearson(successes: ArrayLike, rows: ArrayLike) -> Interval:
    """Of a share, by inverting the binomial test: never covers less than 95 %. NaN without rows."""
    from scipy.special import betaincinv

    x, n = np.broadcast_arrays(_floats(successes), _floats(rows))
    n = np.where(n > 0, n, np.nan)
    tail = (1 - LEVEL) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(x > 0, betaincinv(np.where(x > 0, x, 1), n - x + 1, tail), 0 * n)
        high = np.where(x < n, betaincinv(x + 1, np.where(x < n, n - x, 1), 1 - tail), 1 + 0 * n)
    return Interval(low, high)


def share_interval(successes: ArrayLike, rows: ArrayLike) -> Interval:
    """The printed interval of a share: Clopper and Pearson's below :data:`FEW_ROWS` rows, otherwise Wilson's."""
    x, n = np.broadcast_arrays(_floats(successes), _floats(rows))
    exact, score = clopper_pearson(x, n), wilson(x, n)
    return Interval(*(np.where(n < FEW_ROWS, e, s) for e, s in zip(exact, score, strict=True)))


def observed_over_expected(observed: ArrayLike, expected: ArrayLike, rows: ArrayLike) -> Interval:
    """Of observed over expected events among ``rows``: Clopper and Pearson's of the share of events, in its units.

    Within 0 and ``rows / expected``, which is all that is possible, and never of width 0. NaN for none expected.
    """
    o, e, n = np.broadcast_arrays(*(_floats(x) for x in (observed, expected, rows)))
    share = clopper_pearson(o, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = n / np.where(e > 0, e, np.nan)
    return Interval(share.low * scale, share.high * scale)


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
