"""Clipping in DP-SGD steps of a linear model: a bound on each row's residual.

The gradient of a row is the row's residual times its features. To clip the gradient, the residual's magnitude is
limited to the clipping norm divided by the norm of the features. This limit is the same in all steps. For patients with
several rows, clipping factors are computed in each step (:class:`.clipped.RowFactors`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.training.kernels.clipped import MARGIN, RowFactors, Traced
from raysim.training.private import PrivateSteps


def largest(clip: float, lengths: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the magnitude ``[n]`` of each row's residual at which its gradient has the norm ``clip * (1 - MARGIN)``.

    ``lengths [n]`` are the norms of the rows' features, with a 1 for the bias.
    """
    bounds: NDArray[Any] = clip * (1.0 - MARGIN[dtype]) / lengths
    return bounds


class LinearClip:
    """Clips the gradients of a linear model in one hospital's steps of DP-SGD.

    The kernel stores the hospital's rows ``X [n, F]`` multiplied by ``unit``, with a constant last column for the bias.
    """

    def __init__(self, private: PrivateSteps, X: NDArray[Any], unit: float) -> None:
        self._unit, self._planted, self._factors = unit, private.planted, RowFactors(private, X.dtype)
        bounds = largest(private.clip, np.sqrt(np.vecdot(X, X) + 1), X.dtype) / unit
        self._sound = bool(bounds.min() > 0)
        if not self._sound:
            finite = bounds > 0
            bounds, X = np.where(finite, bounds, 0), np.where(finite[:, None], X, 0)
        self.X = X
        """The rows ``[n, F]``, with zeros in rows whose norm is not finite."""
        bounds = bounds.astype(X.dtype, copy=False)
        self._bounds = np.empty_like(bounds)
        self.columns = [(bounds, self._bounds)]
        """One pair of arrays ``[n]``: the :func:`largest` residual of each row divided by ``unit``, and memory for
        these values in the order of gathered rows."""

    def shorten(self, z: NDArray[Any], batch: NDArray[Any], low: int, high: int, gathered: NDArray[np.int64]) -> None:
        """Clip the gradients of a batch by reducing the rows' residuals ``z [b]``, in place.

        ``batch [b, F+1]`` are the rows ``gathered[low:high]``.
        """
        self._settle(z[:, None], low, high, gathered)
        shared, places = None, self._factors.shared(gathered, low, high)
        if places is not None:
            shared = z[places] * self._of_shared(z[:, None], batch, gathered[low:high], places)
            shared[~np.isfinite(shared)] = 0
        # fmin and fmax turn NaN into the bound.
        np.fmin(z, self._bounds[low:high], z)
        np.fmax(z, -self._bounds[low:high], z)
        if shared is not None:
            z[places] = shared

    def shorten_each(
        self, z: NDArray[Any], batch: NDArray[Any], low: int, high: int, gathered: NDArray[np.int64]
    ) -> None:
        """Do the same as :meth:`shorten`, for a model with ``C`` outputs and residuals ``z [b, C]``."""
        self._settle(z, low, high, gathered)
        each = np.minimum(1.0, self._bounds[low:high] / np.sqrt(np.vecdot(z, z)))
        places = self._factors.shared(gathered, low, high)
        if places is not None:
            each[places] = self._of_shared(z, batch, gathered[low:high], places)
        np.multiply(z, each[:, None], z)
        if not np.vdot(z, z) < np.inf:
            z[~np.isfinite(z)] = 0

    def _settle(self, z: NDArray[Any], low: int, high: int, gathered: NDArray[np.int64]) -> None:
        """Set residuals of an auditor's planted rows to a constant, and those of rows without a finite norm to 0."""
        if self._planted is not None:
            z[self._planted[gathered[low:high]]] = z.shape[1] ** -0.5 / self._unit
        if not self._sound:
            z[self._bounds[low:high] == 0] = 0

    def _of_shared(
        self, z: NDArray[Any], batch: NDArray[Any], rows: NDArray[np.int64], places: NDArray[np.int64]
    ) -> NDArray[Any]:
        trace = Traced(batch[:, :-1] / self._unit, z * self._unit)
        return self._factors.of_shared([trace], rows, places).astype(z.dtype)
