"""Figures of many hospitals at once, from the logits or predictions of their rows.

Rows of all hospitals lie back to back and ``offsets`` cuts them into segments, one a hospital. Everything is vectorised
over segments, so that 200 hospitals cost little more than one, and a segment's row of figures is the same bit for bit
whatever other segments are in the call: sums run over one segment at a time, and ranks are counted in integers.

An undefined figure is NaN, never 0 or 0.5. Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.metrics.declared import ERROR_FIGURES, SCORES
from raysim.metrics.segments import Segments, cumulative, floating, sortable

FIGURES = ("n", "events", *(figure.name for figure in SCORES))
ERRORS = ("n", *(figure.name for figure in ERROR_FIGURES))
"""The columns of a label that is a class, and of a real one: counts, then what is declared."""

RANKS = ("auroc", "auprc")
"""The figures that depend on the order of a hospital's scores alone."""

Rows = NDArray[Any]
Floats = NDArray[np.float64]


def figures(logits: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Figures of each segment ``[S, len(FIGURES)]``, by the shape of ``logits``.

    ``[n]`` or ``[n, 1]`` are margins of class 1 and ``[n, 2]`` two logits whose difference is that margin: see
    :func:`binary_figures`; ``[n, C]`` with three classes or more: see :func:`multiclass_figures`.
    """
    z = np.asarray(logits)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    elif z.ndim == 2 and z.shape[1] == 2:
        with np.errstate(all="ignore"):
            z = z[:, 1] - z[:, 0]
    return binary_figures(z, y, offsets) if z.ndim == 1 else multiclass_figures(z, y, offsets)


def binary_figures(margins: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Figures of each segment for two classes, ``[S, len(FIGURES)]``, columns named by ``FIGURES``.

    ``margins [n]`` are logits of class 1 (float32 is the fast path), ``y [n]`` is 0 or 1, and segment ``s`` is rows
    ``offsets[s]:offsets[s + 1]`` of ``offsets [S + 1]``. ``events`` counts ``y == 1``. A row is called positive when
    its probability is at least one half, that is when its margin is ``>= 0``: a margin of exactly 0 is class 1.

    NaN where undefined: AUROC with one class only, AUPRC and recall without events, everything but ``n`` and
    ``events`` in an empty segment or one that holds a NaN margin. An infinite margin on the wrong side makes the log
    loss infinite. Raises ``ValueError`` for shapes that do not fit and for labels other than 0 and 1.
    """
    z = floating(margins)
    labels = np.asarray(y)
    segments = Segments.of(offsets, z, labels, classes=2)
    rows = BinaryRows(z, labels.astype(bool), segments)
    out = np.full((segments.count, len(FIGURES)), np.nan)
    with np.errstate(all="ignore"):
        others = rows.n - rows.events
        missing = {"without rows": rows.n, "without events": rows.events, "with one class": rows.events * others}
        for column, figure in enumerate(SCORES, 2):
            out[:, column] = np.where(missing[figure.undefined] > 0, figure.of_rows(rows), np.nan)
    out[segments.holding(np.isnan(z)), 2:] = np.nan
    out[:, 0], out[:, 1] = rows.n, rows.events
    return out


def multiclass_figures(logits: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Figures of each segment for ``C`` classes, ``[S, len(FIGURES)]``.

    ``logits`` are ``[n, C]``, ``y [n]`` is in ``0..C-1``, ``offsets [S + 1]`` as in :func:`binary_figures`. Log loss is
    that of the softmax, Brier sums squared errors over classes (0 to 2), accuracy calls the largest logit (the first
    of equals), recall is the unweighted mean over the classes present in the segment. AUROC and AUPRC are unweighted
    means of one-class-against-the-rest figures, ranked by the softmax probability, over the classes that have both
    rows and other rows in the segment; NaN when there is none. ``events`` is NaN: with more than two classes there is
    no event. Equal infinities share the probability; a NaN logit, or a row of ``-inf`` alone, makes the segment's
    figures NaN.
    """
    z = floating(logits)
    labels = np.asarray(y)
    if z.ndim != 2 or z.shape[1] < 2:
        raise ValueError(f"logits: shape {z.shape} is not [n, C] with at least 2 classes")
    classes = z.shape[1]
    segments = Segments.of(offsets, z, labels, classes)
    out = np.full((segments.count, len(FIGURES)), np.nan)
    with np.errstate(all="ignore"):
        rows = ClassRows(z, labels.astype(np.int64), segments)
        for column, figure in enumerate(SCORES, 2):
            if figure.of_classes is not None:
                out[:, column] = figure.of_classes(rows)
    out[segments.holding(np.logical_or.reduce(np.isnan(rows.log_p), axis=1)), 2:] = np.nan
    out[:, 0] = rows.n
    return out


def regression_figures(predictions: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Figures of each segment for a real label, ``[S, len(ERRORS)]``, columns named by ``ERRORS``.

    ``predictions [n]`` and ``y [n]`` are in the label's unit, ``offsets [S + 1]`` as in :func:`binary_figures`. ``mae``
    and ``rmse`` are the mean absolute and the root of the mean squared error, ``bias`` the mean of prediction minus
    label, and ``r2`` is ``1 - sum (y - z)^2 / sum (y - mean y)^2`` with the segment's own mean label.

    NaN where undefined: ``r2`` where all labels of the segment are equal, everything but ``n`` in an empty segment or
    one that holds a NaN prediction. Infinite predictions make ``mae`` and ``rmse`` infinite. Raises ``ValueError`` for
    shapes that do not fit.
    """
    z, labels = np.asarray(predictions, dtype=np.float64), np.asarray(y, dtype=np.float64)
    segments = Segments.of(offsets, z, labels, classes=None)
    out = np.full((segments.count, len(ERRORS)), np.nan)
    with np.errstate(all="ignore"):
        rows = ErrorRows(z, labels, segments)
        for column, figure in enumerate(ERROR_FIGURES, 1):
            out[:, column] = figure.of_rows(rows)
    out[segments.holding(np.isnan(z)), 1:] = np.nan
    out[:, 0] = rows.n
    return out


@dataclass(eq=False)
class BinaryRows:
    """Rows of two classes in segments, and what figures have in common; each is computed when first used."""

    z: Rows
    """Margins ``[n]``."""
    positive: NDArray[np.bool_]
    """Which rows have the event, ``[n]``."""
    segments: Segments

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """Rows, ``[S]``."""
        return self.segments.lengths

    @cached_property
    def events(self) -> NDArray[np.int64]:
        """Rows with the event, ``[S]``."""
        return self.segments.counts(self.positive)

    @cached_property
    def called(self) -> NDArray[np.bool_]:
        """Which rows have a probability of at least one half, ``[n]``."""
        called: NDArray[np.bool_] = self.z >= 0
        return called

    @cached_property
    def ranks(self) -> tuple[Floats, Floats]:
        """AUROC and AUPRC, ``[S]`` each."""
        return _ranking(self.z, self.positive, self.segments)

    @cached_property
    def log_loss(self) -> Floats:
        """Of each row, ``[n]``."""
        loss: Floats = np.maximum(self._against, 0.0) + np.log1p(self._decay)
        return loss

    @cached_property
    def squared_error(self) -> Floats:
        """The squared probability of the wrong class, ``[n]``."""
        wrong = np.where(self._against >= 0, 1.0, self._decay) / (1.0 + self._decay)
        return wrong * wrong

    @cached_property
    def _against(self) -> Floats:
        """The margin of the wrong class."""
        return np.where(self.positive, -self.z, self.z).astype(np.float64)

    @cached_property
    def _decay(self) -> Floats:
        decay: Floats = np.exp(-np.abs(self._against))
        return decay


@dataclass(eq=False)
class ClassRows:
    """Rows of ``C`` classes in segments, and what figures have in common; each is computed when first used."""

    z: Rows
    """Logits ``[n, C]``."""
    labels: NDArray[np.int64]
    """The class of each row, ``[n]``."""
    segments: Segments

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """Rows, ``[S]``."""
        return self.segments.lengths

    @cached_property
    def log_p(self) -> Floats:
        """Logarithms of the softmax, ``[n, C]``."""
        return _log_softmax(self.z)

    @cached_property
    def called(self) -> NDArray[np.int64]:
        """The class with the largest logit, the first of equals, ``[n]``."""
        return np.argmax(self.z, axis=1) if len(self.z) else self.labels

    @cached_property
    def log_loss(self) -> Floats:
        """Of each row, ``[n]``."""
        loss: Floats = -self.log_p[np.arange(len(self.labels)), self.labels]
        return loss

    @cached_property
    def squared_error(self) -> Floats:
        """Summed over classes, ``[n]``."""
        errors = np.exp(self.log_p)
        errors[np.arange(len(self.labels)), self.labels] -= 1.0
        total: Floats = np.square(errors).sum(axis=1)
        return total

    @cached_property
    def ranks(self) -> Floats:
        """AUROC and AUPRC of each class against the rest, ``[2, S, C]``; NaN without rows of both."""
        scores = self.log_p.astype(self.z.dtype)  # ranked at the precision of the logits: float32 takes the fast path
        each = np.full((2, self.segments.count, self.z.shape[1]), np.nan)
        for c in range(self.z.shape[1]):
            positive = self.labels == c
            each[:, :, c] = _ranking(np.ascontiguousarray(scores[:, c]), positive, self.segments)
            each[1, self.segments.counts(positive) == self.n, c] = np.nan  # nothing to rank the class against
        return each

    @cached_property
    def recalls(self) -> Floats:
        """The share of each class's rows that are called so, ``[S, C]``."""
        each = np.full((self.segments.count, self.z.shape[1]), np.nan)
        for c in range(self.z.shape[1]):
            positive = self.labels == c
            each[:, c] = self.segments.counts(positive & (self.called == c)) / self.segments.counts(positive)
        return each

    def mean(self, values: Floats) -> Floats:
        """The mean of ``values [S, C]`` over the classes where it is defined, ``[S]``."""
        return _mean_of_defined(values)


@dataclass(eq=False)
class ErrorRows:
    """Predictions of a real label in segments, and what figures have in common."""

    z: Floats
    """Predictions ``[n]``."""
    labels: Floats
    """Labels ``[n]``."""
    segments: Segments

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """Rows, ``[S]``."""
        return self.segments.lengths

    @cached_property
    def errors(self) -> Floats:
        """Prediction less label, ``[n]``."""
        return self.z - self.labels

    @cached_property
    def squared(self) -> Floats:
        """The sum of squared errors, ``[S]``."""
        return self.segments.sums(self.errors * self.errors)

    @cached_property
    def spread(self) -> Floats:
        """The sum of squared distances of labels from their mean, ``[S]``."""
        means = self.segments.sums(self.labels) / self.n
        return self.segments.sums(np.square(self.labels - means[self.segments.ids()]))

    @cached_property
    def varied(self) -> NDArray[np.bool_]:
        """Whether labels differ at all, ``[S]``: exact, unlike a sum of squares."""
        first = self.labels[self.segments.offsets[self.segments.ids()]]
        return self.segments.counts(self.labels != first) > 0


class ScoreHistogram(NamedTuple):
    """How many rows of each class score within each bin; histograms of different hospitals add up exactly.

    ``bins [B]`` uint16, ascending, without empty ones: the top 16 bits of the integer that orders float32 margins
    (sign, exponent and 7 bits of mantissa: bins are narrower than 1 % of the margin). ``positives`` and ``negatives``
    are counts ``[B]``.
    """

    bins: NDArray[np.uint16]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes that leave the hospital with this histogram."""
        return int(self.bins.nbytes + self.positives.nbytes + self.negatives.nbytes)


NAN_BIN = 0xFFFF
"""Of margins that are NaN, above every number's bin: that of +inf is 0xFF80."""


def score_histogram(margins: ArrayLike, y: ArrayLike) -> ScoreHistogram:
    """The histogram of ``margins [n]`` (logits of class 1) by class ``y [n]`` in {0, 1}, of one hospital or several.

    Margins wider than float32 are rounded to it first, which keeps their order.
    """
    labels = np.asarray(y)
    with np.errstate(all="ignore"):
        z = np.asarray(margins, dtype=np.float32)
        Segments.of([0, len(z)], z, labels, classes=2)
        bins = sortable(z) >> np.uint32(16)
    bins[np.isnan(z)] = NAN_BIN
    # Rows fill few of the 65,536 bins: sorting them takes less time than counting in all.
    occurring, counts = np.unique(2 * bins + labels.astype(np.uint32), return_counts=True)
    filled, place = np.unique(occurring >> 1, return_inverse=True)
    rows = np.zeros((2, len(filled)), dtype=np.int64)
    rows[occurring & 1, place] = counts
    return ScoreHistogram(filled.astype(np.uint16), rows[1], rows[0])


def merge_histograms(histograms: Iterable[ScoreHistogram]) -> ScoreHistogram:
    """The sum of histograms, exact and whatever their order."""
    dense = np.zeros((1 << 16, 2), dtype=np.int64)
    for histogram in histograms:
        np.add.at(dense[:, 0], histogram.bins, histogram.negatives)
        np.add.at(dense[:, 1], histogram.bins, histogram.positives)
    bins = np.flatnonzero(dense[:, 0] | dense[:, 1])  # ten times faster than any(axis=1)
    return ScoreHistogram(bins.astype(np.uint16), dense[bins, 1], dense[bins, 0])


def pooled_auroc(histograms: Iterable[ScoreHistogram]) -> tuple[float, float]:
    """AUROC of all rows of all hospitals together and the largest error that binning can have caused.

    ``histograms`` are as :func:`score_histogram` gives them.

    A pair of a positive and a negative row in different bins is counted exactly; a pair that shares a bin counts one
    half, where the truth is 0, one half or 1. With ``p_b`` and ``q_b`` positives and negatives in bin ``b`` and ``P``
    and ``Q`` in all, the bound is therefore ``sum_b p_b q_b / (2 P Q)``, and there are scores that attain it. Both are
    NaN when a class is missing or a margin was NaN.
    """
    parts = list(histograms)
    total = parts[0] if len(parts) == 1 else merge_histograms(parts)
    pairs = float(total.positives.sum()) * float(total.negatives.sum())
    if pairs == 0 or (total.bins == NAN_BIN).any():
        return float("nan"), float("nan")
    below = np.cumsum(total.negatives) - total.negatives
    twice = int(np.sum(total.positives * (2 * below + total.negatives)))
    return twice / (2 * pairs), int(np.sum(total.positives * total.negatives)) / (2 * pairs)


def _ranking(scores: Rows, positive: NDArray[np.bool_], segments: Segments) -> tuple[Floats, Floats]:
    """AUROC by midranks and average precision with equal scores grouped, each ``[S]``."""
    ids = segments.ids()
    ranked, first = _ranked(scores, positive, ids)
    seen = cumulative(ranked)
    edges = np.append(first, len(ranked))
    hits = np.diff(seen[edges])
    groups = np.flatnonzero(hits > 0)  # runs of equal scores without a positive row add nothing to either figure
    hits, first, last = hits[groups], edges[groups], edges[groups + 1]
    segment = ids[first]
    begin, end = segments.offsets[segment], segments.offsets[segment + 1]

    events = segments.counts(positive)
    below = (first - begin) - (seen[first] - seen[begin])
    twice = hits * (2 * below + (last - first - hits))  # twice the pairs in order: an integer, exact in float64 sums
    precision = (seen[end] - seen[first]) / (end - first)
    auroc = np.bincount(segment, twice, segments.count) / (2.0 * events * (segments.lengths - events))
    auprc = np.bincount(segment, hits * precision, segments.count) / events
    return auroc, auprc


def _ranked(
    scores: Rows, positive: NDArray[np.bool_], ids: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """``positive [n]`` by ascending score within each segment, and where runs of equal scores begin, ``[G]``."""
    new = np.ones(len(scores), dtype=bool)
    if scores.dtype == np.float32:
        # One integer holds segment, score and class: sorting plain integers is several times faster than an argsort.
        key = ids.astype(np.uint64) << np.uint64(33)
        key |= sortable(scores).astype(np.uint64) << np.uint64(1)
        key |= positive
        key.sort()
        ranked: NDArray[np.bool_] = (key & np.uint64(1)).astype(bool)
        key >>= np.uint64(1)
        new[1:] = key[1:] != key[:-1]
    else:
        order = np.lexsort((scores, ids))
        ranked, ordered = np.take(positive, order), scores[order]
        new[1:] = (ordered[1:] != ordered[:-1]) | (ids[1:] != ids[:-1])
    return ranked, np.flatnonzero(new)


def _log_softmax(logits: Rows) -> Floats:
    """``log p [n, C]`` in float64, precise near probability 1: the others are added to 1 by ``log1p``."""
    z = logits.astype(np.float64)
    if not len(z):
        return z
    unbounded = np.isposinf(z).any(axis=1)
    z[unbounded] = np.where(np.isposinf(z[unbounded]), 0.0, -np.inf)
    rows, top = np.arange(len(z)), np.argmax(z, axis=1)
    z -= z[rows, top][:, None]
    others = np.exp(z)
    others[rows, top] = 0.0
    z -= np.log1p(others.sum(axis=1))[:, None]
    return z


def _mean_of_defined(values: Floats) -> Floats:
    """The mean of ``values [S, C]`` over the classes where it is defined, ``[S]``.

    Classes lie along the contiguous axis, so that numpy adds a segment's classes in one order whatever ``S`` is.
    """
    defined = ~np.isnan(values)
    mean: Floats = np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1)
    return mean
