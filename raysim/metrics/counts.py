"""Sums over a hospital's rows from which metrics are computed: counts of binned scores, and sums of errors.

The sums may carry noise. Counts below 0 are not raised to 0, so that unbiased noise stays unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.metrics.binned import BINS, CENTRES, WIDEST

SOFTPLUS: Floats = np.logaddexp(0.0, -CENTRES)
"""For each bin, the log loss of a row whose true class has the margin in the middle of the bin, ``[BINS]``."""


@dataclass(eq=False)
class BinaryCounts:
    """Counts of rows in ``BINS`` fixed bins of the score at each of ``S`` hospitals, for a label of two classes."""

    negatives: Floats
    """Number of rows without the event, at each hospital and in each bin, ``[S, BINS]``."""
    positives: Floats
    """Number of rows with the event, at each hospital and in each bin, ``[S, BINS]``."""
    largest_loss: ClassVar[float] = float(np.logaddexp(0.0, WIDEST))
    """The largest log loss that a row can have, if its margin is limited to ``-WIDEST`` to ``WIDEST``."""
    largest_error: ClassVar[float] = 1.0
    """The largest squared error that a row can have."""

    @cached_property
    def others(self) -> Floats:
        """The number of rows without the event at each hospital, ``[S]``."""
        return np.asarray(self.negatives.sum(axis=1))

    @cached_property
    def events(self) -> Floats:
        """The number of rows with the event at each hospital, ``[S]``."""
        return np.asarray(self.positives.sum(axis=1))

    @cached_property
    def n(self) -> Floats:
        """The number of rows at each hospital, ``[S]``."""
        return self.others + self.events

    @cached_property
    def below(self) -> Floats:
        """For each hospital and bin: the number of rows without the event in lower bins, plus half the number in the
        same bin, ``[S, BINS]``.
        """
        return np.cumsum(self.negatives, axis=1) - 0.5 * self.negatives

    @cached_property
    def precision(self) -> Floats:
        """Each hospital's average precision times its number of events, ``[S]``."""
        return precision(self.negatives, self.positives)

    @cached_property
    def loss(self) -> Floats:
        """The sum of log losses over each hospital's rows, ``[S]``."""
        return self.positives @ np.logaddexp(0.0, -CENTRES) + self.negatives @ np.logaddexp(0.0, CENTRES)

    @cached_property
    def squared_error(self) -> Floats:
        """The sum of squared differences of predicted risk and outcome over each hospital's rows, ``[S]``."""
        p = 1.0 / (1.0 + np.exp(-CENTRES))
        return self.positives @ (1.0 - p) ** 2 + self.negatives @ p**2

    def predicted_positive(self, counts: Floats) -> Floats:
        """Return how many rows have a predicted risk of at least one half at each hospital, ``[S]``. ``counts [S,
        BINS]`` are the rows of one class in each bin.
        """
        return np.asarray(counts[:, CENTRES > 0].sum(axis=1))

    def predicted_negative(self, counts: Floats) -> Floats:
        """Return how many rows have a predicted risk below one half at each hospital, ``[S]``; ``counts`` as for
        :meth:`predicted_positive`.
        """
        return np.asarray(counts[:, CENTRES <= 0].sum(axis=1))


