"""The contrastive term of MOON in numpy, with a manual gradient.

Let ``z`` be a row's representation by the model in training. ``u_received`` is the unit vector of the row's
representation by the received model, and ``u_own`` that by the hospital's previous model. The cosines of ``z`` with
these vectors differ by ``d = z . v / |z|``, where ``v = u_own - u_received``. For a term with ``weight`` and
``temperature``, the gradient with respect to ``z`` is
``weight sigmoid(d / temperature) / temperature * (v - d z / |z|) / |z|``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1e-8
"""The smallest divisor: smaller norms of representations are replaced by this number in divisions."""

Rows = NDArray[Any]


def directions(local: Rows, received: Rows) -> Rows:
    """Return ``u_own - u_received`` of each row, ``[n, d]``.

    ``local`` and ``received [n, d]`` are the rows' representations by the hospital's previous model and by the received
    model. ``u_own`` and ``u_received`` are their unit vectors.
    """
    return _unit(local) - _unit(received)


def add_gradient(z: Rows, v: Rows, weight: float, temperature: float, into: Rows) -> None:
    """Compute the contrastive term's gradient with respect to the representations ``z [b, d]``, and add it to ``into``.

    ``v [b, d]`` is the result of :func:`directions`. The gradient is not divided by the number of rows.
    """
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
