"""Sums of gradients in which no patient counts for more than a clip, without a gradient of its own for any row.

A row's gradient by a dense layer's weights is the outer product of ``d``, what comes back to the layer's outputs, and
of ``(a, 1)``, what the layer received. So its length needs only ``|d|`` and ``|a|``, and a row is clipped by scaling
its ``d`` before the products that would have been made anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

MARGIN = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
"""By how much a factor that clips is lowered, so that rounding does not put the result above the clip."""


class Traced(NamedTuple):
    """A dense layer in one pass: ``received [n, in]`` and ``returned [n, out]``, the loss's gradient by its outputs."""

    received: NDArray[Any]
    returned: NDArray[Any]


@runtime_checkable
class Traceable(Protocol):
    """A model of dense layers, whose parameters are their weights ``[out, in]`` and biases ``[out]`` in turn."""

    def traced(
        self, theta: NDArray[Any], X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None
    ) -> list[Traced]:
        """Each layer's trace, in the precision of ``theta [P]``; row losses count ``weights [n]`` times."""
        ...


Patients = NDArray[np.int64] | None
"""The patient of each row, ascending ``[n]`` and naming all of ``0..U-1``; None: each row is one."""


def row_lengths(layers: Sequence[Traced]) -> NDArray[Any]:
    """The 2-norm of each row's gradient, ``[n]``."""
    squares: Any = 0.0
    for received, returned in layers:
        squares = squares + np.einsum("no,no->n", returned, returned) * (np.einsum("ni,ni->n", received, received) + 1)
    lengths: NDArray[Any] = np.sqrt(squares)
    return lengths


def patient_lengths(layers: Sequence[Traced], patient: Patients) -> NDArray[Any]:
    """The 2-norm of each patient's gradient, ``[U]``."""
    if patient is None:
        return row_lengths(layers)
    squares = np.zeros(int(patient[-1]) + 1 if len(patient) else 0)
    for apart in range(len(patient)):
        first, second = slice(0, len(patient) - apart), slice(apart, len(patient))
        same = patient[first] == patient[second]
        if not same.any():
            break
        # The inner product of two rows' gradients: sum over layers of (d . d') (a . a' + 1).
        inner = sum(
            np.einsum("no,no->n", layer.returned[first], layer.returned[second])
            * (np.einsum("ni,ni->n", layer.received[first], layer.received[second]) + 1.0)
            for layer in layers
        )
        twice = inner if apart == 0 else 2.0 * inner
        squares += np.bincount(patient[first][same], weights=twice[same], minlength=len(squares))
    return np.sqrt(np.maximum(squares, 0.0))


def clipped_sum(layers: Sequence[Traced], patient: Patients, clip: float) -> NDArray[Any]:
    """The sum over patients of their gradients ``[P]``, each shortened to ``clip``.

    A patient's gradient is the sum over its rows. One that is not finite counts zero.
    """
    dtype = layers[0].returned.dtype
    with np.errstate(all="ignore"):
        lengths = patient_lengths(layers, patient)
        factors = np.minimum(1.0, clip * (1.0 - MARGIN[dtype]) / lengths)
        factors[lengths <= clip] = 1.0  # their bits stay
        by_row = factors if patient is None else factors[patient]
        finite = bool(np.isfinite(lengths).all())
        if not finite:
            kept = np.isfinite(lengths if patient is None else lengths[patient])
            layers, by_row = [Traced(layer.received[kept], layer.returned[kept]) for layer in layers], by_row[kept]
        by_row = by_row.astype(dtype, copy=False)[:, None]
        parts = []
        for received, returned in layers:
            scaled = returned * by_row
            parts += [(scaled.T @ received).ravel(), scaled.sum(axis=0)]
    return np.concatenate(parts)