@dataclass(eq=False)
class ClassCounts:
    """Counts of rows in fixed bins of the score, and of correctly and wrongly classified rows, at each of ``S``
    hospitals and for a label of ``C`` classes.
    """

    others: Floats
    """Number of rows that are not of a class, in each bin of the score for this class, ``[S, C, BINS]``."""
    positives: Floats
    """Number of rows of a class, in each bin of the score for this class, ``[S, C, BINS]``."""
    calls: Floats
    """Number of rows of each class that are classified wrongly (index 0) and correctly (1), ``[S, C, 2]``.

    """
    largest_loss: ClassVar[float] = float(SOFTPLUS[0])
    """The largest log loss that a row can have."""
    largest_error: ClassVar[float] = 2.0
    """The largest squared error of a row, summed over classes."""

    @cached_property
    def n(self) -> Floats:
        """The number of rows at each hospital, ``[S]``. It is computed from ``calls``, because a sum over bins would
        have the noise of all bins.
        """
        return np.asarray(self.calls.sum(axis=(1, 2)))

    @cached_property
    def of_class(self) -> Floats:
        """The number of rows of each class at each hospital, ``[S, C]``."""
        return np.asarray(self.calls.sum(axis=2))

    @cached_property
    def right(self) -> Floats:
        """The number of rows of each class that are classified correctly at each hospital, ``[S, C]``."""
        return self.calls[:, :, 1]

    @cached_property
    def rest(self) -> Floats:
        """The number of rows of all other classes, for each hospital and class, ``[S, C]``."""
        return self.n[:, None] - self.of_class

    @cached_property
    def pairs(self) -> Floats:
        """The number of pairs of a row of the class and a row of another class, for each hospital and class, ``[S,
        C]``.
        """
        return self.of_class * self.rest

    @cached_property
    def ranked(self) -> NDArray[np.bool_]:
        """Whether the noisy counts of the class's rows and of all other rows are both at least one half, ``[S, C]``."""
        return np.minimum(self.of_class, self.rest) >= 0.5

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Whether the noisy count of the class's rows is at least one half, ``[S, C]``."""
        return self.of_class >= 0.5

    @cached_property
    def midranks(self) -> Floats:
        """For each hospital, class and bin: the number of other classes' rows in lower bins, plus half the number in
        the same bin, minus half the number in all bins, ``[S, C, BINS]``.
        """
        return np.cumsum(self.others, axis=2) - 0.5 * self.others - 0.5 * self.rest[:, :, None]

    @cached_property
    def precision(self) -> Floats:
        """The average precision of each class times its number of rows, for each hospital, ``[S, C]``."""
        shape = (self.of_class.size, BINS)
        return precision(self.others.reshape(shape), self.positives.reshape(shape)).reshape(self.of_class.shape)

    @cached_property
    def loss(self) -> Floats:
        """The sum of log losses over each hospital's rows, ``[S]``."""
        return np.asarray((self.positives @ SOFTPLUS).sum(axis=1))

    @cached_property
    def squared_error(self) -> Floats:
        """The sum of squared errors over each hospital's rows and over all classes, ``[S]``."""
        p = 1.0 / (1.0 + np.exp(-CENTRES))
        return np.asarray((self.positives @ (1.0 - p) ** 2 + self.others @ p**2).sum(axis=1))

    def mean(self, values: Floats, counted: NDArray[np.bool_]) -> Floats:
        """Clip ``values [S, C]`` to between 0 and 1, and return each hospital's mean over the classes for which
        ``counted [S, C]`` is true; NaN if there is none.
        """
        within = np.where(counted, np.clip(values, 0.0, 1.0), 0.0)
        return np.asarray(within.sum(axis=1) / counted.sum(axis=1))


@dataclass(eq=False)
class ErrorSums:
    """Sums of errors and labels over the rows of each of ``S`` hospitals; see :class:`raysim.metrics.summed.Errors`."""

    width: float
    """The width of the label's declared range."""
    count: Floats
    absolute: Floats
    signed: Floats
    squared: Floats
    place: Floats
    places: Floats

    @property
    def spread(self) -> Floats:
        """The sum of squared distances of each hospital's labels from their mean, ``[S]``, with labels scaled so that
        their declared range is -1 to 1.
        """
        return self.places - self.place * self.place / self.count


def precision(negatives: Floats, positives: Floats) -> Floats:
    """Return the average precision times the number of events of each of ``S`` hospitals, ``[S]``.

    The precision of a bin is computed from the rows of this bin and of higher bins.
    """
    hits = np.cumsum(positives[:, ::-1], axis=1)
    predicted = hits + np.cumsum(negatives[:, ::-1], axis=1)
    share = np.clip(np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0), 0.0, 1.0)
    return np.asarray((positives[:, ::-1] * share).sum(axis=1))
