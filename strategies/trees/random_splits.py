"""Boosted trees with random splits, so that only the leaves need noise under a privacy guarantee.

S. Maddock, G. Cormode, T. Wang, C. Maple, S. Jha: *Federated Boosted Decision Trees with Differential Privacy*, CCS
2022 (random splits, leaves by noisy sums). The columns and thresholds of a tree follow from the seed and from the
limits in ``data.ranges``, and do not depend on any row. Each node is split by a random column; all rows without a value
in this column go to one side, chosen at random. A numeric column is split at one of ``model.bins - 1`` thresholds at
equal distances in its range. The categories of a categorical column are split into two random halves. For each leaf of
a tree, the server needs the sums of gradients and of second derivatives over all hospitals' rows in the leaf. The first
tree has no split: the value of its one leaf, with learning rate 1, is the initial margin (the sum of the trees' values)
of all rows.

**Norm of a row's contribution.** With the label ``y`` (0 or 1) and the predicted probability ``p``, a row has the
residual ``a = |y - p|``. It adds two numbers to the sums of its leaf: the gradient, which is ``a`` in absolute value,
and ``c`` times the second derivative ``a (1 - a)``. The norm of the pair is at most 1 for ``c <= phi^2.5 = 3.33``, with
the golden ratio ``phi``. The second derivative therefore adds nothing to the privacy cost. With more than two classes,
a row adds such a pair for each class; the norm of all its pairs together is at most ``sqrt 2`` for ``c <= sqrt 3``. If
``privacy.clip`` is smaller, contributions are clipped to it. All trees of a round (one, or one per class if there are
more than two) count as one release of noisy sums in the privacy guarantee.

**Leaves.** A leaf with sums ``G`` and ``H`` has the value ``-rate G / (max(H, 0) + l2 + 3 s)``, where ``s`` is the
standard deviation of the noise on ``G`` (0 without a privacy guarantee). The factor 3 had the best AUROC among 0, 1 and
3, on one synthetic population. The value is 0 if ``H`` is below ``min_rows / 4``, the largest ``H`` that ``min_rows``
rows can have: such a leaf is mostly noise or has few patients.

Traffic of a round: each hospital receives the model and the splits of the new trees. For each new tree, it sends
``2^(depth + 1)`` numbers of 8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    Answers,
    Bound,
    Call,
    Calls,
    Context,
    FederationView,
    Floats,
    Needs,
    Program,
    Reply,
    Send,
    State,
    Training,
    own_state,
)
from raysim.strategies.trees.base import Trees, TreesState, columns_of, forest_of, sent, task_of, unpacked
from raysim.trees.binning import Bins
from raysim.trees.growing import Grown, reached
from raysim.trees.losses import GRID, LARGEST, MARGIN, gradients
from raysim.trees.settings import TreeTask
from raysim.trees.stored import Shape

BITS = 24
"""Sums over the rows of a leaf are rounded to multiples of ``2^-BITS``."""

SHRINKING = 3.0
"""The denominator of a leaf's value is raised by this multiple of the standard deviation of the gradients' noise."""

LEAST_ROWS = 10
"""The smallest ``model.min_rows`` that is allowed under a privacy guarantee."""

Ranges = tuple[tuple[float, float] | None, ...]
"""The declared lowest and highest value of each column; None for a categorical column."""


def bound_of(task: TreeTask) -> tuple[float, float]:
    """Return the largest norm of a row's contribution to the sums of leaves, and the factor of second derivatives in
    these sums."""
    if task.outputs > 1:
        return math.sqrt(2.0), math.sqrt(3.0)
    return 1.0, ((1.0 + math.sqrt(5.0)) / 2.0) ** 2.5


@dataclass(frozen=True, eq=False)
class LeafSums(Program):
    """The sums of gradients and second derivatives over a hospital's rows in each leaf of the new trees.

    Gradients are computed at the predictions of the received model; second derivatives are multiplied by the factor of
    :func:`bound_of`.
    """

    task: TreeTask
    bins: Bins
    depth: int
    length: float
    """The norm to which rows' contributions are clipped."""
    name: str = "leaves"

    @property
    def sends(self) -> Mapping[str, Send]:
        shape, bound = (self.task.outputs, 2**self.depth), Bound("row", self.length)
        return {
            name: Send(shape, "leaf sums", by="row", bits=BITS, bound=bound, joint="leaf")
            for name in ("gradient", "hessian")
        }

    def run(self, at: Context) -> Reply:
        X, y = at.rows.X, at.rows.y
        forest = Shape(self.task).forest(at.received["model"])
        steps = np.rint(forest.margins(X) * MARGIN).astype(np.int64)
        codes = at.cache(f"codes {self.bins.digest}", partial(self.bins.codes, X))
        gradient, hessian = (part / GRID for part in gradients(self.task.loss, steps, y))
        splits, first = unpacked(at.received), 2**self.depth - 1
        leaves = [reached(codes, column, left, self.depth) - first for column, left in splits]
        inside = np.stack([leaf[:, None] == np.arange(2**self.depth) for leaf in leaves], axis=1)
        factor = bound_of(self.task)[1]
        return Reply({"gradient": gradient[:, :, None] * inside, "hessian": factor * hessian[:, :, None] * inside})


