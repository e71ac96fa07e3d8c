"""SCAFFOLD: control variates remove each hospital's own drift from its steps.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh: *SCAFFOLD: Stochastic Controlled Averaging
for Federated Learning*, ICML 2020, Algorithm 1.

The server has a control variate c, and each hospital i has its own, c_i. A participant receives the model θ and the
variate c, and takes K steps ``y <- y - eta_l (g_i(y) - c_i + c)`` from θ, with ``g_i`` the gradient of a batch and η_l
the learning rate. In option II the hospital's new variate is ``c_i+ = c_i - c + (theta - y) / (K eta_l)``; in option I
it is the full-batch gradient at θ. The server updates ``theta <- theta + eta_g sum_S w_i (y_i - theta)`` over the
cohort S, with uniform weights as in the paper, or weights by rows. It also updates
``c <- c + (1/N) sum_S (c_i+ - c_i)`` with N the number of all hospitals, so that c stays the mean of all c_i. Variates
start at 0.

The local optimiser must be plain SGD.

Traffic in a round: the server sends the model and c, P scalars each, to each participant. The participant sends back
the changes of the model and of c_i, P scalars each, and the number of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    Context,
    FederationView,
    Floats,
    Ids,
    Keep,
    LocalProblem,
    Needs,
    NonNegativeFloat,
    Program,
    Reply,
    Send,
    State,
    Training,
    Update,
    Upload,
    own_state,
)
from raysim.strategies.shared.weights import Weighted, Weighting


@dataclass(frozen=True, eq=False, kw_only=True)
class VariateState(State):
    """The state of SCAFFOLD between rounds. ``variate [P]`` is c, the server's control variate."""

    variate: Floats


@dataclass(frozen=True)
class CorrectedTraining(Program):
    """Local training that adds the server's control variate to each gradient and subtracts the hospital's."""

    size: int
    renew: Literal["steps", "gradient"]
    name: str = "scaffold"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,)), "variate": Send((self.size,), kind="variate")}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"variate": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        # In the precision of the model, like its steps.
        start, server = at.received["theta"], at.received["variate"]
        own = at.memory.get("variate", np.zeros(self.size)).astype(start.dtype)
        theta, steps = at.model.train(start, linear=server - own)
        renewed = own.copy()
        if self.renew == "gradient":
            renewed = at.model.gradient(start).astype(start.dtype)
        elif steps:
            moved = at.model.trained
            slope = (start - theta.astype(start.dtype)) / (steps * at.model.learning_rate)
            renewed[:moved] += (slope - server)[:moved]
        change = np.subtract(renewed, own, dtype=np.float64)
        return Reply({"delta": theta - start, "variate": change}, {"variate": renewed})


@dataclass(frozen=True)
class Scaffold(Weighted):
    """Federated averaging with control variates (SCAFFOLD); hospitals have equal weights by default."""

    title: ClassVar[str] = "SCAFFOLD"
    needs: ClassVar[Needs] = Needs.of_hospitals("sends control variates")

    server_rate: NonNegativeFloat = 1.0
    """η_g: step size of the server."""
    renew: Literal["steps", "gradient"] = "steps"
    """How control variates are updated: from the ``steps`` of the round (option II), or as the full-batch ``gradient``
    at the received model (option I)."""
    weights: Weighting = field(default="uniform", kw_only=True)

    def check_training(self, training: Training) -> None:
        if training.optimizer != "sgd":
            raise ValueError(
                f"training.optimizer: strategy scaffold corrects the steps of plain SGD, not '{training.optimizer}'; "
                "set sgd"
            )

    def setup(self, view: FederationView) -> VariateState:
        return VariateState(models=view.initial[None, :].copy(), variate=np.zeros_like(view.initial))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        of_all = np.full(len(ids), 1.0 / len(view.sizes))
        return LocalProblem(
            start=np.zeros_like(ids),
            upload=Upload(self.weigh(view.sizes[ids]), extra_weight=of_all),
            program=CorrectedTraining(len(view.initial), self.renew),
            received={"variate": own_state(state, VariateState).variate},
        )

    def aggregate(self, view: FederationView, state: State, update: Update) -> VariateState:
        variate = own_state(state, VariateState).variate + update.extra("variate")
        return VariateState(models=state.models + self.server_rate * update.sums, variate=variate)
