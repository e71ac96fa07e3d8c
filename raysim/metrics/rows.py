"""A hospital's rows with two classes, several classes, or a real-valued label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.metrics.segments import Segments, cumulative

Rows = NDArray[Any]


@dataclass(eq=False)
class BinaryRows:
    """Scores of ``n`` rows of two classes in ``S`` segments (hospitals), and quantities that metrics share."""

    z: Rows
    """The margin of each row, which is the predicted log odds of the event, ``[n]``."""
    positive: NDArray[np.bool_]
    """Whether each row has the event, ``[n]``."""
    segments: Segments

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """The number of rows in each segment (hospital), ``[S]``."""
        return self.segments.lengths

    @cached_property
    def events(self) -> NDArray[np.int64]:
        """The number of rows with the event in each segment (hospital), ``[S]``."""
        return self.segments.counts(self.positive)

    @cached_property
    def predicted_positive(self) -> NDArray[np.bool_]:
        """Whether each row has a predicted probability of at least one half, ``[n]``."""
        return np.asarray(self.z >= 0)

    @cached_property
    def ranks(self) -> tuple[Floats, Floats]:
        """AUROC and AUPRC of each segment (hospital), ``[S]`` each."""
        return _ranking(self.z, self.positive, self.segments)

    @cached_property
    def log_loss(self) -> Floats:
        """The log loss of each row, ``[n]``."""
        return np.asarray(np.maximum(self._against, 0.0) + np.log1p(self._decay))

    @cached_property
    def squared_error(self) -> Floats:
        """The squared error of each row: the square of the probability predicted for the wrong class, ``[n]``."""
        wrong = np.where(self._against >= 0, 1.0, self._decay) / (1.0 + self._decay)
        return wrong * wrong

    @cached_property
    def _against(self) -> Floats:
        return np.where(self.positive, -self.z, self.z).astype(np.float64)

    @cached_property
    def _decay(self) -> Floats:
        return np.asarray(np.exp(-np.abs(self._against)))


@dataclass(eq=False)
class ClassRows:
    """Scores of ``n`` rows of ``C`` classes in ``S`` segments (hospitals), and quantities that metrics share."""

    z: Rows
    """The logit of each row for each class, ``[n, C]``."""
    labels: NDArray[np.int64]
    """The class of each row, ``[n]``."""
    segments: Segments

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """The number of rows in each segment (hospital), ``[S]``."""
        return self.segments.lengths

    @cached_property
    def log_p(self) -> Floats:
        """The logarithms of each row's predicted probabilities (softmax) of the ``C`` classes, ``[n, C]``."""
        return _log_softmax(self.z)

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The predicted class of each row, ``[n]``: the class with the largest logit (the first of equal ones)."""
        return np.argmax(self.z, axis=1) if len(self.z) else self.labels

    @cached_property
    def log_loss(self) -> Floats:
        """The log loss of each row, ``[n]``."""
        return np.asarray(-self.log_p[np.arange(len(self.labels)), self.labels])

    @cached_property
    def squared_error(self) -> Floats:
        """The squared error of each row, summed over classes, ``[n]``."""
        errors = np.exp(self.log_p)
        errors[np.arange(len(self.labels)), self.labels] -= 1.0
        return np.asarray(np.square(errors).sum(axis=1))

    @cached_property
    def ranks(self) -> Floats:
        """AUROC and AUPRC of each class against all others in each segment, ``[2, S, C]``; NaN if a segment
        has no rows of the class, or no other rows.
        """
        scores = self.log_p.astype(self.z.dtype)  # ranked at the precision of the logits: float32 takes the fast path
        each = np.full((2, self.segments.count, self.z.shape[1]), np.nan)
        for c in range(self.z.shape[1]):
            positive = self.labels == c
            each[:, :, c] = _ranking(np.ascontiguousarray(scores[:, c]), positive, self.segments)
            each[1, self.segments.counts(positive) == self.n, c] = np.nan  # no rows to rank the class against
        return each

    @cached_property
    def recalls(self) -> Floats:
        """The share of each class's rows that are classified correctly, in each segment (hospital), ``[S, C]``."""
        each = np.full((self.segments.count, self.z.shape[1]), np.nan)
        for c in range(self.z.shape[1]):
            positive = self.labels == c
            each[:, c] = self.segments.counts(positive & (self.predicted == c)) / self.segments.counts(positive)
        return each

    def mean(self, values: Floats) -> Floats:
        """Return the mean over classes of the ``values [S, C]`` that are not NaN, ``[S]``."""
        return _mean_of_defined(values)


