"""Poisson regression of counts: a model's outputs are the means ``exp(w . x + b)``. Models are fitted by Newton's
method only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.training.base import Model, Optimizer, Task, Vector
from raysim.training.kernels.linear import LinearModel

if TYPE_CHECKING:
    from torch import nn

LARGEST = 80.0
"""Larger logarithms of expected counts are replaced by this number, so that float32 can represent the counts."""


@dataclass(frozen=True)
class PoissonRegression:
    """The family of Poisson regressions, for labels that are counts. It has no options."""

    labels: ClassVar[tuple[str, ...]] = ("regression",)
    linear: ClassVar[bool] = True
    """Whether models have only a coefficient for each feature, and a constant."""

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """Return the model for ``F`` features, always on a CPU."""
        return PoissonModel(n_features, 1, precision, "squared")


def poisson_losses(outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the negative log-likelihood of each count ``y [n]`` with mean ``outputs [n]``, without the term that
    depends only on ``y``."""
    means = np.maximum(outputs.astype(np.float64), np.finfo(np.float64).tiny)
    losses: NDArray[np.float64] = means - y * np.log(means)
    return losses


class PoissonModel(LinearModel):
    """Poisson regression with the parameters ``weight [1, F]`` and ``bias [1]``."""

    link = "log"
    unclippable = "is fitted without steps of gradient descent"

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the mean count of each row, ``[n]``, not its logarithm."""
        means: NDArray[Any] = np.exp(np.minimum(super().logits(theta, X), LARGEST))
        return means

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the negative log-likelihood of each row ``[n]``, without the term that depends only on its label."""
        return poisson_losses(outputs, y)

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Raise ``ValueError``: this model is fitted by Newton's method only."""
        raise ValueError("counts are fitted without steps of gradient descent; choose a strategy for regressions")

    def as_module(self, theta: Vector) -> nn.Module:
        """See :class:`raysim.training.base.Exportable`."""
        from raysim.training.kernels.modules.exported import Means

        return Means(super().as_module(theta), LARGEST)
