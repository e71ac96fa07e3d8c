"""Figures of two classes from counts of scores in fixed bins, which may be noisy: not whole, and below 0.

The bins are fixed beforehand, so that they tell nothing of rows: ``BINS`` of equal width over margins from ``-WIDEST``
to ``WIDEST``; margins beyond these are in the outermost bins. All figures follow from sums of counts, in which noise
without a bias stays without one: counts below 0 are therefore kept, and figures brought to their range at the end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.metrics.measures import FIGURES

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
    negatives, positives = each[:, :BINS], each[:, BINS:]
    others, events = negatives.sum(axis=1), positives.sum(axis=1)
    n = others + events
    above = CENTRES > 0
    p = 1.0 / (1.0 + np.exp(-CENTRES))
    below = np.cumsum(negatives, axis=1) - 0.5 * negatives
    with np.errstate(all="ignore"):
        columns = {
            "n": np.maximum(np.rint(n), 0.0),
            "events": np.clip(np.rint(events), 0.0, np.maximum(np.rint(n), 0.0)),
            "auroc": (positives * below).sum(axis=1) / (events * others),
            "auprc": precision(negatives, positives) / events,
            "log_loss": (positives @ np.logaddexp(0.0, -CENTRES) + negatives @ np.logaddexp(0.0, CENTRES)) / n,
            "brier": (positives @ (1.0 - p) ** 2 + negatives @ p**2) / n,
            "accuracy": (positives[:, above].sum(axis=1) + negatives[:, ~above].sum(axis=1)) / n,
            "recall": positives[:, above].sum(axis=1) / events,
        }
    ranked, some, positive = np.minimum(events, others) >= 0.5, n >= 0.5, events >= 0.5
    defined = {
        "auroc": ranked,
        "auprc": positive,
        "log_loss": some,
        "brier": some,
        "accuracy": some,
        "recall": positive,
    }
    most = {"log_loss": float(np.logaddexp(0.0, WIDEST))}
    for name, where in defined.items():
        columns[name] = np.where(where, np.clip(columns[name], 0.0, most.get(name, 1.0)), np.nan)
    return np.column_stack([columns[name] for name in FIGURES])


def precision(negatives: Floats, positives: Floats) -> Floats:
    """The precision down to each bin, times the events in the bin, added up, ``[S]``."""
    hits = np.cumsum(positives[:, ::-1], axis=1)
    called = hits + np.cumsum(negatives[:, ::-1], axis=1)
    share = np.clip(np.divide(hits, called, out=np.zeros_like(hits), where=called > 0), 0.0, 1.0)
    total: Floats = (positives[:, ::-1] * share).sum(axis=1)
    return total
