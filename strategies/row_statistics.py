"""Client programs that send statistics of hospitals' training rows, and the rules that divide rows into groups.

The server receives each hospital's statistics individually. If ``view.noisy`` is true for a statistic, its program
sends bounded sums over rows in place of the exact statistic, and the hospital adds noise.

Shapes: ``N`` hospitals in the federation, ``H`` called hospitals, ``n`` rows of one hospital, ``M`` models, ``G``
groups of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.problem import Floats, Ids
from raysim.strategies.programs import Bound, Call, Context, Program, Reply, Send
from raysim.strategies.view import FederationView


class Division(Protocol):
    """A rule that divides the rows of every hospital into groups (clusters of patients) by their features.

    The rule is sent to hospitals, so its fields should be few plain values and arrays. The group of a row depends only
    on that row and its hospital. The rule may have an attribute ``scalars``: how many scalars each hospital receives
    with the rule, as one number or as an array ``[N]``.
    """

    @property
    def count(self) -> int:
        """The number of groups."""

    def assign(self, X: NDArray[Any], observed: NDArray[np.bool_], hospital: int) -> Ids:
        """Return the group of each of ``n`` rows of a hospital, from 0 to ``count - 1``.

        ``X [n, F]`` and ``observed [n, D]`` are as in :class:`raysim.strategies.programs.Rows`.
        """


class Newcomers:
    """A rule that assigns one of the server's models to a hospital that did not train, based on the hospital's rows.

    To define one, derive a dataclass from this class; its fields must be plain values, arrays, or dataclasses of these.
    """

    def row(self, X: NDArray[Any], observed: NDArray[np.bool_], labels: NDArray[Any]) -> int | None:
        """Return the index of the server's model for a hospital; None if it has too few rows or labels.

        ``X [n, F]`` and ``observed [n, D]`` are as in :class:`raysim.strategies.programs.Rows`. ``labels [k]`` are the
        labels of k of the rows, without saying of which; ``k`` may be 0.
        """
        raise NotImplementedError


class Statistic(Program):
    """A program with which each hospital sends one array of numbers. The array has the program's name."""

    shape: tuple[int, ...]
    """The shape of the array that each hospital sends."""
    undefined: ClassVar[bool] = False
    """Whether the array may contain NaN, for values that are undefined at a hospital."""

    @property
    def sent(self) -> Send:
        """Return the declaration of the array that leaves a hospital."""
        return Send(self.shape, self.name, "each", undefined=self.undefined)

    @property
    def sends(self) -> dict[str, Send]:
        return {self.name: self.sent}

    def run(self, at: Context) -> Reply:
        return Reply({self.name: self.value(at)})

    def value(self, at: Context) -> Floats:
        """Return the array that the hospital sends. If :attr:`sent` declares it ``by="row"``, return each row's
        contribution instead.
        """
        raise NotImplementedError


class Counts(Statistic):
    """The number of a hospital's rows in each bin, for one or more divisions of rows into bins, ``[divisions,
    bins]``."""

    noisy: bool
    """Whether hospitals add noise to the counts."""

    @property
    def table(self) -> tuple[int, int]:
        """Return the number of divisions and the number of bins."""
        raise NotImplementedError

    def places(self, at: Context) -> Ids:
        """Return the bin of each row in each division, ``[n, divisions]``."""
        raise NotImplementedError

    @property
    def sent(self) -> Send:
        return row_sums(self.table, self.name, self.table[0]) if self.noisy else Send(self.table, self.name, "each")

    def value(self, at: Context) -> Floats:
        places, (divisions, bins) = self.places(at), self.table
        if self.noisy:
            return np.eye(bins)[places]
        counts = np.bincount((places + bins * np.arange(divisions)).ravel(), minlength=divisions * bins)
        return counts.reshape(divisions, bins).astype(np.float64)


def row_sums(shape: tuple[int, ...], kind: str, most: float) -> Send:
    """Return the declaration of a sum over a hospital's rows that is sent with noise.

    Each row contributes numbers between -1 and 1, of which at most ``most`` are not 0.
    """
    return Send(shape, kind, how="each", by="row", bound=Bound("row", math.sqrt(most), float(most)))


