"""Boosted trees on all hospitals' rows, from sums of histograms: the same trees as on pooled rows, bit for bit.

T. Chen, C. Guestrin: *XGBoost: A Scalable Tree Boosting System*, KDD 2016 (gain and values); G. Ke et al.: *LightGBM*,
NeurIPS 2017 (histograms; the histogram of the larger child is the parent's minus the smaller child's); K. Cheng et al.:
*SecureBoost*, 2019, for histograms summed over parties. ``G`` is the sum of gradients over the rows of a node, and
``H`` the sum of second derivatives. ``GL`` and ``HL`` are these sums for the left child, ``GR`` and ``HR`` for the
right child. With the penalty ``l2``, a split gains ``GL^2/(HL + l2) + GR^2/(HR + l2) - G^2/(H + l2)``. A leaf has the
value ``-rate G / (H + l2)``, with the learning rate ``rate``. See :mod:`raysim.trees.splits` for further rules.

The first round also computes the edges between bins, and the number of rows of each class or the sum of a numeric
label. For the edges, hospitals are called three times (seven for exact edges) and send counts that are added up. Each
round grows one tree, or one per class if there are more than two classes. Trees grow level by level. For each node,
column and bin, three sums over all hospitals' rows are computed as whole numbers: the number of rows, the gradients,
and the second derivatives. No row, prediction or leaf of a single hospital is sent. All hospitals with training rows
take part; if the answer of one is lost, the round is repeated.

Traffic of a round, for each tree and hospital: a hospital sends at most ``2^(depth - 1)`` histograms of 24 W bytes. W
is the number of bins of all columns, including the bins for missing values. There is one histogram for the root, and
one for each pair of children that can be split further. For each level but the first, a hospital receives
``2 + ceil(L/8)`` bytes for each of the tree's ``2^depth - 1`` possible splits. L is the largest number of bins of a
column, including the bin for missing values. For the first level, it receives the previous tree: the same bytes for its
splits, and 8 bytes for each of its ``2^(depth + 1) - 1`` possible nodes. For the first tree, it receives the edges
instead. With early stopping, hospitals with validation rows receive each finished tree at once, and not again in the
next round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import POOLED, Answers, Call, Calls, FederationView, Ids, Needs, State, own_state
from raysim.strategies.trees.base import Trees, TreesState, columns_of, forest_of, rows_key, sent, task_of
from raysim.strategies.trees.programs import Histograms, LabelScales, LabelSums, ValueCounts, scaled
from raysim.trees.binning import Bins, find_bins
from raysim.trees.forest import Forest
from raysim.trees.growing import grow
from raysim.trees.losses import base
from raysim.trees.stored import Shape


class Lost(Exception):
    """Raised when a hospital did not answer a call, so that the round must be repeated."""


@dataclass(frozen=True)
class FederatedTrees(Trees):
    """Boosted trees from sums over hospitals. The settings of trees are in ``model:``."""

    title: ClassVar[str] = "Boosted trees from sums"
    needs: ClassVar[Needs] = Needs.more("sends histograms of gradients (random_trees sends only leaves)")

    def round(self, view: FederationView, state: State) -> Calls:
        own, ids = own_state(state, TreesState), self.select(view, state, view.round)
        try:
            if not own.edges:
                own = yield from prepared(view, own, ids)
            return (yield from self.grown(view, own, ids))
        except Lost:
            return own

    def news(self, view: FederationView, state: State, row: int) -> Sequence[tuple[NDArray[Any], Ids]]:
        own, found = own_state(state, TreesState), super().news(view, state, row)
        forest = Shape(task_of(view)).forest(own.models[row])
        if len(forest) == task_of(view).outputs:
            # Hospitals without training rows have no bins yet, nor the margins before the first tree.
            start = np.concatenate([*own.edges, forest.base, [forest.scale]])
            return [*found, (start, np.setdiff1d(np.arange(len(view.sizes)), self.select(view, own, 1)))]
        return found

    def grown(self, view: FederationView, own: TreesState, ids: Ids) -> Generator[Call, Answers, TreesState]:
        """Grow the trees of one boosting step with hospitals ``ids``, and return the state with them.

        A step grows one tree, or one per class if there are more than two classes.
        """
        task, forest = task_of(view), forest_of(view, own)
        tree, bins = len(forest) // task.outputs, Bins.between(own.edges, task.levels)
        columns, key = columns_of(view, tree), rows_key(view)
        before = hashlib.blake2b(task.loss.encode() + own.models[0].tobytes(), digest_size=16).digest()
        growing = grow(bins, task.settings, task.outputs, [] if columns is None else [columns] * task.outputs)
        try:
            level = next(growing)
            while True:
                program = Histograms(task, bins, forest.base, forest.scale, tree, level.which, level.nodes, before, key)
                if program.is_first:
                    # The edges of the columns' bins are sent once.
                    received = {"edges": np.concatenate(own.edges)} if own.last is None else own.last
                else:
                    received = _splits(sent(level.trees))
                answers = yield from asked(Call(program, received, ids))
                level = growing.send(answers["histograms"])
        except StopIteration as end:
            trees = end.value
        models = Shape(task).vector(forest.grown(trees, bins))[None]
        return replace(own, models=models, last=sent(trees))


def asked(call: Call) -> Generator[Call, Answers, Mapping[str, Any]]:
    """Send a call to hospitals and return the sums of their answers. Raises :class:`Lost` if a hospital did not
    answer."""
    answers = yield call
    if len(answers.ids) < len(call.ids):
        raise Lost
    return answers.sums


def prepared(view: FederationView, own: TreesState, ids: Ids) -> Generator[Call, Answers, TreesState]:
    """Compute the edges between bins and the prediction before the first tree, and return the state with them."""
    task = task_of(view)
    scale = 0
    if task.loss == "squared":
        sums = yield from asked(Call(LabelScales(), {}, ids))
        scale = int(np.flatnonzero(sums["scales"])[-1])
    program = LabelSums(task.classes, scale, task.loss == "poisson")
    sums = yield from asked(Call(program, {}, ids))
    rows = int(view.sizes.sum())
    start = Forest.start(task, base(task.loss, scaled(sums["labels"], task.classes), rows), scale)
    bins = yield from common_bins(view, ids)
    return replace(own, models=Shape(task).vector(start)[None], edges=bins.edges)


def common_bins(view: FederationView, ids: Ids) -> Generator[Call, Answers, Bins]:
    """Compute the bins of each column from the values of hospitals ``ids``."""
    finding = find_bins(task_of(view))
    try:
        prefixes = next(finding)
        while True:
            received = {"column": prefixes.column, "prefix": prefixes.prefix, "bits": prefixes.bits}
            sums = yield from asked(Call(ValueCounts(len(prefixes.column)), received, ids))
            prefixes = finding.send(sums["counts"].astype(np.int64))
    except StopIteration as end:
        bins: Bins = end.value
        return bins


def _splits(trees: Mapping[str, Any]) -> dict[str, Any]:
    return {name: trees[name] for name in ("column", "left")}


@dataclass(frozen=True)
class PooledTrees(FederatedTrees):
    """Boosted trees on the pooled rows of all hospitals; they equal those of :class:`FederatedTrees`."""

    title: ClassVar[str] = "Pooled training"
    needs: ClassVar[Needs] = Needs.more("sends every row")
    is_reference: ClassVar[bool] = True

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return np.array([int(POOLED)])
