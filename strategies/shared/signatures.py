"""Hospitals' signatures: summaries of their data by which the server clusters hospitals.

CHiP-FL (Zhou), section 4: a signature has the number of training rows, the label's prevalence, and the missing rate,
mean and standard deviation of each feature. Each hospital sends its signature once: ``1 + (C - 1) + 3 D`` numbers for C
classes and D features. For a numeric label, the mean and the standard deviation of the label replace the prevalence:
``1 + 2 + 3 D`` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Ids,
    Newcomers,
    Rows,
    Send,
    Statistic,
    row_sums,
    statistics_of,
)

CLIP = 5.0
"""For noisy signatures, feature values (after preprocessing) are clipped to the range from ``-CLIP`` to ``CLIP``."""

Block = Literal["size", "prevalence", "missingness", "mean", "std"]
BLOCKS: tuple[Block, ...] = ("size", "prevalence", "missingness", "mean", "std")


@dataclass(frozen=True)
class Signature(Statistic):
    """The signature of a hospital: a summary of its data.

    It has ``log n`` for n training rows, and the share of each class but the first. For each of the first ``columns``
    features, it has the missing rate, the mean and the population standard deviation. For a numeric label, the label's
    mean and population standard deviation replace the shares. Means and deviations are over observed values. Without
    noise, they are NaN for a feature that the hospital never observed, and all numbers are NaN for a hospital without
    rows.

    With the noise of differential privacy, the program sends sums over rows. These are the number of rows, the number
    of rows in each class but the first, and up to three sums per feature: the number of values, their sum, and the sum
    of their squares. The program sends only the sums that the ``blocks`` need.
    """

    classes: int
    columns: int
    blocks: tuple[Block, ...] = BLOCKS
    noisy: bool = False
    name = "signature"

    @property
    def sent(self) -> Send:
        if not self.noisy or not self.classes:  # sums of a real-valued label have no bound, so noise on them is refused
            shape = (1 + label_scalars(self.classes) + 3 * self.columns,)
            return Send(shape, self.name, "each", undefined=True)
        scalars = self.powers * self.columns
        return row_sums((self.classes + scalars,), self.name, 2 + scalars)

    @property
    def powers(self) -> int:
        """The number of sums that a hospital sends per feature: 0, 1 (the number of values), 2 (also their sum) or 3
        (also the sum of their squares)."""
        needs: dict[Block, int] = {"missingness": 1, "mean": 2, "std": 3}
        return max((needs.get(block, 0) for block in self.blocks), default=0)

    def value(self, at: Context) -> Floats:
        if self.noisy:
            return self._rows(at.rows)
        return at.cache(self.name, lambda: exact_signature(at.rows, self.classes))

    def _rows(self, rows: Rows) -> Floats:
        label = np.eye(self.classes)[:, 1:]
        values = np.where(rows.observed, np.clip(rows.X[:, : self.columns].astype(np.float64), -CLIP, CLIP) / CLIP, 0.0)
        parts = [np.ones((len(rows.y), 1)), label[rows.y]]
        return np.concatenate([*parts, *[rows.observed, values, values * values][: self.powers]], axis=1)

    def from_sums(self, sums: Floats) -> Floats:
        """Estimate the signature from the noisy ``sums``; numbers are NaN if the sums for them were not sent."""
        columns, label = self.columns, label_scalars(self.classes)
        n = max(float(sums[0]), 1.0)
        parts = [np.array([math.log(n)]), np.clip(sums[1 : 1 + label] / n, 0.0, 1.0)]
        if not self.powers:
            return np.concatenate([*parts, np.full(3 * columns, np.nan)])
        moments = sums[1 + label :].reshape(self.powers, columns)
        recorded = np.clip(moments[0], 1.0, n)
        mean, square = (
            np.clip(moments[k] / recorded, low, 1.0) if self.powers > k else np.full(columns, np.nan)
            for k, low in ((1, -1.0), (2, 0.0))
        )
        spread = np.sqrt(np.maximum(square - mean * mean, 0.0))
        return np.concatenate([*parts, 1.0 - recorded / n, CLIP * mean, CLIP * spread])


def exact_signature(rows: Rows, classes: int) -> Floats:
    """Return the :class:`Signature` of a hospital's rows without noise; numbers about the label are NaN if no row has a
    label."""
    n, columns = rows.observed.shape
    if n == 0:
        return np.full(1 + label_scalars(classes) + 3 * columns, np.nan)
    label = np.full(label_scalars(classes), np.nan)
    if len(rows.y):
        moments = np.array([rows.y.mean(), rows.y.std()])
        label = np.bincount(rows.y, minlength=classes)[1:] / len(rows.y) if classes else moments
    recorded = rows.observed.sum(axis=0)
    values = np.where(rows.observed, rows.X[:, :columns], 0.0).astype(np.float64)
    if not np.isfinite(values).all():  # otherwise it would look like a value that was never observed
        raise ValueError("its rows contain values that are not finite; correct these values in the data")
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = values.sum(axis=0) / recorded
        std = np.sqrt((np.where(rows.observed, values - mean, 0.0) ** 2).sum(axis=0) / recorded)
    return np.concatenate([[np.log(n)], label, 1.0 - recorded / n, mean, std])


def signatures(view: FederationView, blocks: Sequence[Block] = BLOCKS) -> Floats:
    """Return the :class:`Signature` of each of the N hospitals, one per row."""
    program = Signature(view.classes, view.columns, tuple(blocks), view.noisy(Signature.name))
    sent = statistics_of(view, program)
    return np.stack([program.from_sums(sums) for sums in sent]) if program.noisy else sent


def label_scalars(classes: int) -> int:
    """Return how many numbers of a signature describe the label; ``classes`` is 0 for a numeric label."""
    return classes - 1 if classes else 2


def signature_matrix(
    rows: Floats, classes: int, blocks: Sequence[Block] = BLOCKS, block_scale: bool = False, among: Floats | None = None
) -> NDArray[np.float64]:
    """Return the ``blocks`` of hospitals' signatures ``rows [N, S]`` on a common scale, ``[N, S']``.

    NaN is replaced by the column's average, and each column is standardised. ``block_scale`` divides each block by the
    square root of its number of columns, so that many features do not outweigh prevalence and size. ``among [M, S]``
    has the signatures from which averages and standard deviations are computed; None means ``rows``.
    """
    among = rows if among is None else among
    label = label_scalars(classes)
    columns = (rows.shape[1] - 1 - label) // 3
    lengths = {"size": 1, "prevalence": label, "missingness": columns, "mean": columns, "std": columns}
    parts, at = [], 0
    for block in BLOCKS:
        columns_of = slice(at, at + lengths[block])
        others = among[:, columns_of]
        part = standardise(fill_with_column_means(rows[:, columns_of], others), fill_with_column_means(others))
        at += lengths[block]
        if block in blocks:
            parts.append(part / np.sqrt(lengths[block]) if block_scale else part)
    return np.concatenate(parts, axis=1)


def fill_with_column_means(rows: Floats, among: Floats | None = None) -> Floats:
    """Replace each NaN in ``rows`` by the mean of its column in ``among`` (None: ``rows``), or by 0 if that whole
    column is NaN."""
    among = rows if among is None else among
    observed = ~np.isnan(among)
    sums = np.where(observed, among, 0.0).sum(axis=0)
    return np.where(np.isnan(rows), sums / np.maximum(observed.sum(axis=0), 1), rows)


def standardise(rows: Floats, among: Floats | None = None) -> Floats:
    """Standardise each column by its mean and population standard deviation over ``among`` (None: ``rows``).

    A column that is constant in ``among`` becomes 0.
    """
    among = rows if among is None else among
    spread = among.std(axis=0)
    # A column of equal numbers can have a deviation of a few ulp, which must not be scaled to 1.
    constant = spread <= 1e-12 * np.maximum(1.0, np.abs(among).max(axis=0))
    return np.where(constant, 0.0, (rows - among.mean(axis=0)) / np.where(constant, 1.0, spread))


@dataclass(frozen=True, eq=False)
class NearestSignature(Newcomers):
    """The rule for a hospital that was not clustered: it joins the cluster whose mean signature is nearest to its own.

    Features are described by all rows of the hospital, and the label by its labelled rows.
    """

    participants: Floats
    """The signatures of the h hospitals that were clustered, S numbers each: ``[h, S]``."""
    cluster: Ids
    """For each hospital that was clustered, the row of ``models`` that has its cluster's model, ``[h]``."""
    classes: int
    blocks: tuple[Block, ...]
    block_scale: bool

    def row(self, X: NDArray[Any], observed: NDArray[np.bool_], labels: NDArray[Any]) -> int | None:
        """Return the index in ``models`` of the nearest cluster's model.

        The result is None if ``X`` has no rows, or if ``blocks`` has only ``prevalence`` and ``labels`` is empty.
        """
        known = [block for block in self.blocks if len(labels) or block != "prevalence"]
        if not known or not len(X):
            return None
        own = exact_signature(Rows(X, labels, observed), self.classes)

        def comparable(rows: Floats) -> Floats:
            return signature_matrix(rows, self.classes, known, self.block_scale, self.participants)

        return nearest_cluster(comparable(own[None])[0], comparable(self.participants), self.cluster)


def nearest_cluster(own: Floats, rows: Floats, cluster: Ids) -> int:
    """Return the label of the cluster whose mean signature is nearest to the signature ``own [S']``.

    ``rows [h, S']`` has the signatures of the clustered hospitals, and ``cluster [h]`` their clusters' labels.
    """
    clusters = np.unique(cluster)
    centres = np.stack([rows[cluster == k].mean(axis=0) for k in clusters])
    return int(clusters[np.linalg.norm(centres - own, axis=1).argmin()])
