"""95 % intervals of single figures: the AUROC of a hospital, a share, observed over expected events.

Arguments of a function are arrays of one shape, with one interval for each element. Undefined limits are NaN. Coverage,
and where each interval is printed: ``docs/statistics.md``.

Sources: J. A. Hanley, B. J. McNeil, *The Meaning and Use of the Area under a Receiver Operating Characteristic (ROC)
Curve*, 1982; E. B. Wilson, *Probable Inference, the Law of Succession, and Statistical Inference*, 1927; C. J. Clopper,
E. S. Pearson, *The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial*, 1934.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from raysim.core.arrays import Floats
from raysim.core.levels import LEVEL, Z
from raysim.metrics.measures import hanley_mcneil

Variance = Callable[[Floats, Floats, Floats], Floats]
"""A function of ``(t, m, n)`` that returns the variance of an estimated AUROC if the true AUROC is ``t``, with ``m``
events and ``n`` non-events."""

BISECTIONS = 60
"""Number of bisections of the range from the AUROC to 0, or to 1. They determine a confidence limit to the last bit."""

ENOUGH = 2.5
"""The logit interval is used if a product is at least this: the number of rows of the rarer class times the distance of
the AUROC from the nearer of 0 and 1.
"""

FEW_ROWS = 10
"""For fewer rows than this (for an AUROC: rows of the rarer class), reports print Clopper and Pearson's intervals. The
usual intervals would contain the true value too rarely."""

OF_RARER, OF_COMMONER = 0.4, 0.2
"""In :func:`few_rows_interval`, an AUROC A has the variance ``A (1 - A) (OF_RARER / r + OF_COMMONER / c)`` with ``r``
rows of the rarer class and ``c`` rows of the other."""


class Interval(NamedTuple):
    """The lower and upper limits of intervals, as arrays."""

    low: Floats
    high: Floats


def logit_interval(auroc: ArrayLike, variance: ArrayLike) -> Interval:
    """Return the 95 % interval of an AUROC from its ``variance`` (DeLong's), computed on the logit scale. The limits
    are NaN for an AUROC of 0 or 1, or if the variance is NaN or 0.
    """
    from scipy.special import expit, logit  # a tenth of a second to import

    a, v = np.broadcast_arrays(_floats(auroc), _floats(variance))
    usable = (a > 0) & (a < 1) & (v > 0)
    a, v = np.where(usable, a, np.nan), np.where(usable, v, np.nan)
    reach = Z * np.sqrt(v) / (a * (1 - a))
    return Interval(expit(logit(a) - reach), expit(logit(a) + reach))


def score_interval(
    auroc: ArrayLike, events: ArrayLike, non_events: ArrayLike, variance: Variance = hanley_mcneil
) -> Interval:
    """Return the 95 % score interval of an AUROC: all true AUROCs ``t`` within ``Z`` standard deviations of the
    observed one. The standard deviation is the root of ``variance(t, events, non_events)``.

    If the AUROC is 0 or 1, the limit on that side is exactly 0 or 1. The limits are NaN if the AUROC is NaN or a class
    has no rows.
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
    """Return the 95 % interval of an AUROC with few rows of one class. It is Clopper and Pearson's interval of a share.

    The AUROC is treated as a share of ``N`` rows. ``N`` is chosen so that the share has the variance given at
    :data:`OF_RARER`. An AUROC of normal scores has about this variance if the scores of the rarer class have the larger
    standard deviation. The limits are NaN if the AUROC is NaN or a class has no rows.
    """
    a, m, n = np.broadcast_arrays(*(_floats(x) for x in (auroc, events, non_events)))
    usable = (m > 0) & (n > 0) & ~np.isnan(a)
    a, m, n = (np.where(usable, x, np.nan) for x in (a, m, n))
    rows = 1 / (OF_RARER / np.minimum(m, n) + OF_COMMONER / np.maximum(m, n))
    return clopper_pearson(a * rows, rows)


def auroc_interval(auroc: ArrayLike, variance: ArrayLike, events: ArrayLike, non_events: ArrayLike) -> Interval:
    """Return the 95 % interval that reports print for each AUROC.

    - With fewer than :data:`FEW_ROWS` rows of the rarer class, it is :func:`few_rows_interval`.
    - Otherwise it is :func:`logit_interval`, under the condition at :data:`ENOUGH` and if the variance is above 0.
    - Otherwise it is :func:`score_interval`.
    """
    a, v, m, n = np.broadcast_arrays(*(_floats(x) for x in (auroc, variance, events, non_events)))
    few = np.minimum(m, n) < FEW_ROWS
    by_logit = ~few & (np.minimum(m, n) * np.minimum(a, 1 - a) >= ENOUGH) & (v > 0)
    low, high = np.empty(a.shape), np.empty(a.shape)
    # Each interval is computed only where it is printed: the score interval's sixty halvings take most of the time.
    left = ~by_logit & ~few
    low[by_logit], high[by_logit] = logit_interval(a[by_logit], v[by_logit])
    low[few], high[few] = few_rows_interval(a[few], m[few], n[few])
    low[left], high[left] = score_interval(a[left], m[left], n[left])
    return Interval(low, high)


def wilson(successes: ArrayLike, rows: ArrayLike) -> Interval:
    """Return the 95 % interval of the share ``successes / rows`` by inversion of the score test (Wilson); NaN without
    rows.
    """
    x, n = np.broadcast_arrays(_floats(successes), _floats(rows))
    n = np.where(n > 0, n, np.nan)
    p = x / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z / (1 + Z * Z / n) * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    # The limits for no events and for all rows are exactly 0 and 1, also after rounding.
    return Interval(np.where(x == 0, 0 * n, centre - reach), np.where(x == n, 1 + 0 * n, centre + reach))


def clopper_pearson(successes: ArrayLike, rows: ArrayLike) -> Interval:
    """Return the 95 % interval of the share ``successes / rows`` by inversion of the binomial test (Clopper and
    Pearson). The limits are NaN without rows.
    """
    from scipy.special import betaincinv

    x, n = np.broadcast_arrays(_floats(successes), _floats(rows))
    n = np.where(n > 0, n, np.nan)
    tail = (1 - LEVEL) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(x > 0, betaincinv(np.where(x > 0, x, 1), n - x + 1, tail), 0 * n)
        high = np.where(x < n, betaincinv(x + 1, np.where(x < n, n - x, 1), 1 - tail), 1 + 0 * n)
    return Interval(low, high)


def share_interval(successes: ArrayLike, rows: ArrayLike) -> Interval:
    """Return the 95 % interval that reports print for a share: Clopper and Pearson's for fewer than :data:`FEW_ROWS`
    rows, otherwise Wilson's.
    """
    x, n = np.broadcast_arrays(_floats(successes), _floats(rows))
    exact, score = clopper_pearson(x, n), wilson(x, n)
    return Interval(*(np.where(n < FEW_ROWS, e, s) for e, s in zip(exact, score, strict=True)))


def observed_over_expected(observed: ArrayLike, expected: ArrayLike, rows: ArrayLike) -> Interval:
    """Return the 95 % interval of the ratio of ``observed`` to ``expected`` events among ``rows``.

    It is Clopper and Pearson's interval of the share of events, multiplied by ``rows / expected``. It is NaN if no
    event is expected.
    """
    o, e, n = np.broadcast_arrays(*(_floats(x) for x in (observed, expected, rows)))
    share = clopper_pearson(o, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = n / np.where(e > 0, e, np.nan)
    return Interval(share.low * scale, share.high * scale)


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def stdtrit(df: Any, p: Any) -> Any:
    """Return the quantile at ``p`` of Student's t with ``df`` degrees of freedom; the first call imports SciPy."""
    from scipy import special  # a tenth of a second to import

    return special.stdtrit(df, p)
