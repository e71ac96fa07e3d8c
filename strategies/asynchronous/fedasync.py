"""FedAsync: the server mixes every arriving model into its own, with a smaller weight for a stale model.

C. Xie, S. Koyejo, I. Gupta: *Asynchronous Federated Optimization*, OPT 2020 (NeurIPS workshop; arXiv:1903.03934),
Algorithm 1.

At most ``concurrency`` hospitals train at the same time. A hospital i that received the model ``x_t`` minimises
``L_i(x) + rho/2 |x - x_t|^2``, with ``L_i`` its mean loss. When its trained model ``x_new`` arrives, the server's model
becomes ``x <- (1 - alpha_t) x + alpha_t x_new`` with ``alpha_t = alpha s(tau)``. A hospital that is not training then
starts from ``x``. The staleness τ is how often the server's model has changed since hospital i received it. The
function s is ``constant`` (1), ``polynomial`` (``(1 + tau)^-a``) or ``hinge`` (1 for τ <= b, ``1 / (a (tau - b) + 1)``
for larger τ). The setting ``exponent`` or ``slope`` is a, and ``start`` is b.

Choices: τ is 0 for the newest model (the paper's τ is one larger). The configured selection samples the next hospital
among those that are available and not training. The virtual clock (``system``) decides when a hospital has finished;
without a clock all hospitals are equally fast. A round is one update of the server's model.

Traffic for each update: the server sends the model's P scalars to a hospital, which sends back P scalars and the number
of its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.asynchronous.staleness import hinge, polynomial, staleness_of
from raysim.strategies.base import (
    Asynchrony,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    Needs,
    NonNegativeFloat,
    Objective,
    PositiveInt,
    Proximal,
    State,
    Strategy,
    UnitInterval,
    Update,
    Upload,
    sent_weights,
)


@dataclass(frozen=True)
class FedAsync(Strategy):
    """Asynchronous federated optimisation (FedAsync); the fields are its settings."""

    needs: ClassVar[Needs] = Needs.more("merges single hospitals' updates as they arrive")

    mixing: UnitInterval = 0.6
    """α: the weight of a fresh model in the server's model, from 0 to 1."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """How a model's weight falls with its staleness."""
    exponent: NonNegativeFloat = 0.5
    """a: the exponent of ``polynomial`` staleness."""
    slope: NonNegativeFloat = 10.0
    """a: the slope of ``hinge`` staleness."""
    start: NonNegativeFloat = 4.0
    """b: the largest staleness at which a model still has its full weight under ``hinge``."""
    rho: NonNegativeFloat = 0.005
    """ρ: the weight of the proximal term towards the received model."""
    concurrency: PositiveInt = 10
    """The largest number of hospitals that train at the same time."""

    def unused_settings(self) -> Mapping[str, str]:
        of = {"exponent": "polynomial", "slope": "hinge", "start": "hinge"}
        return {name: f"staleness: {value}" for name, value in of.items() if value != self.staleness}

    def asynchrony(self) -> Asynchrony:
        return Asynchrony(self.concurrency, buffer=1)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        received = np.zeros_like(ids)
        weight = self.mixing * self._weight(staleness_of(view, ids))
        return LocalProblem(
            start=received,
            upload=Upload(weight, what="parameters"),
            objective=Objective(proximal=(Proximal(self.rho, received),) if self.rho else ()),
        )

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        return replace(state, models=(1.0 - sent_weights(update).sum()) * state.models + update.sums)

    def _weight(self, staleness: Floats) -> Floats:
        if self.staleness == "polynomial":
            return polynomial(staleness, self.exponent)
        if self.staleness == "hinge":
            return hinge(staleness, self.slope, self.start)
        return np.ones_like(staleness)
