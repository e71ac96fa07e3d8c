"""FedAsync: the server mixes every model into its own as soon as it arrives, an old one less.

C. Xie, S. Koyejo, I. Gupta: *Asynchronous Federated Optimization*, OPT 2020 (NeurIPS workshop; arXiv:1903.03934),
Algorithm 1.

``concurrency`` hospitals are in training at any time. A hospital that received the model ``x_t`` minimises
``L_i(x) + rho/2 |x - x_t|^2``; when its ``x_new`` arrives, ``x <- (1 - alpha_t) x + alpha_t x_new`` with ``alpha_t =
alpha s(tau)``, and another hospital starts from the result. τ is how often the server's model has changed since the
hospital received it; s is ``constant`` (1), ``polynomial`` (``(1 + tau)^-a``) or ``hinge`` (1 up to b, then
``1 / (a (tau - b) + 1)``).

Choices: τ is 0 for the newest model, so that s(0) = 1 (the paper counts from the update that is being made). The paper
leaves it to a scheduler which hospital starts next; here the configured selection draws it among those that are
available and idle. The virtual clock (``system``) decides when it has finished; without one all hospitals are equally
fast. A hospital trains for ``training.local_epochs``. A round is one update of the server.
Traffic: per update P scalars down, P + 1 up.
"""

from __future__ import annotations

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
    Objective,
    Proximal,
    State,
    Strategy,
    Update,
    Upload,
    at_least,
    one_of,
    sent_weights,
    within,
)


@dataclass(frozen=True)
class FedAsync(Strategy):
    """``mixing``: α, 0 to 1; ``staleness``: s, with ``exponent`` (a of the polynomial) and ``slope`` and ``start`` (a
    and b of the hinge); ``rho``: ρ; ``concurrency``: how many hospitals train at a time.
    """

    needs: ClassVar[Needs] = Needs.more("merges single hospitals' updates as they come")

    mixing: float = 0.6
    """α: the share of a fresh model that the server mixes into its own."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """How the share falls with a model's age."""
    exponent: float = 0.5
    """a of ``polynomial`` staleness."""
    slope: float = 10.0
    """a of ``hinge`` staleness."""
    start: float = 4.0
    """b of ``hinge`` staleness: the age from which the share falls."""
    rho: float = 0.005
    """ρ: how strongly a hospital is pulled to the model that it received."""
    concurrency: int = 10
    """Hospitals that train at a time."""

    def __post_init__(self) -> None:
        within("mixing", self.mixing, 0, 1)
        one_of("staleness", self.staleness, ("constant", "polynomial", "hinge"))
        for field in ("exponent", "slope", "start", "rho"):
            at_least(field, getattr(self, field), 0)
        at_least("concurrency", self.concurrency, 1)

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
