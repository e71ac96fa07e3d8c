"""Networks of published experiments, as plain ``torch`` modules on flat rows."""

from __future__ import annotations

from torch import Tensor, nn


class FashionCnn(nn.Module):
    """The Fashion-MNIST network of Clust-PSI-PFL: three convolutions (8, 16, 32 maps) with max pooling, dense 2048.

    Rows are images of 28 x 28 (``n_features`` 784). The paper gives no kernel size: 3 x 3, padded, is taken.
    """

    def __init__(self, n_features: int, n_outputs: int, dense: int = 2048) -> None:
        super().__init__()
        if n_features != 28 * 28:
            raise ValueError(f"name: fashion_cnn takes images of 28 x 28, 784 features, not {n_features}")
        self.body = nn.Sequential(
            *(layer for a, b in ((1, 8), (8, 16), (16, 32)) for layer in _stage(a, b)), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(32 * 3 * 3, dense), nn.ReLU(), nn.Linear(dense, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``[n, n_outputs]`` of rows ``[n, 784]``."""
        logits: Tensor = self.head(self.body(x.reshape(-1, 1, 28, 28)))
        return logits


def _stage(channels: int, maps: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
