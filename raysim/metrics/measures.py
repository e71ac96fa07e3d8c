"""Metrics of many hospitals at once, from the logits or predictions of their rows.

Rows of all hospitals are concatenated, and ``offsets`` divides them into segments, one for each hospital. A segment's
metrics are the same bit for bit whatever other segments are in the call.

An undefined metric is NaN, never 0 or 0.5. Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.metrics.declared import ERROR_FIGURES, SCORES, values_of
from raysim.metrics.rows import BinaryRows, ClassRows, ErrorRows
from raysim.metrics.segments import Segments, floating, sortable

FIGURES = ("n", "events", *(figure.name for figure in SCORES))
ERRORS = ("n", *(figure.name for figure in ERROR_FIGURES))
"""Columns of hospitals' metrics, row counts first: ``FIGURES`` for class labels, ``ERRORS`` for real-valued ones."""

RANKS = ("auroc", "auprc")
"""The metrics that depend only on the order of scores."""

Rows = NDArray[Any]


def figures(logits: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Compute the metrics of each of ``S`` segments (hospitals), ``[S, len(FIGURES)]``, for any number of classes.

    ``logits`` are margins (log odds of class 1) ``[n]`` or ``[n, 1]``, or logits ``[n, 2]`` whose difference is the
    margin: see :func:`binary_figures`. For ``[n, C]`` with three classes or more see :func:`multiclass_figures`.
    """
    z = np.asarray(logits)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    elif z.ndim == 2 and z.shape[1] == 2:
        with np.errstate(all="ignore"):
            z = z[:, 1] - z[:, 0]
    return binary_figures(z, y, offsets) if z.ndim == 1 else multiclass_figures(z, y, offsets)


def binary_figures(margins: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Compute the metrics of each of ``S`` segments (hospitals) for two classes, ``[S, len(FIGURES)]``.

    ``margins [n]`` are log odds of class 1, and ``y [n]`` is 0 or 1. ``offsets`` is ``[S + 1]``: segment ``s`` has the
    rows ``offsets[s]:offsets[s + 1]``. A row is classified as positive if its margin is ``>= 0``.

    Undefined metrics are NaN: AUROC with one class only; AUPRC and recall without events; all except ``n`` and
    ``events`` in a segment that is empty or contains a NaN margin. An infinite margin on the wrong side makes the log
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
            out[:, column] = np.where(
                missing[figure.undefined] > 0, values_of(figure, figure.of_rows, rows, segments.count), np.nan
            )
    out[segments.holding(np.isnan(z)), 2:] = np.nan
    out[:, 0], out[:, 1] = rows.n, rows.events
    return out


def multiclass_figures(logits: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Compute the metrics of each of ``S`` segments (hospitals) for ``C`` classes, ``[S, len(FIGURES)]``.

    ``logits`` are ``[n, C]``, ``y [n]`` is in ``0..C-1``, and ``offsets [S + 1]`` are as in :func:`binary_figures`.

    - Log loss is computed from the softmax.
    - The Brier score is the mean over rows of the sum over classes of squared errors; it is between 0 and 2.
    - Accuracy: the predicted class is the one with the largest logit (the first of equal ones).
    - Recall is the unweighted mean over the classes present in the segment.
    - AUROC and AUPRC are unweighted means of one-versus-rest values, ranked by the softmax probability. A class is left
      out if it has no rows, or if all rows are of this class. The mean over no classes is NaN.
    - ``events`` is NaN.

    If several logits of a row are ``inf``, their classes share the probability equally. A NaN logit, or a row of
    ``-inf`` alone, makes the segment's metrics NaN.
    """
    z = floating(logits)
    labels = np.asarray(y)
    if z.ndim != 2 or z.shape[1] < 2:
        raise ValueError(f"logits: shape {z.shape} must be [n, C], with at least 2 classes")
    classes = z.shape[1]
    segments = Segments.of(offsets, z, labels, classes)
    out = np.full((segments.count, len(FIGURES)), np.nan)
    with np.errstate(all="ignore"):
        rows = ClassRows(z, labels.astype(np.int64), segments)
        for column, figure in enumerate(SCORES, 2):
            if figure.of_classes is not None:
                out[:, column] = values_of(figure, figure.of_classes, rows, segments.count)
    out[segments.holding(np.logical_or.reduce(np.isnan(rows.log_p), axis=1)), 2:] = np.nan
    out[:, 0] = rows.n
    return out


def regression_figures(predictions: ArrayLike, y: ArrayLike, offsets: ArrayLike) -> Floats:
    """Compute the metrics of each of ``S`` segments (hospitals) for a real-valued label, ``[S, len(ERRORS)]``.

    ``predictions [n]`` and ``y [n]`` are in the label's unit, and ``offsets [S + 1]`` are as in :func:`binary_figures`.
    ``mae`` is the mean absolute error, ``rmse`` the root of the mean squared error, and ``bias`` the mean of prediction
    minus label. ``r2`` is ``1 - sum (y - z)^2 / sum (y - mean y)^2`` with predictions ``z`` and the mean label of the
    segment.

    Undefined metrics are NaN: ``r2`` if all labels of the segment are equal; all except ``n`` in a segment that is
    empty or contains a NaN prediction. Infinite predictions make ``mae`` and ``rmse`` infinite. Raises ``ValueError``
    for shapes that do not fit.
    """
    z, labels = np.asarray(predictions, dtype=np.float64), np.asarray(y, dtype=np.float64)
    segments = Segments.of(offsets, z, labels, classes=None)
    out = np.full((segments.count, len(ERRORS)), np.nan)
    with np.errstate(all="ignore"):
        rows = ErrorRows(z, labels, segments)
        for column, figure in enumerate(ERROR_FIGURES, 1):
            out[:, column] = values_of(figure, figure.of_rows, rows, segments.count)
    out[segments.holding(np.isnan(z)), 1:] = np.nan
    out[:, 0] = rows.n
    return out


class ScoreHistogram(NamedTuple):
    """The number of rows of each class in each bin of scores; histograms of different hospitals add up exactly.

    ``bins [B]`` are the bins that have rows, ascending. A bin is the first 16 bits of a float32 margin, encoded so that
    bins are in the order of margins. It is narrower than 1 % of the margin. ``positives [B]`` and ``negatives [B]`` are
    the numbers of rows with and without the event in each bin.
    """

    bins: NDArray[np.uint16]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the three arrays."""
        return int(self.bins.nbytes + self.positives.nbytes + self.negatives.nbytes)


NAN_BIN = 0xFFFF
"""The bin of margins that are NaN, above the bins of all numbers."""


def score_histogram(margins: ArrayLike, y: ArrayLike) -> ScoreHistogram:
    """Return the histogram of ``margins [n]`` (log odds of class 1), separately for each class of ``y [n]``."""
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
    """Return the sum of several hospitals' histograms, which is independent of their order."""
    dense = np.zeros((1 << 16, 2), dtype=np.int64)
    for histogram in histograms:
        np.add.at(dense[:, 0], histogram.bins, histogram.negatives)
        np.add.at(dense[:, 1], histogram.bins, histogram.positives)
    bins = np.flatnonzero(dense[:, 0] | dense[:, 1])  # ten times faster than any(axis=1)
    return ScoreHistogram(bins.astype(np.uint16), dense[bins, 1], dense[bins, 0])


def pooled_auroc(histograms: Iterable[ScoreHistogram]) -> tuple[float, float]:
    """Return the AUROC of all hospitals' rows together, and the largest error that binning can have caused.

    A pair of a positive and a negative row in the same bin counts one half. With ``p_b`` and ``q_b`` positive and
    negative rows in bin ``b``, and totals ``P`` and ``Q``, the error is at most ``sum_b p_b q_b / (2 P Q)``. Both
    results are NaN if a class is missing or a margin was NaN.
    """
    parts = list(histograms)
    total = parts[0] if len(parts) == 1 else merge_histograms(parts)
    pairs = float(total.positives.sum()) * float(total.negatives.sum())
    if pairs == 0 or (total.bins == NAN_BIN).any():
        return float("nan"), float("nan")
    below = np.cumsum(total.negatives) - total.negatives
    doubled = int(np.sum(total.positives * (2 * below + total.negatives)))
    return doubled / (2 * pairs), int(np.sum(total.positives * total.negatives)) / (2 * pairs)


def hanley_mcneil(t: Any, events: Any, non_events: Any) -> Any:
    """Return the variance of an observed AUROC if the true AUROC is ``t``.

    The formula assumes exponential scores; for normal scores it is conservative. J. A. Hanley, B. J. McNeil: *The
    Meaning and Use of the Area under a Receiver Operating Characteristic (ROC) Curve*, Radiology 143, 1982.
    """
    above, below = t / (2 - t), 2 * t * t / (1 + t)
    return (t * (1 - t) + (events - 1) * (above - t * t) + (non_events - 1) * (below - t * t)) / (events * non_events)
