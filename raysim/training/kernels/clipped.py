"""Sums of gradients clipped by patient, without computing the gradient of any single row.

Let ``d`` be the gradient of a row's loss with respect to a dense layer's outputs, and ``a`` the layer's inputs. The
gradient with respect to weights and biases is the outer product of ``d`` and ``(a, 1)``. Its norm follows from ``|d|``
and ``|a|``, and scaling ``d`` clips it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from raysim.training.private import PrivateSteps

MARGIN = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
"""For each precision, the share by which clipping factors are reduced, so that rounding does not make a gradient longer
than the clipping norm."""


class Traced(NamedTuple):
    """The inputs and gradients of a dense layer.

    ``received [n, in]`` are the layer's inputs. ``returned [n, out]`` are the gradients of the rows' losses with
    respect to the layer's outputs.
    """

    received: NDArray[Any]
    returned: NDArray[Any]


Patients = NDArray[np.int64] | None
"""The patient of each row, ``[n]``: ascending numbers from 0 without gaps. None: each row is a separate patient."""


@runtime_checkable
class Traceable(Protocol):
    """A model of dense layers, whose parameters are the weights ``[out, in]`` and biases ``[out]`` of each layer in
    order."""

    def traced(
        self, theta: NDArray[Any], X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None
    ) -> list[Traced]:
        """Return each layer's inputs, and the gradients with respect to its outputs, in the precision of ``theta [P]``.

        Each row's loss is multiplied by its ``weights [n]`` (None: all are 1).
        """


@runtime_checkable
class Clippable(Protocol):
    """A model that can clip the gradient of each patient, for DP-SGD."""

    @property
    def unclippable(self) -> str | None:
        """Return the reason why gradients cannot be clipped by patient; None if they can."""

    def clipped_sum(
        self,
        theta: NDArray[Any],
        X: NDArray[Any],
        y: NDArray[Any],
        weights: NDArray[Any] | None,
        patient: Patients,
        clip: float,
    ) -> NDArray[Any]:
        """Return the sum of the patients' gradients at ``theta [P]``, each clipped to the norm ``clip``.

        A patient's gradient is the sum of the gradients of the patient's rows; it counts as zero if it is not finite.
        Each row's loss is multiplied by its ``weights [n]`` (None: all are 1).
        """


def numbered(patient: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the patient of each row ``[n]``, renumbered from 0 without gaps. The rows must be sorted by patient."""
    return np.concatenate([[0], np.cumsum(np.diff(patient) != 0)])


def row_squares(layers: Sequence[Traced]) -> NDArray[Any]:
    """Return the squared 2-norm of each row's gradient over all layers, ``[n]``."""
    squares: Any = 0.0
    for received, returned in layers:
        squares = squares + np.vecdot(returned, returned) * (np.vecdot(received, received) + 1)
    result: NDArray[Any] = squares
    return result


def patient_lengths(layers: Sequence[Traced], patient: Patients) -> NDArray[Any]:
    """Return the 2-norms ``[U]`` of the gradients of ``U`` patients, over all layers."""
    if patient is None:
        lengths: NDArray[Any] = np.sqrt(row_squares(layers))
        return lengths
    squares = np.zeros(int(patient[-1]) + 1 if len(patient) else 0)
    for apart in range(len(patient)):
        first, second = slice(0, len(patient) - apart), slice(apart, len(patient))
        same = patient[first] == patient[second]
        if not same.any():
            break
        # The inner product of two rows' gradients: sum over layers of (d . d') (a . a' + 1).
        inner = sum(
            np.vecdot(layer.returned[first], layer.returned[second])
            * (np.vecdot(layer.received[first], layer.received[second]) + 1.0)
            for layer in layers
        )
        doubled = inner if apart == 0 else 2.0 * inner
        squares += np.bincount(patient[first][same], weights=doubled[same], minlength=len(squares))
    return np.sqrt(np.maximum(squares, 0.0))