@dataclass(eq=False)
class ErrorRows:
    """Predictions of a real-valued label for ``n`` rows in ``S`` segments (hospitals)."""

    z: Floats
    """The predicted value of each row, ``[n]``."""
    labels: Floats
    """The true value of each row, ``[n]``."""
    segments: Segments

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """The number of rows in each segment (hospital), ``[S]``."""
        return self.segments.lengths

    @cached_property
    def errors(self) -> Floats:
        """The prediction minus the label of each row, ``[n]``."""
        return self.z - self.labels

    @cached_property
    def squared(self) -> Floats:
        """The sum of squared errors in each segment (hospital), ``[S]``."""
        return self.segments.sums(self.errors * self.errors)

    @cached_property
    def spread(self) -> Floats:
        """For each segment (hospital), the sum of squared distances of its labels from their mean, ``[S]``."""
        means = self.segments.sums(self.labels) / self.n
        return self.segments.sums(np.square(self.labels - means[self.segments.ids()]))

    @cached_property
    def varied(self) -> NDArray[np.bool_]:
        """Whether each segment (hospital) has labels that differ, ``[S]``. Unlike ``spread``, this is without rounding
        errors.
        """
        first = self.labels[self.segments.offsets[self.segments.ids()]]
        return self.segments.counts(self.labels != first) > 0


def _ranking(scores: Rows, positive: NDArray[np.bool_], segments: Segments) -> tuple[Floats, Floats]:
    """Return the AUROC and the average precision of each of ``S`` segments (hospitals), ``[S]`` each. AUROC uses
    midranks; average precision has one threshold for each distinct score.
    """
    ids = segments.ids()
    ranked, first = _ranked(scores, positive, ids)
    cumulative_events = cumulative(ranked)
    edges = np.append(first, len(ranked))
    hits = np.diff(cumulative_events[edges])
    groups = np.flatnonzero(hits > 0)  # runs of equal scores without a positive row add nothing to either figure
    hits, first, last = hits[groups], edges[groups], edges[groups + 1]
    segment = ids[first]
    begin, end = segments.offsets[segment], segments.offsets[segment + 1]

    events = segments.counts(positive)
    below = (first - begin) - (cumulative_events[first] - cumulative_events[begin])
    doubled = hits * (2 * below + (last - first - hits))  # twice the ordered pairs: an integer, exact in float64 sums
    precision = (cumulative_events[end] - cumulative_events[first]) / (end - first)
    auroc = np.bincount(segment, doubled, segments.count) / (2.0 * events * (segments.lengths - events))
    auprc = np.bincount(segment, hits * precision, segments.count) / events
    return auroc, auprc


def _ranked(
    scores: Rows, positive: NDArray[np.bool_], ids: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Sort rows by segment, and by ascending score within segments.

    Returns ``positive [n]`` in this order, and the position of the first row of each of ``G`` groups of equal scores,
    ``[G]``.
    """
    order = np.lexsort((scores, ids))
    ranked, ordered = np.take(positive, order), scores[order]
    new = np.ones(len(scores), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]) | (ids[1:] != ids[:-1])
    return ranked, np.flatnonzero(new)


def _log_softmax(logits: Rows) -> Floats:
    """Return the logarithm of the softmax over each row's ``C`` classes, ``[n, C]``, in float64 and precise near
    probability 1.
    """
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
    """Return the mean over classes of the ``values [S, C]`` that are not NaN, ``[S]``.

    Classes are on the contiguous axis, so that numpy adds them in the same order for any ``S``.
    """
    defined = ~np.isnan(values)
    return np.asarray(np.where(defined, values, 0.0).sum(axis=1) / defined.sum(axis=1))
