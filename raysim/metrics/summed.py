"""Metrics that follow from one sum over rows, so that noise can be added to the sum.

A row's contribution to the sum has a public bound, from the number of classes or the declared range of the label.
Noisy sums are not clipped, so that they stay unbiased. Only the metrics computed from them are clipped to their range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.metrics.binned import BINS, bins_of, one_of_each_bin
from raysim.metrics.counts import BinaryCounts, ClassCounts, ErrorSums
from raysim.metrics.declared import ERROR_FIGURES, SCORES, values_of
from raysim.metrics.measures import FIGURES

AUROC = FIGURES.index("auroc")

FAR = 1e6
"""The absolute value to which :class:`Classes` clips logits before it computes margins."""


class SummedFigures(Protocol):
    """The computation of metrics from a sum of vectors over a hospital's rows, for one kind of label."""

    @property
    def width(self) -> int:
        """The number of entries of the vector that is summed."""

    @property
    def absolute(self) -> float:
        """The largest 1-norm of one row's contribution to the sum."""

    @property
    def euclidean(self) -> float:
        """The largest 2-norm of one row's contribution to the sum."""

    def added(self, outputs: NDArray[Any], y: ArrayLike) -> Floats:
        """Return each row's contribution to the sum, ``[n, width]``. ``outputs`` are a model's outputs, ``[n]`` or
        ``[n, C]``, and ``y [n]`` the labels.
        """

    def figures(self, sums: ArrayLike) -> Floats:
        """Compute the metrics of ``S`` hospitals from their ``sums [S, width]``: one column per metric, NaN if
        undefined.
        """

    def together(self, sum: Floats) -> dict[str, float]:
        """Compute metrics of all hospitals' rows together, by name, from the ``sum [width]`` over these rows."""


@dataclass(frozen=True)
class TwoClasses:
    """Metrics for a label of two classes, from counts of each class's rows in fixed bins
    (:mod:`raysim.metrics.binned`).
    """

    width = 2 * BINS
    absolute = 1.0
    euclidean = 1.0

    def added(self, outputs: NDArray[Any], y: ArrayLike) -> Floats:
        """Return a matrix with a single 1 in each row, as :func:`one_of_each_bin` does."""
        return one_of_each_bin(outputs if outputs.ndim == 1 else outputs[:, 1] - outputs[:, 0], y)

    def figures(self, sums: ArrayLike) -> Floats:
        """Compute the metrics of each hospital; see :func:`figures_of_counts`."""
        return figures_of_counts(sums)

    def together(self, sum: Floats) -> dict[str, float]:
        """Compute the AUROC of all hospitals' rows together."""
        return _pooled(self.figures(sum[None, :]))


@dataclass(frozen=True)
class Classes:
    """Metrics for ``C`` classes, from counts of rows in bins of each class's margin, and of correctly classified rows.

    A class's margin is the log odds of its softmax probability. Bins are counted separately for rows of the class and
    for other rows. A row adds ``C + 1`` ones to the sum.
    """

    count: int

    @property
    def width(self) -> int:
        """The number of entries of the sum: ``2 * BINS`` bins and two counts for each class."""
        return self.count * (2 * BINS + 2)

    @property
    def absolute(self) -> float:
        """The 1-norm of a row's contribution to the sum."""
        return self.count + 1.0

    @property
    def euclidean(self) -> float:
        """The 2-norm of a row's contribution to the sum."""
        return math.sqrt(self.count + 1.0)

    def added(self, outputs: NDArray[Any], y: ArrayLike) -> Floats:
        """Return each row's contribution to the sum, two flattened parts:

        - ``[C, 2, BINS]``: for each class, a 1 in the bin of its margin, at index 1 if the row is of this class,
          otherwise at index 0.
        - ``[C, 2]``: a 1 for the row's own class, at index 1 if the row is classified correctly, otherwise at index 0.

        A row is classified by its largest logit, the first of equal ones; a NaN logit counts as 0.
        """
        labels, z = np.asarray(y, dtype=np.int64), np.nan_to_num(np.asarray(outputs, dtype=np.float64))
        n, rows = len(labels), np.arange(len(labels))
        bins, called = np.zeros((n, self.count, 2, BINS)), np.zeros((n, self.count, 2))
        bounded = np.clip(z, -FAR, FAR)
        for c in range(self.count):
            others = np.logaddexp.reduce(np.delete(bounded, c, axis=1), axis=1)
            bins[rows, c, (labels == c).astype(np.int64), bins_of(bounded[:, c] - others)] = 1.0
        right = (z.argmax(axis=1) if n else labels) == labels
        called[rows, labels, right.astype(np.int64)] = 1.0
        return np.concatenate([bins.reshape(n, self.count * 2 * BINS), called.reshape(n, self.count * 2)], axis=1)

    def figures(self, sums: ArrayLike) -> Floats:
        """Compute the metrics of each hospital as :func:`raysim.metrics.measures.multiclass_figures` does, with each
        margin rounded to the middle of its bin.

        Means over classes leave out a class if the noisy count of its rows is below one half. Means of AUROC and AUPRC
        also leave it out if the count of all other rows is below one half.
        """
        each = np.asarray(sums, dtype=np.float64)
        bins = each[:, : -2 * self.count].reshape(-1, self.count, 2, BINS)
        of = ClassCounts(bins[:, :, 0], bins[:, :, 1], each[:, -2 * self.count :].reshape(-1, self.count, 2))
        nothing = np.full(len(each), np.nan)
        columns: list[Floats] = [np.maximum(np.rint(of.n), 0.0), nothing]
        with np.errstate(all="ignore"):
            for figure in SCORES:
                take = figure.of_class_counts
                values = nothing if take is None else values_of(figure, take, of, len(each))
                # Means over classes already leave out classes without rows.
                some = of.n >= 0.5 if figure.undefined == "without rows" else np.ones(len(each), np.bool_)
                columns.append(np.where(some, np.clip(values, 0.0, figure.most(of)), np.nan))
        return np.column_stack(columns)

    def together(self, sum: Floats) -> dict[str, float]:
        """Compute the mean over classes of the AUROC of all hospitals' rows together."""
        return _pooled(self.figures(sum[None, :]))


