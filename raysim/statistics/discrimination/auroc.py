"""The AUROC of each hospital, its variance, and the covariance of several models on the same rows.

The variance has two estimators.

- DeLong's estimator uses the placement of each row: the share of rows of the other class against which the row is
  ranked correctly. The estimator needs two events and two non-events, and is 0 if the AUROC is 0 or 1.
- The U-statistic is exactly unbiased. Its three components can be averaged over hospitals
  (:mod:`raysim.statistics.discrimination.common_curve`).

Sources: E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson, *Comparing the Areas under Two or More Correlated Receiver
Operating Characteristic Curves*, 1988; for the fast form by ranks, X. Sun, W. Xu, *Fast Implementation of DeLong's
Algorithm*, 2014; for the components, W. Hoeffding, *A Class of Statistics with Asymptotically Normal Distribution*,
1948. Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats, Ints
from raysim.metrics.segments import Segments, cumulative, floating


@dataclass(frozen=True, eq=False)
class Placements:
    """The influence of each row on the AUROC of its hospital, for ``K`` models on ``n`` rows of ``H`` hospitals.

    - ``auroc [K, H]``: the AUROC A. It is NaN if the hospital has one class only, or a NaN score.
    - ``influence [K, n]``: ``(V - A) / c``; NaN if the AUROC is NaN. V is the share of the hospital's rows of the other
      class against which the row is ranked correctly; a tie counts half. c is the hospital's number of rows of the
      row's own class.
    - ``event [n]``: whether the row is an event. ``offsets [H + 1]``: the index of each hospital's first row, and
      ``n``.
    - ``events [H]`` and ``non_events [H]``: each hospital's numbers of rows with and without the event.
    """

    auroc: Floats
    influence: Floats
    event: NDArray[np.bool_]
    offsets: Ints
    events: Ints
    non_events: Ints


@dataclass(frozen=True, eq=False)
class DeLong:
    """The AUROC of ``K`` models at ``H`` hospitals, with DeLong's covariance between models.

    - ``auroc [K, H]``: NaN where undefined.
    - ``covariance [H, K, K]``: NaN where the AUROC of one of the two models is NaN, or for fewer than two events or two
      non-events; otherwise 0 where a model's AUROC is 0 or 1, or all its scores tie.
    - ``events [H]`` and ``non_events [H]``: each hospital's numbers of rows with and without the event.
    """

    auroc: Floats
    covariance: Floats
    events: Ints
    non_events: Ints

    @property
    def variance(self) -> Floats:
        """DeLong's variance of each model's AUROC at each hospital, ``[K, H]``."""
        return np.diagonal(self.covariance, axis1=1, axis2=2).T

    def difference(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Return the AUROC of model ``first`` minus that of model ``second`` at each hospital, and its variance,
        ``[H]`` each.

        The variance is exactly 0 if both models rank the rows in the same order.
        """
        c = self.covariance
        variance = c[:, first, first] + c[:, second, second] - 2.0 * c[:, first, second]
        return self.auroc[first] - self.auroc[second], np.maximum(variance, 0.0)


