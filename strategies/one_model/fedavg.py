"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: *Communication-Efficient Learning of Deep Networks
from Decentralized Data*, AISTATS 2017, Algorithm 1.

A round: a cohort S trains locally from the global model; ``theta <- theta + sum_S w_i * delta_i``.
Traffic per participant: P scalars down, P + 1 up.
"""

from __future__ import annotations

from dataclasses import dataclass

from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class FedAvg(Weighted):
    """Federated averaging. ``weights``: ``samples`` (the paper), ``uniform``, or a ``floor`` for small sites."""
