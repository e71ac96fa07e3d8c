"""Sums over a hospital's rows as figures use them: counts of binned scores, and sums of errors.

They may carry noise: counts below 0 are kept, in which noise without a bias stays without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.metrics.binned import BINS, CENTRES, WIDEST

Floats = NDArray[np.float64]

SOFTPLUS: Floats = np.logaddexp(0.0, -CENTRES)
"""The log loss of a row of the class whose margin is in the middle of each bin."""


@dataclass(eq=False)
class BinaryCounts:
    """Counts of scores of two classes in fixed bins, and what figures have in common."""

    negatives: Floats
    """Rows without the event, ``[S, BINS]``."""
    positives: Floats
    """Rows with the event, ``[S, BINS]``."""
    largest_loss: ClassVar[float] = float(np.logaddexp(0.0, WIDEST))
    """The largest log loss of a row."""
    largest_error: ClassVar[float] = 1.0
    """The largest squared error of a row."""

    @cached_property
    def others(self) -> Floats:
        """Rows without the event, ``[S]``."""
        total: Floats = self.negatives.sum(axis=1)
        return total

    @cached_property
    def events(self) -> Floats:
        """Rows with the event, ``[S]``."""
        total: Floats = self.positives.sum(axis=1)
        return total

    @cached_property
    def n(self) -> Floats:
        """Rows, ``[S]``."""
        return self.others + self.events

    @cached_property
    def below(self) -> Floats:
        """Rows without the event below each bin, and half of those in it, ``[S, BINS]``."""
        return np.cumsum(self.negatives, axis=1) - 0.5 * self.negatives

    @cached_property
    def precision(self) -> Floats:
        """The precision down to each bin, times the events in the bin, added up, ``[S]``."""
        return precision(self.negatives, self.positives)

    @cached_property
    def loss(self) -> Floats:
        """The sum of log losses, ``[S]``."""
        return self.positives @ np.logaddexp(0.0, -CENTRES) + self.negatives @ np.logaddexp(0.0, CENTRES)

    @cached_property
    def squared_error(self) -> Floats:
        """The sum of squared errors, ``[S]``."""
        p = 1.0 / (1.0 + np.exp(-CENTRES))
        return self.positives @ (1.0 - p) ** 2 + self.negatives @ p**2

    def called(self, counts: Floats) -> Floats:
        """How many rows of ``counts [S, BINS]`` have a risk above one half, ``[S]``."""
        total: Floats = counts[:, CENTRES > 0].sum(axis=1)
        return total

    def not_called(self, counts: Floats) -> Floats:
        """How many have not, ``[S]``."""
        total: Floats = counts[:, CENTRES <= 0].sum(axis=1)
        return total


@dataclass(eq=False)
class ClassCounts:
    """Counts of scores and calls of ``C`` classes, and what figures have in common."""

    others: Floats
    """Rows of other classes in each class's bins, ``[S, C, BINS]``."""
    positives: Floats
    """Rows of the class, ``[S, C, BINS]``."""
    calls: Floats
    """How many rows of each class are called wrong and right, ``[S, C, 2]``."""
    largest_loss: ClassVar[float] = float(SOFTPLUS[0])
    """The largest log loss of a row."""
    largest_error: ClassVar[float] = 2.0
    """The largest squared error of a row, summed over classes."""

    @cached_property
    def n(self) -> Floats:
        """Rows, ``[S]``. Bins hold as many rows as are called, but with the noise of all bins."""
        total: Floats = self.calls.sum(axis=(1, 2))
        return total

    @cached_property
    def of_class(self) -> Floats:
        """Rows of each class, ``[S, C]``."""
        total: Floats = self.calls.sum(axis=2)
        return total

    @cached_property
    def right(self) -> Floats:
        """Rows of each class that are called so, ``[S, C]``."""
        return self.calls[:, :, 1]

    @cached_property
    def rest(self) -> Floats:
        """Rows of other classes, ``[S, C]``."""
        return self.n[:, None] - self.of_class

    @cached_property
    def pairs(self) -> Floats:
        """Pairs of a row of the class and another, ``[S, C]``."""
        return self.of_class * self.rest

    @cached_property
    def ranked(self) -> NDArray[np.bool_]:
        """Which classes have about half a row and half another, ``[S, C]``."""
        return np.minimum(self.of_class, self.rest) >= 0.5

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Which classes have about half a row, ``[S, C]``."""
        return self.of_class >= 0.5

    @cached_property
    def beyond_half(self) -> Floats:
        """Other rows below each bin, and half of those in it, less half of all, ``[S, C, BINS]``."""
        return np.cumsum(self.others, axis=2) - 0.5 * self.others - 0.5 * self.rest[:, :, None]

    @cached_property
    def precision(self) -> Floats:
        """The precision down to each bin, times the class's rows in the bin, added up, ``[S, C]``."""
        shape = (self.of_class.size, BINS)
        return precision(self.others.reshape(shape), self.positives.reshape(shape)).reshape(self.of_class.shape)

    @cached_property
    def loss(self) -> Floats:
        """The sum of log losses, ``[S]``."""
        total: Floats = (self.positives @ SOFTPLUS).sum(axis=1)
        return total

    @cached_property
    def squared_error(self) -> Floats:
        """The sum of squared errors, ``[S]``."""
        p = 1.0 / (1.0 + np.exp(-CENTRES))
        total: Floats = (self.positives @ (1.0 - p) ** 2 + self.others @ p**2).sum(axis=1)
        return total

    def mean(self, values: Floats, counted: NDArray[np.bool_]) -> Floats:
        """The mean of ``values [S, C]``, brought within 0 and 1, over the classes that are ``counted``; else NaN."""
        within = np.where(counted, np.clip(values, 0.0, 1.0), 0.0)
        mean: Floats = within.sum(axis=1) / counted.sum(axis=1)
        return mean


@dataclass(eq=False)
class ErrorSums:
    """What the rows of each hospital add up to, ``[S]`` each, as :class:`Errors` defines them."""

    width: float
    """The width of the label's range."""
    count: Floats
    absolute: Floats
    signed: Floats
    squared: Floats
    place: Floats
    places: Floats

    @property
    def spread(self) -> Floats:
        """The sum of squared distances of places from their mean, ``[S]``."""
        return self.places - self.place * self.place / self.count


def precision(negatives: Floats, positives: Floats) -> Floats:
    """The precision down to each bin, times the events in the bin, added up, ``[S]``."""
    hits = np.cumsum(positives[:, ::-1], axis=1)
    called = hits + np.cumsum(negatives[:, ::-1], axis=1)
    share = np.clip(np.divide(hits, called, out=np.zeros_like(hits), where=called > 0), 0.0, 1.0)
    total: Floats = (positives[:, ::-1] * share).sum(axis=1)
    return total
