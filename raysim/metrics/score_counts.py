"""Each hospital's counts of its scores: histograms by class, and numbers of rows at or above thresholds. Predictions
stay at the hospital.

Counts are integers, so the counts of several hospitals add up exactly, in any order. The label has two classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Ints
from raysim.metrics.measures import NAN_BIN, ScoreHistogram, merge_histograms
from raysim.metrics.segments import Segments, floating, ranges, sortable


class _Counts(NamedTuple):
    filled: Ints
    bins: NDArray[np.uint16]
    positives: Ints
    negatives: Ints
    at_least: Ints


class ScoreCounts(_Counts):
    """The scores of ``H`` hospitals' rows under one model, as histograms and as counts at thresholds.

    - ``filled [H]``: the number of bins of each hospital's histogram that have rows. ``bins [B]``: these bins, for one
      hospital after the other. ``positives [B]`` and ``negatives [B]``: the numbers of rows of each class in each bin,
      as in :class:`ScoreHistogram`.
    - ``at_least [H, T, 2]``: for each of ``T`` thresholds, the number of a hospital's rows whose probability is not
      below the threshold, separately for rows with the event and other rows.
    """

    @property
    def scalars(self) -> Ints:
        """The number of scalars that each hospital sends, ``[H]``: three for each bin that has rows, two for each
        threshold.
        """
        return np.asarray(3 * self.filled + self.at_least.shape[1] * self.at_least.shape[2])

    @cached_property
    def offsets(self) -> Ints:
        """The position of each hospital's first bin among the bins of all hospitals, and then the number of all bins,
        ``[H + 1]``.
        """
        return np.concatenate([[0], np.cumsum(self.filled)]).astype(np.int64)

    @property
    def histogram(self) -> ScoreHistogram:
        """The histograms of all hospitals in one object, with their bins concatenated and not added."""
        return ScoreHistogram(self.bins, self.positives, self.negatives)

    def hospital(self, h: int) -> ScoreHistogram:
        """Return the histogram of the scores of hospital ``h``."""
        first, last = self.offsets[h : h + 2]
        return ScoreHistogram(self.bins[first:last], self.positives[first:last], self.negatives[first:last])

    def together(self) -> ScoreCounts:
        """Return the counts of all hospitals' rows together, as the counts of a single hospital."""
        total = merge_histograms([self.histogram])
        return ScoreCounts(np.array([len(total.bins)]), *total, self.at_least.sum(axis=0, keepdims=True))

    def sums(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the sum of ``values`` over each hospital's bins, ``[H]``; 0 for a hospital without rows. ``values
        [B]`` has one number for each bin.
        """
        return Segments(self.offsets, self.filled).sums(np.asarray(values, dtype=np.float64))

    @cached_property
    def events(self) -> Ints:
        """The number of each hospital's rows with the event, ``[H]``."""
        return self.sums(self.positives).astype(np.int64)

    @cached_property
    def rows(self) -> Ints:
        """The number of each hospital's rows, ``[H]``."""
        return self.sums(self.positives + self.negatives).astype(np.int64)

    @cached_property
    def broken(self) -> NDArray[np.bool_]:
        """Whether each hospital has a prediction that is NaN, which makes its metrics undefined, ``[H]``."""
        return self.sums(self.bins == NAN_BIN) > 0


def score_counts(margins: ArrayLike, y: ArrayLike, offsets: ArrayLike, thresholds: Sequence[float] = ()) -> ScoreCounts:
    """Count each hospital's rows of each class: in bins of scores, and at or above each threshold.

    ``margins [n]`` are log odds of class 1, ``y [n]`` is 0 or 1, and ``thresholds`` are probabilities. Hospital ``h``
    has the rows ``offsets[h]:offsets[h + 1]``. A margin of NaN reaches no threshold.
    """
    z, labels = floating(margins), np.asarray(y)
    segments = Segments.of(offsets, z, labels, classes=2)
    with np.errstate(all="ignore"):
        single = z.astype(np.float32)
        bins = (sortable(single) >> 16).astype(np.int64)
    bins[np.isnan(single)] = NAN_BIN
    keys, each = np.unique(segments.ids() << 16 | bins, return_inverse=True)
    counts = np.bincount(2 * each.reshape(-1) + labels.astype(np.int64), minlength=2 * len(keys)).reshape(-1, 2)
    filled = np.bincount(keys >> 16, minlength=segments.count)
    at_least = np.zeros((segments.count, len(thresholds), 2), dtype=np.int64)
    event = labels.astype(bool)
    for t, threshold in enumerate(thresholds):
        reached = z.astype(np.float64) >= np.log(threshold) - np.log1p(-threshold)
        at_least[:, t, 0], at_least[:, t, 1] = segments.counts(reached & event), segments.counts(reached & ~event)
    return ScoreCounts(filled, (keys & 0xFFFF).astype(np.uint16), counts[:, 1], counts[:, 0], at_least)


def in_order(parts: Iterable[ScoreCounts], order: Ints) -> ScoreCounts:
    """Combine the counts of all actors; each simulates some of ``N`` hospitals. ``order [N]`` are the indices that sort
    the hospitals of all ``parts`` by id.
    """
    each = list(parts)
    stacked = ScoreCounts(*(np.concatenate(columns) for columns in zip(*each, strict=True)))
    bins = ranges(stacked.offsets[order], stacked.filled[order])
    return ScoreCounts(
        stacked.filled[order],
        stacked.bins[bins],
        stacked.positives[bins],
        stacked.negatives[bins],
        stacked.at_least[order],
    )
