"""Federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: *Communication-Efficient Learning of Deep Networks
from Decentralized Data*, AISTATS 2017, Algorithm 1.

In a round, the hospitals of a cohort S train locally from the global model ``theta``. With ``delta_i`` the change of
hospital i's parameters and ``w_i`` its weight, the next model is ``theta + sum_S w_i delta_i``. Traffic in a round: the
server sends the model's P scalars to each participant, which sends back P scalars and the number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class FedAvg(Weighted):
    """Federated averaging. Hospitals are weighted by training rows (``weights: samples``, as in the paper), equally
    (``uniform``), or by rows with a minimum for small hospitals (``floor``)."""
