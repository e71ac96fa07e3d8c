"""Hospitals that use an untrained model; they have no metrics.

A model of the server counts as untrained if it equals one of the strategy's initial models. A model that a hospital
stores counts as untrained if it equals the run's initial parameters. If hospitals store only a part of their models,
only this part is compared. The metrics of an untrained model describe the initial parameters and not the method, and
are excluded from all means.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.metrics.labels import TaskKind
from raysim.strategies.base import Floats, Mask

Parameters = NDArray[Any]


class Rows(NamedTuple):
    """The model outputs ``[n]`` or ``[n, C]`` and labels ``[n]`` of hospitals' rows. Hospital ``i`` has rows
    ``offsets[i]:offsets[i + 1]``.
    """

    outputs: NDArray[Any]
    y: NDArray[Any]
    offsets: NDArray[np.int64]

    def of(self, hospitals: Mask) -> Rows:
        """Return only the rows of the hospitals marked in ``hospitals [h]``; the other hospitals remain, without
        rows.
        """
        if hospitals.all():
            return self
        lengths = np.diff(self.offsets)
        mask = np.repeat(hospitals, lengths)
        offsets = np.concatenate([[0], np.cumsum(np.where(hospitals, lengths, 0))])
        return Rows(self.outputs[mask], self.y[mask], offsets)

    def blank(self, hospitals: Mask) -> NDArray[Any]:
        """Return the model outputs, with NaN at the hospitals marked in ``hospitals [h]``."""
        if not hospitals.any():
            return self.outputs
        outputs = self.outputs.copy()
        outputs[np.repeat(hospitals, np.diff(self.offsets))] = np.nan
        return outputs


def same(models: Parameters, starts: Parameters) -> Mask:
    """Return a mask ``[M]`` of the rows of ``models [M, P]`` that equal some row of ``starts [K, P]``."""
    equal: Mask = np.zeros(len(models), dtype=np.bool_)
    for start in starts.astype(models.dtype):
        equal |= (models == start).all(axis=1)
    return equal


def undefined(figures: Floats, hospitals: Mask, task: TaskKind) -> Floats:
    """Return ``figures [h, len(task.figures)]`` with NaN at the hospitals marked in ``hospitals [h]``, except for
    counts of rows.
    """
    if not hospitals.any():
        return figures
    return np.where(hospitals[:, None] & ~_counts(task), np.nan, figures)


def padded(figures: Floats, trained: Mask, task: TaskKind) -> Floats:
    """Return ``figures`` with one row for every hospital, ``[h, ..., columns]``.

    ``figures`` has one row for each hospital marked in ``trained [h]``. The other hospitals get NaN for metrics, and 0
    for counts of rows.
    """
    if trained.all():
        return figures
    whole = np.full((len(trained), *figures.shape[1:]), np.where(_counts(task), 0.0, np.nan))
    whole[trained] = figures
    return whole


def _counts(task: TaskKind) -> Mask:
    return np.isin(task.figures, ("n", *task.counts))


def trained_on_one_class(federation: Federation) -> Mask:
    """Return a mask ``[N]`` of the hospitals that have training rows, all of the same class. It marks no hospital if
    the label is a real number.
    """
    bounds = federation.bounds
    one: Mask = np.zeros(len(bounds), dtype=np.bool_)
    if not federation.classes:
        return one
    changes = np.concatenate([[0], np.cumsum(np.diff(federation.y) != 0)])
    first, last = bounds[:, 0], bounds[:, 1] - 1
    trains = last >= first
    one[trains] = changes[last[trains]] == changes[first[trains]]
    return one