class PairSums(NamedTuple):
    """Sums over pairs of an event and a non-event, ``[H]`` each for ``H`` hospitals. Each hospital sends its sums.

    For a pair, let psi be 1 if the event has the higher score, 1/2 for a tie and 0 otherwise; psi' is the same for a
    second pair. The four sums are multiplied by four, so that they are whole numbers.

    - ``first``: the sum of psi over all pairs;
    - ``squares``: the sum of psi squared over all pairs;
    - ``same_event``: the sum of psi psi' over any two pairs with the same event and different non-events, in both
      orders;
    - ``same_non_event``: the sum of psi psi' over any two pairs with the same non-event and different events, in both
      orders;
    - ``events`` and ``non_events``: the numbers of rows.

    A hospital with a NaN score has -1 in all four sums, and its AUROC is undefined.
    """

    events: Ints
    non_events: Ints
    first: Ints
    squares: Ints
    same_event: Ints
    same_non_event: Ints

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Whether the AUROC of each hospital is defined, ``[H]``: it has rows of both classes and no NaN score."""
        return (self.events > 0) & (self.non_events > 0) & (self.first >= 0)


@dataclass(frozen=True, eq=False)
class UStatistics:
    """The AUROC of each of ``H`` hospitals, and unbiased estimates from :class:`PairSums`, ``[H]`` each. With ``m``
    events and ``n`` non-events, all except ``auroc`` are NaN if ``m`` or ``n`` is below 2.

    - ``auroc``: the AUROC A. ``squared``: an unbiased estimate of the square of the true AUROC.
    - ``pair``, ``event``, ``non_event``: the components xi11, xi10 and xi01 of the variance; may be negative. xi11 is
      the variance of psi (see :class:`PairSums`). xi10 is the covariance of psi between two pairs with the same event,
      and xi01 between two pairs with the same non-event.
    - ``variance``: ``[xi11 + (n - 1) xi10 + (m - 1) xi01] / (m n)``; may be negative.
    """

    auroc: Floats
    squared: Floats
    pair: Floats
    event: Floats
    non_event: Floats
    variance: Floats


def placements(scores: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Placements:
    """Compute the AUROC of ``K`` models at ``H`` hospitals, and the influence of each row on it.

    ``scores`` is ``[n]`` for one model or ``[K, n]``; ``y [n]`` is 0 or 1. Hospital ``h`` has the rows
    ``offsets[h]:offsets[h + 1]``. Raises ``ValueError`` for shapes that do not match, and for labels other than 0 and
    1.
    """
    z, event, segments = _checked(scores, y, offsets)
    ids = segments.ids()
    events = segments.counts(event)
    non_events = segments.lengths - events
    pairs = events.astype(np.float64) * non_events
    auroc = np.full((len(z), segments.count), np.nan)
    influence = np.full(z.shape, np.nan)
    others = np.where(event, non_events[ids], events[ids]).astype(np.float64)  # rows of the other class
    same_class = np.where(event, events[ids], non_events[ids])
    with np.errstate(invalid="ignore", divide="ignore"):
        for k, model in enumerate(z):
            doubled, _ = _won(model, event, segments, ids)
            won = segments.sums(np.where(event, doubled, 0).astype(np.float64))
            won[segments.holding(np.isnan(model))] = np.nan
            auroc[k] = won / (2.0 * pairs)
            influence[k] = (doubled / (2.0 * others) - auroc[k, ids]) / same_class
    return Placements(auroc, influence, event, segments.offsets, events, non_events)


def delong(placed: Placements) -> DeLong:
    """Compute the AUROC of each model at each hospital and DeLong's covariance from ``placed``, the influence of each
    row.
    """
    segments = Segments(placed.offsets, np.diff(placed.offsets))
    ids = segments.ids()
    with np.errstate(invalid="ignore", divide="ignore"):
        m, n = placed.events.astype(np.float64), placed.non_events.astype(np.float64)
        # A sample covariance has the divisor m - 1 instead of m; it is undefined for one row.
        corrected = np.where(placed.event, _corrected(m)[ids], _corrected(n)[ids])
        models = len(placed.auroc)
        covariance = np.full((segments.count, models, models), np.nan)
        for k in range(models):
            weighted = placed.influence[k] * corrected
            for other in range(k, models):
                covariance[:, k, other] = covariance[:, other, k] = segments.sums(weighted * placed.influence[other])
    covariance[(placed.events < 2) | (placed.non_events < 2)] = np.nan
    return DeLong(placed.auroc, covariance, placed.events, placed.non_events)


def pair_sums(scores: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> PairSums:
    """Compute the exact sums that each hospital sends for one model.

    ``scores [n]``, ``y`` and ``offsets`` are as in :func:`placements`.
    """
    z, event, segments = _checked(scores, y, offsets)
    if len(z) != 1:
        raise ValueError(f"scores: shape {z.shape} must be [n], the scores of one model")
    ids = segments.ids()
    events = segments.counts(event)
    doubled, ties = _won(z[0], event, segments, ids)
    wins = np.where(event, doubled, 0)
    first = 2 * _whole_sums(wins, segments)
    # psi^2 is 1, 1/4 or 0 for a pair, so 4 psi^2 is 4 psi, minus 1 for a tie.
    squares = 2 * _whole_sums(wins, segments) - _whole_sums(np.where(event, ties, 0), segments)
    same_event = _whole_sums(wins * wins, segments) - squares
    same_non_event = _whole_sums(np.where(event, 0, doubled * doubled), segments) - squares
    sums = [first, squares, same_event, same_non_event]
    broken = segments.counts(np.isnan(z[0])) > 0
    for values in sums:
        values[broken] = -1
    return PairSums(events, segments.lengths - events, *sums)


def delong_of_sums(sums: PairSums) -> tuple[Floats, Floats]:
    """Compute the AUROC of each of ``H`` hospitals and its DeLong variance, ``[H]`` each, from the sums that hospitals
    send.

    Up to rounding, the result equals that of :func:`delong`, which needs the rows.
    """
    m, n = (np.where(sums.judged, count, np.nan).astype(np.float64) for count in (sums.events, sums.non_events))
    first, squares, event, non_event = (np.asarray(sum_, np.float64) / 4.0 for sum_ in sums[2:])
    with np.errstate(invalid="ignore", divide="ignore"):
        auroc = first / (m * n)
        of_events = ((event + squares) / n**2 - m * auroc**2) / (m - 1.0)
        of_others = ((non_event + squares) / m**2 - n * auroc**2) / (n - 1.0)
        variance = np.maximum(of_events, 0.0) / m + np.maximum(of_others, 0.0) / n
    return auroc, np.where((m > 1) & (n > 1), variance, np.nan)


def u_statistics(sums: PairSums) -> UStatistics:
    """Compute the AUROC at each hospital, an unbiased estimate of its variance, and the components of this variance."""
    m, n = sums.events.astype(np.float64), sums.non_events.astype(np.float64)
    first, squares, same_event, same_non_event = (
        np.where(sums.judged, values, np.nan) / 4.0
        for values in (sums.first, sums.squares, sums.same_event, sums.same_non_event)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        auroc = first / (m * n)
        several = np.where((m > 1) & (n > 1), 1.0, np.nan)
        squared = several * (first * first - same_event - same_non_event - squares) / (m * (m - 1) * n * (n - 1))
        pair = squares / (m * n) - squared
        event = same_event / (m * n * (n - 1)) - squared
        non_event = same_non_event / (m * n * (m - 1)) - squared
        variance = variance_from_components(pair, event, non_event, m, n)
    return UStatistics(auroc, squared, pair, event, non_event, variance)


def variance_from_components(pair: Any, event: Any, non_event: Any, events: Any, non_events: Any) -> Any:
    """Return the variance of an AUROC, ``[xi11 + (n - 1) xi10 + (m - 1) xi01] / (m n)`` (Hoeffding), with ``m`` events
    and ``n`` non-events. The components xi11, xi10 and xi01 are ``pair``, ``event`` and ``non_event``.
    """
    return (pair + (non_events - 1) * event + (events - 1) * non_event) / (events * non_events)


def _checked(scores: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_], Segments]:
    z = floating(scores)
    z = z[None] if z.ndim == 1 else z
    labels = np.asarray(y)
    if z.ndim != 2:
        raise ValueError(f"scores: shape {z.shape} must be [n], or [K, n] for K models")
    segments = Segments.of(offsets, z.T, labels, classes=2)
    return z, labels.astype(bool), segments


def _corrected(count: Floats) -> Floats:
    return count / (count - 1.0)


def _whole_sums(values: Ints, segments: Segments) -> Ints:
    """Return the exact sum of integer ``values`` over each segment (hospital), ``[H]``."""
    running = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=running[1:])
    return np.diff(running[segments.offsets])


def _won(scores: NDArray[Any], event: NDArray[np.bool_], segments: Segments, ids: Ints) -> tuple[Ints, Ints]:
    """Compare each row with the rows of the other class at its hospital. Return two integer arrays ``[n]``.

    For each row, the first array has twice the number of rows of the other class against which the row is ranked
    correctly, plus the number of ties. The second array has the number of ties.
    """
    order = np.lexsort((scores, ids))
    ordered, hospital = scores[order], ids[order]
    new = (ordered[1:] != ordered[:-1]) | (hospital[1:] != hospital[:-1])
    first = np.flatnonzero(np.concatenate([np.ones(min(len(scores), 1), dtype=bool), new]))
    edges = np.append(first, len(scores))
    events_before = cumulative(event[order])
    hits = np.diff(events_before[edges])
    misses = np.diff(edges) - hits
    hospital = ids[order[first]]
    begin, end = segments.offsets[hospital], segments.offsets[hospital + 1]
    misses_below = (first - begin) - (events_before[first] - events_before[begin])
    hits_above = events_before[end] - events_before[edges[1:]]
    of = np.empty(len(scores), dtype=np.int64)
    of[order] = np.repeat(np.arange(len(first)), np.diff(edges))
    doubled = np.where(event, (2 * misses_below + misses)[of], (2 * hits_above + hits)[of])
    return doubled, np.where(event, misses[of], hits[of])
