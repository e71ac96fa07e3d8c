"""Image networks of published experiments (Clust-PSI-PFL: Jimenez-Gutierrez et al., 2025), as ``torch`` modules on flat
rows.

Each row is one image, with pixels as features. Activations have channels last in memory, which is faster on a CPU.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from raysim.training.base import whole


class FashionCnn(nn.Module):
    """The Fashion-MNIST network of Clust-PSI-PFL: three convolutions (8, 16, 32 maps) with max pooling, a dense layer
    of 2048 units.

    Rows are images of 28 x 28 pixels (``n_features`` 784). The paper gives neither the kernel size nor the ``padding``.
    Here kernels are 3 x 3, and padded by default.
    """

    def __init__(self, n_features: int, n_outputs: int, dense: int = 2048, padding: bool = True) -> None:
        super().__init__()
        if n_features != 28 * 28:
            raise ValueError(f"name: fashion_cnn takes images of 28 x 28, 784 features, not {n_features}")
        whole("dense", dense, 1)
        self.body = nn.Sequential(
            *(layer for a, b in ((1, 8), (8, 16), (16, 32)) for layer in _stage(a, b, padding)), nn.Flatten()
        )
        side = 3 if padding else 1
        self.head = nn.Sequential(nn.Linear(32 * side * side, dense), nn.ReLU(), nn.Linear(dense, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[n, n_outputs]`` of rows ``[n, 784]``."""
        # With one channel the shape does not tell the memory order; these strides mark the channel as last.
        images = x.reshape(-1, 28, 28, 1).permute(0, 3, 1, 2)
        logits: Tensor = self.head(self.body(images))
        return logits


class CifarCnn(nn.Module):
    """The CIFAR-10 network of Clust-PSI-PFL: three blocks of 32, 64, 128 maps, a dense layer of 128, batch norm,
    dropout.

    A block has two padded 3 x 3 convolutions, each with ReLU and batch norm, then max pooling and dropout (.2, .3, .4).
    The dense layer has ReLU, batch norm and dropout (.5). Rows are images of 3 channels with 32 x 32 pixels
    (``n_features`` 3,072), channels first. The paper gives neither the order of ReLU and batch norm nor the constants
    of batch norm, which are torch's defaults here.
    """

    def __init__(self, n_features: int, n_outputs: int, dense: int = 128) -> None:
        super().__init__()
        if n_features != 3 * 32 * 32:
            raise ValueError(f"name: cifar_cnn takes images of 3 x 32 x 32, 3072 features, not {n_features}")
        whole("dense", dense, 1)
        blocks = ((3, 32, 0.2), (32, 64, 0.3), (64, 128, 0.4))
        self.body = nn.Sequential(*(layer for a, b, drop in blocks for layer in _block(a, b, drop)), nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(128 * 4 * 4, dense),
            nn.ReLU(),
            nn.BatchNorm1d(dense),
            nn.Dropout(0.5),
            nn.Linear(dense, n_outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[n, n_outputs]`` of rows ``[n, 3072]``."""
        images = x.reshape(-1, 3, 32 * 32).transpose(1, 2).contiguous().view(-1, 32, 32, 3).permute(0, 3, 1, 2)
        logits: Tensor = self.head(self.body(images))
        return logits


def _stage(channels: int, maps: int, padding: bool) -> tuple[nn.Module, ...]:
    # Pooling before ReLU gives the same function and gradient, with a quarter of the work for ReLU.
    return nn.Conv2d(channels, maps, 3, padding=int(padding)), nn.MaxPool2d(2), nn.ReLU()


def _block(channels: int, maps: int, drop: float) -> tuple[nn.Module, ...]:
    layers = nn.Sequential(_normed(channels, maps), _normed(maps, maps))
    return nn.Sequential(OrderedDict(layers=layers, pool=nn.MaxPool2d(2))), nn.Dropout(drop)


def _normed(channels: int, maps: int) -> nn.Module:
    convolution, norm = nn.Conv2d(channels, maps, 3, padding=1), nn.BatchNorm2d(maps)
    return nn.Sequential(OrderedDict(convolution=convolution, relu=nn.ReLU(), norm=norm))
