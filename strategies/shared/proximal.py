"""The proximal term towards the global model, for FedProx and for fine-tuning after it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raysim.strategies.base import FederationView, Floats, Ids, Proximal


def global_proximal(view: FederationView, ids: Ids, mu: float, by_hospital: Mapping[str, float]) -> Proximal:
    """Return the proximal terms ``mu/2 * |theta - theta_global|^2`` of hospitals ``ids``.

    For hospitals whose names are in ``by_hospital``, its values replace ``mu``.
    """
    weight: float | Floats = mu
    if by_hospital:
        weight = np.array([by_hospital.get(view.names[i], mu) for i in ids])
    return Proximal(weight, np.zeros_like(ids))
