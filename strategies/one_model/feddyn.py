"""FedDyn: a penalty that changes from round to round makes hospitals' own minima agree with the common minimum.

D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough, V. Saligrama: *Federated Learning Based on Dynamic
Regularization*, ICLR 2021, Algorithm 1.

A participant i that receives the model w minimises ``L_i(theta) - g_i . theta + alpha/2 |theta - w|^2``, with ``L_i``
its mean loss and ``g_i`` initially 0. With ``theta_i`` the result, it then sets ``g_i -= alpha (theta_i - w)``. ``g_i``
stays at the hospital. The server updates ``h -= alpha/N sum delta_i`` with ``delta_i = theta_i - w`` and N the number
of hospitals with training rows. Its next model is the mean of the participants' models minus ``h / alpha``. The paper's
values of alpha are 0.01 to 0.1.

Traffic in a round: the server sends the model's P scalars to each participant, which sends back P scalars and the
number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Ids,
    Keep,
    Limit,
    LocalProblem,
    Needs,
    Reply,
    State,
    Strategy,
    Update,
    at_least,
    own_state,
)
from raysim.strategies.shared.program_average import DeltaTraining, alike


@dataclass(frozen=True, eq=False)
class FedDynState(State):
    """The state of FedDyn between rounds. ``drift [P]`` is h in the paper."""

    drift: Floats | None = None


@dataclass(frozen=True)
class DynamicTraining(DeltaTraining):
    """Local training with the added terms ``-g_i . theta + alpha/2 |theta - w|^2``, after which the hospital updates
    ``g_i``."""

    alpha: float
    name: str = "feddyn"

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"linear": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        w, linear = at.received["theta"], at.memory.get("linear", np.zeros(self.size))
        delta = at.model.train(w, proximal=[(self.alpha, w)], linear=-linear).theta - w
        return Reply({"delta": delta}, {"linear": linear - self.alpha * delta})


@dataclass(frozen=True)
class FedDyn(Strategy):
    """Federated learning with dynamic regularisation (FedDyn). All participants have equal weights."""

    needs = Needs.more("counts the participants")

    alpha: Annotated[float, Limit(at_least, 1e-6)] = 0.1
    """α: the weight of the penalty."""

    def setup(self, view: FederationView) -> State:
        return FedDynState(models=view.initial[None].copy(), drift=np.zeros_like(view.initial))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return alike(ids, DynamicTraining(len(view.initial), self.alpha))

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        own, mean = own_state(state, FedDynState), update.sums[0]
        if own.drift is None:
            return own
        drift = own.drift - self.alpha * len(update.ids) / len(view.trainable) * mean
        return replace(own, models=own.models + mean - drift / self.alpha, drift=drift)