def statistics_of(
    view: FederationView,
    program: Statistic,
    ids: Ids | None = None,
    models: Floats | None = None,
    **received: NDArray[Any],
) -> Floats:
    """Return the statistic that ``program`` computes at each of H hospitals, ``[H, ...]``.

    The server sends the ``models [M, P]`` and the arrays ``received`` to the hospitals ``ids`` (None: all).
    """
    sent = received if models is None else {"models": models, **received}
    answers = view.call(Call(program, sent, view.everyone if ids is None else ids))
    return np.asarray(answers.each[program.name])


LARGEST_LOSS = 8.0
"""In statistics with noise, the loss of a row counts as at most this number."""


def losses_of(at: Context) -> Floats:
    """Return the loss of each training row under each model that the hospital received, ``[M, n]``."""
    return np.stack([at.model.losses(theta) for theta in at.received["models"]])


@dataclass(frozen=True)
class MeanLoss(Statistic):
    """A hospital's mean training loss under each model that it received; NaN if the hospital has no rows.

    If ``noisy``, the loss of each row is limited to :data:`LARGEST_LOSS` and divided by this limit. The hospital then
    sends the sum of these losses under each model and, last, the number of rows.
    """

    models: int
    noisy: bool = False
    name = "loss"

    @property
    def sent(self) -> Send:
        if self.noisy:
            return row_sums((self.models + 1,), self.name, self.models + 1)
        return Send((self.models,), self.name, "each", undefined=True)

    def value(self, at: Context) -> Floats:
        losses = losses_of(at)
        if self.noisy:
            shares = np.clip(np.nan_to_num(losses, nan=LARGEST_LOSS) / LARGEST_LOSS, 0.0, 1.0)
            return np.column_stack([shares.T, np.ones(losses.shape[1])])
        return losses.mean(axis=1) if losses.shape[1] else np.full(len(losses), np.nan)


def mean_losses(view: FederationView, models: Floats, ids: Ids) -> Floats:
    """Return the mean training loss of each of ``models [M, P]`` at each of the hospitals ``ids [H]``, ``[H, M]``."""
    noisy = view.noisy(MeanLoss.name)
    sent = statistics_of(view, MeanLoss(len(models), noisy), ids, models)
    return means_of(sent) if noisy else sent


def means_of(sums: Floats) -> Floats:
    """Return the mean loss of each of M models at each of H hospitals, ``[H, M]``, from noisy ``sums [H, M + 1]``.

    The last column of ``sums`` is the noisy number of rows. Means are limited to the range from 0 to
    :data:`LARGEST_LOSS`.
    """
    return np.asarray(LARGEST_LOSS * np.clip(sums[:, :-1] / np.maximum(sums[:, -1:], 1.0), 0.0, 1.0))


@dataclass(frozen=True)
class Size(Counts):
    """The number of a hospital's training rows, as an array ``[1, 1]``."""

    noisy: bool = False
    name = "size"
    table = (1, 1)

    def places(self, at: Context) -> Ids:
        return np.zeros((len(at.rows.y), 1), np.int64)


@dataclass(frozen=True, eq=False)
class GroupSizes(Counts):
    """The number of a hospital's training rows in each of the G groups of a division, ``[1, G]``."""

    division: Division
    noisy: bool = False
    name = "group_sizes"

    @property
    def table(self) -> tuple[int, int]:
        return 1, self.division.count

    @property
    def carries(self) -> int | Ids:
        scalars: int | Ids = getattr(self.division, "scalars", 0)
        return scalars

    def places(self, at: Context) -> Ids:
        return self.division.assign(at.rows.X, at.rows.observed, at.hospital)[:, None]


def group_sizes(view: FederationView, division: Division) -> Ids:
    """Return each hospital's number of training rows in each group of a division, ``[N, G]``."""
    sizes = statistics_of(view, GroupSizes(division, view.noisy(GroupSizes.name)))[:, 0]
    return np.maximum(sizes, 0.0).astype(np.int64)
