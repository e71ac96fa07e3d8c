"""Image data sets from files in their publishers' layouts. Nothing is unpickled.

- Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): the four ``*-ubyte.gz`` IDX files, or one ``fashion_mnist.npz`` with
  ``x_train, y_train, x_test, y_test``.
- CIFAR-10 (Krizhevsky 2009): the binary version, ``data_batch_1.bin`` to ``_5.bin`` and ``test_batch.bin``.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.data.sources.pooled import Pooled, check_labels, existing, pixels

FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_FILES = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
IDX_FILES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
NPZ = "fashion_mnist.npz"


class FashionMnist(Pooled):
    """Fashion-MNIST: 70,000 grey images of 28 x 28, 10 classes, from the folder ``path``."""

    predicts: ClassVar[str] = "kind of garment"
    tabular: ClassVar[bool] = False

    path: Path
    """The folder of the data set's files."""

    def files(self) -> Iterator[Path]:
        if (self.path / NPZ).is_file():
            return iter([self.path / NPZ])
        return iter(existing(self.path, IDX_FILES, f"Fashion-MNIST (or one with {NPZ})"))

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        files = list(self.files())
        parts = _npz(files[0]) if files[0].name == NPZ else [(_idx(files[k], 3), _idx(files[k + 1], 1)) for k in (0, 2)]
        # Each part is checked separately: mixed-up files may still contain as many images as labels in total.
        for name, part in zip(("train", "test"), parts, strict=True):
            _check(*part, f"{self.path} ({name})")
        images = np.concatenate([images for images, _ in parts])
        labels = np.concatenate([labels for _, labels in parts]).astype(np.int64)
        return pixels(images), labels, FASHION, f"Fashion-MNIST: {len(labels):,} images"


class Cifar10(Pooled):
    """CIFAR-10: 60,000 colour images of 3 x 32 x 32, 10 classes, from the binary version in the folder ``path``."""

    predicts: ClassVar[str] = "what a picture shows"
    tabular: ClassVar[bool] = False

    path: Path
    """The folder of the data set's files."""

    def files(self) -> Iterator[Path]:
        return iter(existing(self.path, CIFAR_FILES, "CIFAR-10's binary version"))

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        rows = []
        for file in self.files():
            content = np.fromfile(file, dtype=np.uint8)
            if len(content) == 0 or len(content) % 3073:
                raise DataError(
                    f"data.path: {file} does not consist of rows of 3,073 bytes; fetch CIFAR-10's binary version"
                )
            rows.append(content.reshape(-1, 3073))
        table = np.concatenate(rows)
        check_labels(table[:, 0], 10, str(self.path))
        labels = table[:, 0].astype(np.int64)
        return pixels(table[:, 1:]), labels, CIFAR, f"CIFAR-10: {len(labels):,} images"


def _check(images: NDArray[Any], labels: NDArray[Any], what: str) -> None:
    """Raise ``DataError`` unless ``images`` are bytes ``[n, 28, 28]`` and ``labels`` have the shape ``[n]``.

    Floating-point images are refused, because they may have been scaled already.
    """
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28) or len(images) == 0:
        raise DataError(
            f"data.path: {what} holds images of shape {images.shape} and type {images.dtype}; images of Fashion-MNIST "
            "have shape [n, 28, 28] and type uint8; fetch it again"
        )
    check_labels(labels, len(FASHION), what)
    if len(images) != len(labels):
        raise DataError(
            f"data.path: {what} holds {len(images):,} images and {len(labels):,} labels; Fashion-MNIST has one label "
            "for each image; fetch it again"
        )


def _npz(file: Path) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    try:
        # The file is opened here, since numpy does not close a file that it opened and could not read.
        with file.open("rb") as opened:
            arrays = np.load(opened, allow_pickle=False)
            if isinstance(arrays, np.ndarray):  # numpy recognises a file by its content, not by its name
                raise ValueError("it is one array, not an archive of four")
            return [(np.asarray(arrays[f"x_{part}"]), np.asarray(arrays[f"y_{part}"])) for part in ("train", "test")]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"data.path: {file} cannot be read ({str(error).splitlines()[0]}); fetch it again") from None


def _idx(file: Path, dimensions: int) -> NDArray[np.uint8]:
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"data.path: {file} is not a complete gzip file ({error}); fetch it again") from None
    head = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:head], dtype=">u4").astype(int)) if len(content) >= head else ()
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) != head + int(np.prod(shape)):
        raise DataError(f"data.path: {file} is not an IDX file of {dimensions} dimensions; fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
