"""The parameters of the model that a hospital uses: one of the server's models, its own, or a mixture of server
models.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.engine.messages.memory import MODEL, HospitalStates
from raysim.strategies.base import MIXTURE, OWN, Floats, Mask

Parameters = NDArray[Any]


class Models(Protocol):
    """The models that the server sends, ``[M, P]``.

    ``mixture [N, M]`` has the weights with which each hospital mixes the models, and ``private [P]`` marks the
    parameters that never leave a hospital.
    """

    @property
    def models(self) -> NDArray[Any]: ...
    @property
    def mixture(self) -> Floats | None: ...
    @property
    def private(self) -> NDArray[np.bool_] | None: ...


def parameters(plan: Models, row: int, hospital: int, states: HospitalStates) -> Parameters:
    """Return the parameters ``[P]`` of the model ``row`` at a hospital, including the hospital's private parameters.

    ``row`` is an index of the server's models, ``OWN`` for the model that the hospital stores, or ``MIXTURE`` for its
    mixture of the server's models. With ``OWN``, a hospital that stores no model uses its mixture or, without mixtures,
    the server's model 0.
    """
    model = states.get(hospital, {}).get(MODEL)
    if row == OWN and model is not None:
        return model
    shared: Parameters
    if row in (OWN, MIXTURE) and plan.mixture is not None:
        shared = (plan.mixture[hospital] @ plan.models).astype(plan.models.dtype)
    else:
        shared = plan.models[0 if row == OWN else row]
    return with_private(shared, plan.private, model)


def with_private(theta: Parameters, private: Mask | None, own: Parameters | None) -> Parameters:
    """Return ``theta [P]`` with the parameters marked in ``private [P]`` replaced by those of the hospital's own model
    ``own [P]``. If ``private`` or ``own`` is None, nothing is replaced.
    """
    return theta if private is None or own is None else np.where(private, own, theta)
