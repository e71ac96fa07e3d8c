"""A model that is trained with canaries: patients whose gradients an auditor has chosen.

Each canary has a column of its own after all real features. Its rows are 0 in all other columns. Whatever the model's
parameters, a canary's clipped gradient has a fixed direction and the length of the clipping norm. Only the gradients of
canaries are replaced; sampling, clipping, noise and sums are the same as in the audited run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.training.base import Model, Optimizer, Task, Vector
from raysim.training.kernels.clipped import DenseLayers, Traceable, Traced
from raysim.training.models import build_model


@dataclass(frozen=True)
class WithCanaries:
    """A model family with canaries. The models are those of ``family`` with its ``options``.

    The last ``columns`` features belong to canaries.
    """

    family: str
    columns: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """Return the model for ``n_features`` features, which include the columns of canaries.

        Raises ``ConfigError`` on a GPU, and ``TypeError`` for models that do not consist of dense layers, such as
        boosted trees.
        """
        check_cpu(device)
        inner = build_model(
            self.family,
            n_features,
            n_classes,
            options=dict(self.options),
            init=init,
            device=device,
            precision=precision,
        )
        if not isinstance(inner, Traceable):
            raise TypeError(
                f"model: {type(inner).__name__} has no layers whose gradients can be clipped; choose another model"
            )
        return CanaryModel(inner, n_features - self.columns)


def check_cpu(device: str) -> None:
    """Raise ``ConfigError`` if ``device`` is a GPU, whose models do not give the gradients that canaries replace."""
    if device.startswith("cuda"):
        raise ConfigError(
            f"resources.device: {device}, but canaries of patients need the CPU; set resources.device: cpu, or give "
            "--canaries 0"
        )


class CanaryModel(DenseLayers):
    """The model ``inner``, trained with canaries.

    A row belongs to a canary if it has a value other than 0 in column ``first`` or later.
    """

    def __init__(self, inner: Any, first: int) -> None:
        self._inner, self._first = inner, first
        self.layout = inner.layout

    def initial(self, rng: np.random.Generator) -> NDArray[np.float64]:
        return np.asarray(self._inner.initial(rng))

    def logits(self, theta: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the model's outputs, with the columns of canaries set to 0."""
        return np.asarray(self._inner.logits(theta, self._without(X)))

    @property
    def logits_of_many(self) -> Callable[[Vector, NDArray[Any]], NDArray[Any]] | None:
        """Return the inner model's ``logits_of_many`` with canary columns set to 0, or None if it has none."""
        many = getattr(self._inner, "logits_of_many", None)
        return None if many is None else lambda theta, X: many(theta, self._without(X))

    def row_losses(self, outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(self._inner.row_losses(outputs, y))

    def train(self, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        """Train the model; in tasks with DP-SGD, the gradients of canaries' rows are replaced."""
        planted = [
            task
            if task.private is None
            else replace(task, private=replace(task.private, planted=self._canaries(task.X)))
            for task in tasks
        ]
        return np.asarray(self._inner.train(planted, optimizer))

    def traced(
        self, theta: NDArray[Any], X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None
    ) -> list[Traced]:
        """Return each layer's inputs (``received``) and the gradients with respect to its outputs (``returned``).

        For canaries, ``returned`` is a unit vector at the first layer, and 0 at all other layers.
        """
        layers: list[Traced] = self._inner.traced(theta, self._without(X), y, weights)
        canaries = self._canaries(X)
        if not canaries.any():
            return layers
        crafted = []
        for i, layer in enumerate(layers):
            returned = layer.returned.copy()
            returned[canaries] = 0.0 if i else returned.shape[1] ** -0.5
            crafted.append(Traced(layer.received if i else X.astype(layer.received.dtype), returned))
        return crafted

    def _canaries(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(X[:, self._first :].any(axis=1))

    def _without(self, X: NDArray[Any]) -> NDArray[Any]:
        plain = X.copy()
        plain[:, self._first :] = 0.0
        return plain
