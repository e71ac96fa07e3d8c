"""Layers that normalise by the rows of a batch, and the treatment of batches of one row, which have no variance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""torch's batch normalisation layers; lazy variants are subclasses of these."""


@contextmanager
def running(parts: Sequence[nn.Module]) -> Iterator[None]:
    """A context in which ``parts`` normalise by their running statistics and leave these statistics unchanged."""
    training = [part for part in parts if part.training]
    for part in training:
        part.eval()
    yield
    for part in training:
        part.train()
