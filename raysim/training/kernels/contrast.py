"""The contrastive term of MOON (:attr:`raysim.strategies.base.Objective.contrast`) in numpy, with a manual gradient.

Let ``u = a / max(|a|, 1e-8)`` be the unit vectors of a row's representations ``a`` by two frozen models. The two
cosines differ by ``d = z . v / max(|z|, 1e-8)`` with ``v = u_own - u_received``. A step needs only ``v`` of the frozen
models, which is 0 if both are the same model. The term's gradient by z is ``weight sigmoid(d / temperature) /
temperature * (v
- d z / |z|) / |z|``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1e-8
"""The smallest denominator of a cosine."""

Rows = NDArray[Any]


def directions(local: Rows, received: Rows) -> Rows:
    """Return ``v [n, d]`` of each row, from its representations by its own and the received model, ``[n, d]`` each."""
    return _unit(local) - _unit(received)


def add_gradient(z: Rows, v: Rows, weight: float, temperature: float, into: Rows) -> None:
    """Add the gradient of each row's term by ``z [b, d]`` to ``into [b, d]``, not divided by the number of rows."""
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