@dataclass(frozen=True)
class Errors:
    """Metrics for a real-valued label, from sums of errors. Predictions and labels are clipped to the declared range.

    A row adds ``(1, |e|, e, e^2, t, t^2)``: ``e`` is its error divided by the width of the range, and ``t`` its label,
    scaled to -1 to 1.
    """

    low: float
    high: float
    width = 6
    absolute = 6.0
    euclidean = math.sqrt(6.0)

    @property
    def _range(self) -> float:
        return self.high - self.low

    def added(self, outputs: NDArray[Any], y: ArrayLike) -> Floats:
        """Return each row's contribution to the sum, ``[n, 6]``; a prediction of NaN is replaced by the middle of the
        range.
        """
        middle = (self.low + self.high) / 2.0
        z = np.nan_to_num(np.asarray(outputs, np.float64), nan=middle, posinf=self.high, neginf=self.low)
        labels = np.clip(np.asarray(y, dtype=np.float64), self.low, self.high)
        error, place = (np.clip(z, self.low, self.high) - labels) / self._range, 2.0 * (labels - middle) / self._range
        # Rounding may give values beyond the ends.
        error, place = np.clip(error, -1.0, 1.0), np.clip(place, -1.0, 1.0)
        return np.column_stack([np.ones(len(labels)), np.abs(error), error, error * error, place, place * place])

    def figures(self, sums: ArrayLike) -> Floats:
        """Compute the metrics of each hospital. All but ``n`` are NaN if the hospital's noisy number of rows is below
        one half.
        """
        of = ErrorSums(self._range, *np.asarray(sums, dtype=np.float64).T)
        nothing = np.full(len(of.count), np.nan)
        columns: list[Floats] = [np.maximum(np.rint(of.count), 0.0)]
        with np.errstate(all="ignore"):
            for figure in ERROR_FIGURES:
                take = figure.of_sums
                values = nothing if take is None else values_of(figure, take, of, len(of.count))
                columns.append(np.where(of.count >= 0.5, values, np.nan))
        return np.column_stack(columns)

    def together(self, sum: Floats) -> dict[str, float]:
        """Return an empty dictionary: for a real-valued label, only means over hospitals are reported."""
        return {}


def figures_of_counts(counts: ArrayLike) -> Floats:
    """Compute the metrics of ``S`` hospitals, ``[S, len(FIGURES)]``, from noisy sums ``counts [S, 2 * BINS]`` of
    :func:`one_of_each_bin`.

    ``n`` and ``events`` are rounded to whole numbers, at least 0. Undefined metrics are NaN:

    - AUROC, if the count of either class is below one half;
    - AUPRC and recall, if the count of events is below one half;
    - all except ``n`` and ``events``, if the count of rows is below one half.

    Rows within a bin are treated as ties, and their loss is computed at the middle of the bin.
    """
    each = np.asarray(counts, dtype=np.float64)
    of = BinaryCounts(each[:, :BINS], each[:, BINS:])
    n = np.maximum(np.rint(of.n), 0.0)
    columns: list[Floats] = [n, np.clip(np.rint(of.events), 0.0, n)]
    enough = {
        "without rows": of.n >= 0.5,
        "without events": of.events >= 0.5,
        "with one class": np.minimum(of.events, of.others) >= 0.5,
    }
    with np.errstate(all="ignore"):
        for figure in SCORES:
            take = figure.of_counts
            values = np.full(len(each), np.nan) if take is None else values_of(figure, take, of, len(each))
            columns.append(np.where(enough[figure.undefined], np.clip(values, 0.0, figure.most(of)), np.nan))
    return np.column_stack(columns)


def _pooled(figures: Floats) -> dict[str, float]:
    return {"pooled_auroc": float(figures[0, AUROC]), "pooled_auroc_bound": float("nan")}
