"""Networks of a user's own."""

from __future__ import annotations

from torch import Tensor, nn


class Normed(nn.Sequential):
    """With running statistics, which are part of what is exported, and dropout, which is not."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(
            nn.Linear(n_features, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, n_outputs)
        )


class Branching(nn.Linear):
    """Does another thing for other values, which no program of torch.export can."""

    def forward(self, X: Tensor) -> Tensor:
        """``[n, n_outputs]``."""
        return super().forward(X if X.sum() > 0 else -X)
