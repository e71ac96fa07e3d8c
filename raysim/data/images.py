"""Image data sets from files in the layouts that their publishers give. Nothing is unpickled.

- Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): the four ``*-ubyte.gz`` IDX files, or one ``fashion_mnist.npz`` with
  ``x_train, y_train, x_test, y_test``.
- CIFAR-10 (Krizhevsky 2009): the binary version, ``data_batch_1.bin`` to ``_5.bin`` and ``test_batch.bin``.
"""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raysim.data.pooled import Pooled, existing, labels_of, pixels
from raysim.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_FILES = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
IDX_FILES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
NPZ = "fashion_mnist.npz"


class FashionMnist(Pooled):
    """Fashion-MNIST: 70,000 grey images of 28 x 28, 10 classes, from the folder ``path``."""

    path: Path

    def files(self) -> Iterator[Path]:
        if (self.path / NPZ).is_file():
            return iter([self.path / NPZ])
        return iter(existing(self.path, IDX_FILES, f"Fashion-MNIST (or one with {NPZ})"))

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        files = list(self.files())
        if files[0].name == NPZ:
            images, labels = _npz(files[0])
        else:
            parts = [_idx(files[0], 3), _idx(files[2], 3)]
            if parts[0].shape[1:] != parts[1].shape[1:]:
                raise DataError(f"data.path: {self.path} holds images of two shapes; Fashion-MNIST's are 28 x 28")
            images = np.concatenate(parts)
            labels = np.concatenate([_idx(files[1], 1), _idx(files[3], 1)])
        if images.shape[1:] != (28, 28) or len(images) != len(labels):
            raise DataError(
                f"data.path: {self.path} holds images of shape {images.shape} and {len(labels)} labels; "
                "Fashion-MNIST has as many of each, of 28 x 28"
            )
        return pixels(images), labels_of(labels, 10, self.path), FASHION, f"Fashion-MNIST: {len(labels):,} images"


class Cifar10(Pooled):
    """CIFAR-10: 60,000 colour images of 3 x 32 x 32, 10 classes, from the binary version in the folder ``path``."""

    path: Path

    def files(self) -> Iterator[Path]:
        return iter(existing(self.path, CIFAR_FILES, "CIFAR-10's binary version"))

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        rows = []
        for file in self.files():
            content = np.fromfile(file, dtype=np.uint8)
            if len(content) == 0 or len(content) % 3073:
                raise DataError(f"data.path: {file} is not whole rows of 3,073 bytes; fetch CIFAR-10's binary version")
            rows.append(content.reshape(-1, 3073))
        table = np.concatenate(rows)
        labels = labels_of(table[:, 0], 10, self.path)
        return pixels(table[:, 1:]), labels, CIFAR, f"CIFAR-10: {len(labels):,} images"


def _npz(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            images = np.concatenate([arrays["x_train"], arrays["x_test"]])
            return images, np.concatenate([arrays["y_train"], arrays["y_test"]])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"data.path: {file} cannot be read ({str(error).splitlines()[0]}); fetch it again") from None


def _idx(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of a gzipped IDX file of unsigned bytes with so many dimensions."""
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError) as error:
        raise DataError(f"data.path: {file} is not a whole gzip file ({error}); fetch it again") from None
    head = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:head], dtype=">u4").astype(int)) if len(content) >= head else ()
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) != head + int(np.prod(shape)):
        raise DataError(f"data.path: {file} is not an IDX file of {dimensions} dimensions; fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
