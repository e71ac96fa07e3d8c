"""Agnostic federated learning: the model for the worst mixture of hospitals.

M. Mohri, G. Sivek, A. T. Suresh: *Agnostic Federated Learning*, ICML 2019:
``min over w, max over λ in the simplex of sum λ_i L_i(w)``, with w the model, ``L_i`` hospital i's mean loss, and λ_i
the hospital's weight. The steps are those of stochastic AFL, with exact gradients.

In a round, all available hospitals with training rows send the gradient and the loss of all their rows at w. Then
``w <- w - gamma_w sum λ_i grad L_i``, and the weights become the projection of ``λ_i + gamma_λ L_i`` onto the simplex.
γ_w and γ_λ are step sizes. The result is the mean of w over the rounds. With ``averaging: model`` hospitals train as
configured instead of sending a gradient, and w moves by the sum of their changes of the parameters, weighted by λ.

All available hospitals take part in every round, whatever selection is configured.

Traffic in a round: the server sends the model's P scalars to each hospital, which sends back its update of P scalars,
its loss, and the number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    LocalTraining,
    Needs,
    NonNegativeFloat,
    State,
    Strategy,
    Update,
    Upload,
    own_state,
)
from raysim.strategies.shared.weights import hospital_weights


@dataclass(frozen=True, eq=False, kw_only=True)
class AgnosticState(State):
    """The state of agnostic federated learning. Row 0 of ``models`` is the current model, and row 1 is its mean over
    all finished rounds."""

    mixture: Floats
    """The weight λ of each hospital in the mixture, ``[N]``; 0 for hospitals without training rows."""
    rounds: int = 0
    """The number of finished rounds."""


@dataclass(frozen=True)
class AgnosticFL(Strategy):
    """The model for the worst mixture of hospitals (agnostic federated learning); the fields are its settings."""

    title: ClassVar[str] = "AFL"
    needs: ClassVar[Needs] = Needs.more("weights hospitals by their losses")

    ascent: NonNegativeFloat = 0.1
    """γ_λ: the step size by which the weights of hospitals with larger losses rise."""
    learning_rate: NonNegativeFloat | None = None
    """γ_w: the step size of the model or, with ``averaging: model``, of local training; null means
    ``training.learning_rate``."""
    averaging: Literal["gradient", "model"] = "gradient"
    """What the server averages: hospitals' ``gradient`` at the model (the paper), or trained models (``model``)."""
    start: Literal["uniform", "samples"] = "uniform"
    """The initial weights of hospitals: all equal (``uniform``), or by rows (``samples``)."""

    def setup(self, view: FederationView) -> AgnosticState:
        mixture = np.zeros(len(view.sizes))
        mixture[view.trainable] = hospital_weights(view.sizes[view.trainable], self.start)
        return AgnosticState(models=np.stack([view.initial, view.initial]), mixture=mixture)

    def uses_selection(self) -> bool:
        return False

    def unused_training(self) -> frozenset[str]:
        one_step = {"batch_size", "local_epochs", "optimizer"} if self.averaging == "gradient" else set()
        return frozenset(one_step | ({"learning_rate"} if self.learning_rate is not None else set()))

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.present

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        start, weight = np.zeros_like(ids), own_state(state, AgnosticState).mixture[ids]
        training = LocalTraining(learning_rate=self.learning_rate)
        if self.averaging == "gradient":
            training = replace(training, epochs=1, batch_size=0, optimizer="sgd")
        return LocalProblem(start=start, upload=Upload(weight, losses=True), training=training)

    def aggregate(self, view: FederationView, state: State, update: Update) -> AgnosticState:
        if update.losses is None:
            raise TypeError("update: has no losses of hospitals; pass an update that answers this strategy's problem")
        state = own_state(state, AgnosticState)
        last, rounds = state.models[0] + update.sums[0], state.rounds + 1
        mean = state.models[1] + (last - state.models[1]) / rounds
        risen = state.mixture.copy()
        risen[update.ids] += self.ascent * update.losses
        mixture = np.zeros_like(risen)
        mixture[view.trainable] = project_to_simplex(risen[view.trainable])
        return AgnosticState(models=np.stack([last, mean]), mixture=mixture, rounds=rounds)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return {"global": everyone, "average": np.ones_like(everyone)}


def project_to_simplex(point: Floats) -> Floats:
    """Return the point of ``{x : x >= 0, sum x = 1}`` with the smallest distance to ``point [n]``, n >= 1.

    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra: *Efficient Projections onto the l1-Ball for Learning in High
    Dimensions*, ICML 2008, Figure 1.
    """
    u = np.sort(point)[::-1]
    shift = (1.0 - np.cumsum(u)) / np.arange(1, len(u) + 1)
    k = np.flatnonzero(u + shift > 0)[-1]
    return np.asarray(np.maximum(point + shift[k], 0.0))
