"""Figures of two classes from counts of scores in fixed bins, which may be noisy: not whole, and below 0.

The bins are fixed beforehand, so that they say nothing of rows: ``BINS`` of equal width over margins from ``-WIDEST``
to ``WIDEST``; margins beyond these are in the outermost bins. All figures follow from sums of counts, in which noise
without a bias stays without one: counts below 0 are therefore kept, and figures brought to their range at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.metrics.declared import SCORES

BINS, WIDEST = 128, 8.0
"""How many bins there are, and the margin at which the outermost end."""

Floats = NDArray[np.float64]

CENTRES: Floats = (np.arange(BINS, dtype=np.float64) + 0.5) * (2.0 * WIDEST / BINS) - WIDEST
"""The margin in the middle of each bin, ``[BINS]``."""


def bins_of(margins: ArrayLike) -> NDArray[np.int64]:
    """The bin of each of ``margins [n]``, ``[n]``; NaN is in the middle."""
    z = np.nan_to_num(np.asarray(margins, dtype=np.float64), nan=0.0, posinf=WIDEST, neginf=-WIDEST)
    return np.clip(np.floor((z + WIDEST) * (BINS / (2.0 * WIDEST))), 0, BINS - 1).astype(np.int64)


def one_of_each_bin(margins: ArrayLike, y: ArrayLike) -> Floats:
    """A one for each row in the column of its bin, ``[n, 2 BINS]``: rows of class 0 first, then those of class 1."""
    labels = np.asarray(y, dtype=np.int64)
    ones = np.zeros((len(labels), 2 * BINS))
    ones[np.arange(len(labels)), BINS * labels + bins_of(margins)] = 1.0
    return ones


def figures_of_counts(counts: ArrayLike) -> Floats:
    """Figures ``[S, len(FIGURES)]`` from ``counts [S, 2 BINS]`` as :func:`one_of_each_bin` adds up to.

    ``n`` and ``events`` are whole numbers, at least 0. NaN where undefined: AUROC and AUPRC without about half a row
    of each class, recall without events, all but ``n`` and ``events`` without rows. Within a bin rows are equal, and
    losses are those of its middle.
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
            values = np.full(len(each), np.nan) if figure.of_counts is None else figure.of_counts(of)
            columns.append(np.where(enough[figure.undefined], np.clip(values, 0.0, figure.most(of)), np.nan))
    return np.column_stack(columns)


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


def precision(negatives: Floats, positives: Floats) -> Floats:
    """The precision down to each bin, times the events in the bin, added up, ``[S]``."""
    hits = np.cumsum(positives[:, ::-1], axis=1)
    called = hits + np.cumsum(negatives[:, ::-1], axis=1)
    share = np.clip(np.divide(hits, called, out=np.zeros_like(hits), where=called > 0), 0.0, 1.0)
    total: Floats = (positives[:, ::-1] * share).sum(axis=1)
    return total
