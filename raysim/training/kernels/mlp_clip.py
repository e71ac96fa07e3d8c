"""Clipping in a perceptron's private steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.training.kernels.clipped import RowFactors
from raysim.training.kernels.mlp_passes import Passes
from raysim.training.private import PrivateSteps

PIECE = 16
"""Batches drawn by Poisson sampling are padded with rows of zeros to a multiple of this number.

Products with other numbers of rows take up to half as long again (31 rows: 80 us, 32: 52).
"""


def filled(rows: int) -> int:
    """Return the number of ``rows``, rounded up to a multiple of ``PIECE``."""
    return -(-rows // PIECE) * PIECE


class MlpClip:
    """Clipping in one hospital's local update, whose rows are ``X [n, F]``.

    ``buffer [filled(n), F]`` is memory for a batch; ``passes`` compute its gradients.
    """

    def __init__(self, private: PrivateSteps, X: NDArray[Any], buffer: NDArray[Any], passes: Passes) -> None:
        self._factors, self._X, self._buffer, self._passes = RowFactors(private, X.dtype), X, buffer, passes
        self._squares = np.vecdot(X, X) + 1
        # Old values may remain behind a batch's rows: they are multiplied by 0.
        self._of_batch = np.ones(len(buffer), X.dtype)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the batch of ``rows [b]``, padded, ``[filled(b), F]``."""
        batch = self._buffer[: filled(len(rows))]
        # mode="clip" only because "raise" makes numpy copy `out` first; rows are never out of range
        self._X.take(rows, 0, batch[: len(rows)], "clip")
        batch[len(rows) :] = 0
        return batch

    def shorten(self, batch: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Clip the gradients of the ``rows [b]`` that were gathered into ``batch``, by scaling their residuals."""
        traces = self._passes.traces(batch) if self._factors.need_traces else []
        self._factors.plant(traces, rows)
        of_batch = self._of_batch[: len(batch)]
        self._squares.take(rows, 0, of_batch[: len(rows)], "clip")
        self._passes.scale(batch, self._factors(self._passes.row_squares(of_batch), traces, rows))
