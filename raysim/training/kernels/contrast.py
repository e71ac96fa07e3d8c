"""The contrastive term of MOON (:attr:`raysim.strategies.base.Objective.contrast`) in numpy, with a manual gradient.

Let ``z`` be a row's representation by the trained model, and ``a`` its representations by the two frozen models, with
unit vectors ``u = a / max(|a|, 1e-8)``. The two cosines differ by ``d = z . v / max(|z|, 1e-8)`` with ``v = u_own -
u_received``. Of the frozen models, a step needs only ``v``, which is 0 if both are the same model. The gradient of the
term by ``z`` is ``weight sigmoid(d / temperature) / temperature * (v - d z / |z|) / |z|``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1e-8
"""The smallest denominator of a cosine."""

Rows = NDArray[Any]


def directions(local: Rows, received: Rows) -> Rows:
    """Return ``v [n, d]`` of each row, from the row's representations by the hospital's own model and by the received
    model, ``[n, d]`` each."""
    return _unit(local) - _unit(received)


def add_gradient(z: Rows, v: Rows, weight: float, temperature: float, into: Rows) -> None:
    """Add the gradient of each row's term by ``z [b, d]`` to ``into [b, d]``. The gradient is not divided by the number
    of rows."""
    norms = np.sqrt(np.einsum("ij,ij->i", z, z))
    lengths = np.maximum(norms, SMALLEST)
    d = np.einsum("ij,ij->i", z, v) / lengths
    # sigmoid(s) = (1 + tanh(s/2))/2, which cannot overflow
    slope = 0.5 * weight / temperature * (1 + np.tanh(0.5 / temperature * d)) / lengths
    into += slope[:, None] * v
    into -= np.where(norms > SMALLEST, slope * d / lengths, 0)[:, None] * z


def _unit(rows: Rows) -> Rows:
    units: Rows = rows / np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), SMALLEST)[:, None]
    return units
