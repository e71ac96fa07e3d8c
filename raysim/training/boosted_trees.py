"""The model ``boosted_trees``: gradient-boosted trees on the recorded columns, grown from sums over rows.

Columns are used as recorded: numbers are not scaled, missing values are not replaced, and categories are indices. The
model is stored as a vector of parameters (:mod:`raysim.trees.stored`). Strategies for boosted trees add trees to the
model; there is no gradient descent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Layout, Model, Optimizer, Task, Vector
from raysim.training.kernels.poisson import LARGEST, poisson_losses
from raysim.training.losses import LOG_LOSS, row_losses
from raysim.trees.boosting import bins_of, boosted
from raysim.trees.forest import Forest
from raysim.trees.settings import TreeSettings, TreeTask
from raysim.trees.stored import Shape


@dataclass(frozen=True)
class BoostedTrees(TreeSettings):
    """The family ``boosted_trees``."""

    labels: ClassVar[tuple[str, ...]] = ("classification", "regression")
    raw: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rate:
            raise ValueError("rate: 0 gives trees no effect; write a number above 0, such as 0.1")

    def bind(
        self, n_features: int, n_classes: int, *, init: str, device: str, precision: str, levels: tuple[int, ...]
    ) -> Model:
        """Return the model for ``F`` features and ``C`` classes, always on a CPU.

        ``levels [F]`` is the number of categories of each feature; 0 means a numeric feature.
        """
        return TreeModel(TreeTask(self, levels, n_classes), precision)


class TreeModel:
    """Boosted trees as a model, stored as a vector ``[P]`` (:class:`raysim.trees.stored.Shape`)."""

    unclippable = "is grown without steps of gradient descent"

    def __init__(self, task: TreeTask, precision: str) -> None:
        self.trees = task
        self.shape = Shape(task)
        self.layout = Layout(tuple(self.shape.tensors), tuple(self.shape.tensors.values()))
        self.link = "log" if task.loss == "poisson" else "identity"
        self._dtype = np.dtype(precision)

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return a vector of zeros ``[P]``, which represents a model without trees."""
        return np.zeros(self.layout.size)

    def forest(self, theta: Vector) -> Forest:
        """Return the trees stored in ``theta [P]``."""
        return self.shape.forest(theta)

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the outputs for rows ``X [n, F]``: log-odds of class 1, predictions or expected counts ``[n]``, or
        logits ``[n, C]``."""
        margins = self.forest(theta).margins(X)
        if self.trees.loss == "poisson":
            margins = np.exp(np.minimum(margins, LARGEST))
        return (margins if self.trees.outputs > 1 else margins[:, 0]).astype(self._dtype)

    @property
    def logits_of_many(self) -> Callable[[Vector, NDArray[Any]], NDArray[Any]] | None:
        """Return ``logits`` if a row has one output, else None; see :class:`raysim.training.base.Model`."""
        return self.logits if self.trees.outputs == 1 else None

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the loss of each row ``[n]``."""
        if self.trees.loss == "poisson":
            return poisson_losses(outputs, y)
        return row_losses("squared" if self.trees.loss == "squared" else LOG_LOSS, outputs, y)

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Add a hospital's own trees, grown on its training rows, to the trees that it received.

        If the hospital has enough validation rows (:func:`raysim.trees.boosting.enough`), their loss decides how many
        of the new trees are kept. Nothing is added if ``own_trees`` is 0, or to a model without trees.
        """
        return np.stack([self._with_own(task) for task in tasks]).astype(self._dtype)

    def _with_own(self, task: Task) -> NDArray[Any]:
        forest, own = self.forest(task.start), self.trees.personal()
        if not task.works or not self.trees.settings.own_trees or not len(forest):
            return task.start
        return self.shape.vector(boosted(own, task.X, task.y, bins_of(own, task.X), forest, held=task.held))