def factors(lengths: NDArray[Any], clip: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the factors ``[U]`` that clip gradients with the norms ``lengths [U]``.

    A factor is 1 if the norm is at most ``clip * (1 - MARGIN)``, and 0 if the norm is not finite.
    """
    # Short gradients keep their bits: their factor is exactly 1. A length that is NaN gives 0.
    shorter: NDArray[Any] = np.fmax(np.minimum(1.0, clip * (1.0 - MARGIN[dtype]) / lengths), 0.0)
    return shorter


def clipped_sum(layers: Sequence[Traced], patient: Patients, clip: float) -> NDArray[Any]:
    """Return the sum of patients' clipped gradients, ``[P]``; see :meth:`Clippable.clipped_sum`."""
    dtype = layers[0].returned.dtype
    with np.errstate(all="ignore"):
        by_patient = factors(patient_lengths(layers, patient), clip, dtype)
        by_row = by_patient if patient is None else by_patient[patient]
        contributing = by_row > 0
        if not contributing.all():
            layers, by_row = (
                [Traced(layer.received[contributing], layer.returned[contributing]) for layer in layers],
                by_row[contributing],
            )
        by_row = by_row.astype(dtype, copy=False)[:, None]
        total, at = np.empty(sum((a.shape[1] + 1) * d.shape[1] for a, d in layers), dtype), 0
        for received, returned in layers:
            scaled, (fan_in, fan_out) = returned * by_row, (received.shape[1], returned.shape[1])
            biases = at + fan_in * fan_out
            np.matmul(scaled.T, received, total[at:biases].reshape(fan_out, fan_in))
            at = biases + fan_out
            total[biases:at] = scaled.sum(axis=0)
    return total


class DenseLayers(Traceable):
    """A base class that turns a model of dense layers into a :class:`Clippable` model."""

    unclippable: str | None = None

    def clipped_sum(
        self,
        theta: NDArray[Any],
        X: NDArray[Any],
        y: NDArray[Any],
        weights: NDArray[Any] | None,
        patient: Patients,
        clip: float,
    ) -> NDArray[Any]:
        """See :class:`Clippable`."""
        return clipped_sum(self.traced(theta, X, y, weights), patient, clip)


class RowFactors:
    """Computes the factors by which rows' gradients are multiplied to clip them by patient, for DP-SGD at one hospital.

    For a patient with several rows, inner products of the rows' gradients are needed, not only norms.
    """

    def __init__(self, private: PrivateSteps, dtype: np.dtype[Any]) -> None:
        self._clip, self._dtype, self._patient = private.clip, dtype, private.patient
        self._planted = private.planted
        shared = np.empty(0, np.bool_)
        if private.patient is not None:
            shared = (np.bincount(private.patient) > 1)[private.patient]
        self._shared = shared if shared.any() else None

    @property
    def need_traces(self) -> bool:
        """Whether each layer's inputs and gradients (:class:`Traced`) are needed."""
        return self._shared is not None or self._planted is not None

    def shared(self, rows: NDArray[np.int64], low: int, high: int) -> NDArray[np.int64] | None:
        """Return the positions, in the batch ``rows[low:high]``, of rows of patients with several rows at the hospital;
        None if there are none.
        """
        if self._shared is None:
            return None
        places = np.flatnonzero(self._shared[rows[low:high]])
        return places if len(places) else None

    def of_shared(self, layers: Sequence[Traced], rows: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[Any]:
        """Return the clipping factors of the rows at the positions ``places`` of a batch. Each of these rows belongs to
        a patient with several rows at the hospital.
        """
        if self._patient is None:
            raise ValueError("rows without patient ids cannot be clipped by patient; give their patient ids")
        patient = numbered(self._patient[rows[places]])
        theirs = [Traced(layer.received[places], layer.returned[places]) for layer in layers]
        return factors(patient_lengths(theirs, patient), self._clip, self._dtype)[patient]

    def plant(self, layers: Sequence[Traced], rows: NDArray[np.int64]) -> None:
        """Replace, in ``layers``, the gradients of rows that a privacy auditor has planted.

        The new gradients are described at ``PrivateSteps.planted``.
        """
        if self._planted is None:
            return
        planted = np.flatnonzero(self._planted[rows])
        for k, (_, returned) in enumerate(layers):
            returned[planted] = 0.0 if k else returned.shape[1] ** -0.5

    def __call__(self, squares: NDArray[Any], layers: Sequence[Traced], rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the clipping factors of the rows of a batch, ``[b']``.

        ``squares [b']`` are the squared norms of the rows' gradients. The batch consists of the hospital's
        ``rows [b]``, followed by padding up to ``b'`` rows.
        """
        each = factors(np.sqrt(squares), self._clip, self._dtype)
        places = self.shared(rows, 0, len(rows))
        if places is not None:
            each[places] = self.of_shared(layers, rows, places)
        return each.astype(self._dtype, copy=False)
