"""Agnostic federated learning: the model for the worst mixture of hospitals.

M. Mohri, G. Sivek, A. T. Suresh: *Agnostic Federated Learning*, ICML 2019: ``min over w, max over λ in the simplex of
sum λ_i L_i(w)``, by stochastic-AFL's descent and ascent with exact gradients.

A round: all hospitals that have training rows send the gradient and the loss of all their rows at w;
``w <- w - gamma_w sum λ_i grad L_i``; λ becomes the projection onto the simplex of ``λ + gamma_λ L_i``. The result is
the mean of w over the rounds. ``averaging: model`` lets hospitals train as configured instead of one step, and w is
then the mean of their models by λ.

All hospitals take part in every round, whatever the selection says. The λ of a hospital that is not available changes
by the projection alone.
Traffic: per hospital P scalars down; P, its loss and the number of its rows up.
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
    State,
    Strategy,
    Update,
    Upload,
    at_least,
    one_of,
    own_state,
)
from raysim.strategies.shared.weights import hospital_weights


@dataclass(frozen=True, eq=False, kw_only=True)
class AgnosticState(State):
    """The state of AFL. Of the models, row 0 is w and row 1 its mean over the rounds."""

    mixture: Floats
    """λ, ``[N]``; 0 for hospitals without training rows."""
    rounds: int = 0
    """How many rounds there have been."""


@dataclass(frozen=True)
class AgnosticFL(Strategy):
    """``ascent``: γ_λ; ``learning_rate``: γ_w (None: as configured); ``start``: λ at first, ``uniform`` or by rows."""

    title: ClassVar[str] = "AFL"
    needs: ClassVar[Needs] = Needs.more("weighs hospitals by their losses")

    ascent: float = 0.1
    """Step size with which the weights of hospitals rise towards those with larger losses."""
    learning_rate: float | None = None
    """Step size of the model with ``averaging: gradient``; null is ``training.learning_rate``."""
    averaging: Literal["gradient", "model"] = "gradient"
    """What the server averages: hospitals' ``gradient`` at the model (the paper's), or trained models (``model``)."""
    start: Literal["uniform", "samples"] = "uniform"
    """The weights of hospitals at the start: all alike (``uniform``), or by rows (``samples``)."""

    def __post_init__(self) -> None:
        at_least("ascent", self.ascent, 0)
        if self.learning_rate is not None:
            at_least("learning_rate", self.learning_rate, 0)
        one_of("averaging", self.averaging, ("gradient", "model"))
        one_of("start", self.start, ("uniform", "samples"))

    def setup(self, view: FederationView) -> AgnosticState:
        mixture = np.zeros(len(view.sizes))
        mixture[view.trainable] = hospital_weights(view.sizes[view.trainable], self.start)
        return AgnosticState(models=np.stack([view.initial, view.initial]), mixture=mixture)

    def uses_selection(self) -> bool:
        return False

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
            raise TypeError("the update has no losses")
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
    """The point of ``{x : x >= 0, sum x = 1}`` with the least distance to ``point [n]``, n >= 1.

    J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra: *Efficient Projections onto the l1-Ball for Learning in High
    Dimensions*, ICML 2008, Figure 1: with u sorted descending, k is the largest for which
    ``u_k + (1 - sum_{j<=k} u_j) / k > 0``.
    """
    u = np.sort(point)[::-1]
    shift = (1.0 - np.cumsum(u)) / np.arange(1, len(u) + 1)
    k = np.flatnonzero(u + shift > 0)[-1]
    projected: Floats = np.maximum(point + shift[k], 0.0)
    return projected
