"""Layers that compute by numpy in a visit's loop on a CPU, where that is faster than torch, and by torch elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class NumpyLayer(nn.Module):
    """A layer of two ways to compute, in float32 and float64."""

    by_numpy = False
    """Whether it stands in a context of :func:`by_numpy`."""

    def computes_by_numpy(self) -> bool:
        """Whether the next call is numpy's: inside of :func:`by_numpy`, and not where autocast chooses the type."""
        return self.by_numpy and not torch.is_autocast_enabled("cpu")


@contextmanager
def by_numpy(module: nn.Module, wanted: bool) -> Iterator[None]:
    """A context in which the layers of ``module`` that can do so compute by numpy, if ``wanted``."""
    layers = [part for part in module.modules() if isinstance(part, NumpyLayer)] if wanted else []
    for layer in layers:
        layer.by_numpy = True
    try:
        yield
    finally:
        for layer in layers:
            layer.by_numpy = False
