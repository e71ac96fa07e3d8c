"""Models that several tests of clipped gradients share."""

from __future__ import annotations

import torch
from torch import nn

MODELS = [
    ("logistic_regression", 2, {}),
    ("logistic_regression", 3, {}),
    ("linear_regression", 0, {}),
    ("linear_regression", 0, {"loss": "absolute"}),
    ("mlp", 2, {"hidden": [4, 3]}),
    ("mlp", 3, {"hidden": []}),
    ("mlp", 0, {"hidden": [3]}),
]
"""Dense families, their classes and options: one logit and several, both real losses, hidden layers and none."""


class Normed(nn.Module):
    """A network whose outputs for a row depend on the others."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(n_features), nn.Linear(n_features, n_outputs)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(X))