@dataclass(frozen=True)
class RandomTrees(Trees):
    """Boosted trees with random splits. The settings of trees are in ``model:``."""

    title: ClassVar[str] = "Boosted trees with random splits"
    needs: ClassVar[Needs] = Needs("programs")

    def check_training(self, training: Training) -> None:
        super().check_training(training)
        task = training.trees
        if task is None:
            return
        if not task.classes:
            raise ValueError(
                "data.label: is a number, but random_trees needs classes, whose gradients are bounded; use "
                "federated_trees"
            )
        if any(not limits and not levels for limits, levels in zip(training.ranges, task.levels, strict=True)):
            raise ValueError(
                "data.ranges: random_trees samples splits between the declared limits of columns, but a "
                "column has none; "
                "write data.preprocessing: declared and data.ranges, such as {age: [0, 100]}"
            )
        if task.settings.row_share < 1:
            raise ValueError("model.row_share: random_trees uses all rows; set 1")
        if training.noisy and task.settings.min_rows < LEAST_ROWS:
            raise ValueError(
                f"model.min_rows: {task.settings.min_rows} lets a leaf of random_trees hold too few patients for "
                f"privacy.unit; give at least {LEAST_ROWS}"
            )

    def round(self, view: FederationView, state: State) -> Calls:
        own, task, forest = own_state(state, TreesState), task_of(view), forest_of(view, state)
        bins, tree = public_bins(task, view.ranges), len(forest) // task.outputs
        depth = task.settings.depth if tree else 0
        trees = [random_tree(view, bins, tree, k, depth) for k in range(task.outputs)]
        length, factor = bound_of(task)
        noise = 0.0
        if view.noise is not None:
            length = min(length, view.noise.clip)
            noise = length * view.noise.multiplier
        splits = sent(trees)
        received = {"model": own.models[0], "column": splits["column"], "left": splits["left"]}
        answers: Answers = yield Call(LeafSums(task, bins, depth, length), received, view.trainable)
        if not len(answers.ids):
            return own
        for each, G, H in zip(trees, answers.sums["gradient"], answers.sums["hessian"] / factor, strict=True):
            each.value[-len(G) :] = values(task, G, H, noise, rate=task.settings.rate if tree else 1.0)
        return replace(own, models=Shape(task).vector(forest.grown(trees, bins))[None], last=sent(trees))


def values(task: TreeTask, G: Floats, H: Floats, noise: float, rate: float) -> Floats:
    """Return the values of leaves in units of ``2^-40``, from sums of gradients ``G`` and second derivatives ``H``.

    ``noise`` is the standard deviation of the noise on ``G``, and ``rate`` the learning rate.
    """
    settings = task.settings
    raised = np.maximum(H, 0.0) + settings.l2 + SHRINKING * noise
    found = np.divide(-rate * G, raised, out=np.zeros_like(G), where=(raised > 0) & (settings.min_rows / 4 <= H))
    return np.clip(np.rint(found * MARGIN), -LARGEST, LARGEST)


def public_bins(task: TreeTask, ranges: Ranges) -> Bins:
    """Return bins of equal width between the declared limits of each numeric column."""
    numbers = {f: limits for f, limits in enumerate(ranges) if limits is not None and not task.levels[f]}
    return Bins.of(task, {f: np.linspace(*limits, task.settings.bins + 1)[1:-1] for f, limits in numbers.items()})


def random_tree(view: FederationView, bins: Bins, tree: int, k: int, depth: int) -> Grown:
    """Return tree ``k`` of boosting step ``tree`` with random splits at ``depth`` levels, without leaf values."""
    rng, made = view.rng("random splits", tree, k), Grown.empty(depth, bins)
    able = bins.sizes > 1
    if (chosen := columns_of(view, tree)) is not None and (able & chosen).any():
        able &= chosen
    columns = np.flatnonzero(able)
    for node in range(len(made.column)):
        column = int(rng.choice(columns))
        size = int(bins.sizes[column])
        if bins.levels[column]:
            count = size // 2
            goes = np.zeros(size, np.bool_)
            goes[rng.permutation(size)[:count]] = True
        else:
            count = 1 + int(rng.integers(size - 1))
            goes = np.arange(size) < count
        made.column[node], made.bin[node] = column, count - 1
        made.left[node, :size], made.left[node, size] = goes, rng.random() < 0.5
    return made
