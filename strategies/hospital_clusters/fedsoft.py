"""FedSoft: rows come from several sources, and each hospital's model has a proximal term towards each source's model.

Y. Ruan, C. Joe-Wong: *FedSoft: Soft Clustered Federated Learning with Proximal Local Updating*, AAAI 2022, Algorithm 1;
details follow the authors' code.

The server has S models, called centres, one for each source. Every τ rounds each hospital k receives all centres and
sends ``u_ks``, the share of its rows whose loss is smallest under centre s. A share of 0 is replaced by σ, without
renormalising. In a round, each centre samples ``ceil(fraction K / S)`` of K available hospitals without replacement,
with probabilities in proportion to ``u_ks n_k`` for a hospital with ``n_k`` rows. All sampled hospitals minimise
``L_k + lam/2 sum_s u_ks |w - c_s|^2`` from their own model. A centre ``c_s`` becomes the plain mean of the models that
its sampled hospitals return.

Choices: the paper does not give the number of hospitals that a centre samples. ``selection: configured`` is the variant
without sampling by centres: the configured selection samples the hospitals, and ``c_s`` is the mean of their models,
weighted by ``u_ks n_k``. Centres start at the common initial model plus ``spread N(0, I)``. Before its first round a
hospital's own model is its mixture ``sum_s u_ks c_s / sum_s u_ks``; with ``start: mixture`` every round begins at the
mixture. Hospitals without training rows use a mixture whose weights are the sources' shares of all training rows.

Traffic: before round 1 and after every τ rounds, each hospital with training rows receives S models of P scalars and
sends S shares. In a round, each participant receives S models of P scalars, and sends back P scalars and the number of
its training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import (
    MIXTURE,
    OWN,
    Context,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    LocalTraining,
    Needs,
    NonNegativeFloat,
    Objective,
    PositiveInt,
    Proximal,
    ShareOfOne,
    State,
    Statistic,
    Strategy,
    Update,
    Upload,
    choose,
    losses_of,
    own_state,
    sent_weights,
    statistics_of,
)
from raysim.strategies.hospital_clusters.centres import initial_centres, models_from_centres
from raysim.strategies.selections.sampling import weighted_sample


@dataclass(frozen=True)
class NearestShares(Statistic):
    """The share of a hospital's rows for which each of M received models has the smallest loss, ``[M]``; zeros for a
    hospital without rows."""

    shape: tuple[int]
    name = "nearest_shares"

    def value(self, at: Context) -> Floats:
        counts = np.bincount(losses_of(at).argmin(axis=0), minlength=self.shape[0])
        return counts / max(len(at.rows.y), 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftState(State):
    """The state of FedSoft. Row 0 of ``models`` is the mean of the S centres, and row ``1 + s`` is centre s."""

    importance: Floats
    """The share u of each hospital's rows on which each centre has the smallest loss, ``[N, S]``. ``floor`` replaces
    shares of 0; hospitals without rows have zeros."""
    rounds: int = 0
    """The number of rounds that have changed the centres."""


@dataclass(frozen=True)
class FedSoft(Strategy):
    """Soft clusters of hospitals with a proximal term towards each centre (FedSoft)."""

    needs: ClassVar[Needs] = Needs.more("sends whole models, each into several sums", own_steps=True)
    serves = ("personal",)

    clusters: PositiveInt = 5
    """S, the number of centres."""
    lam: NonNegativeFloat = 0.1
    """λ: the weight of the proximal terms between a hospital's own model and the centres."""
    every: PositiveInt = 2
    """τ: the number of rounds after which hospitals compute and send their shares u again."""
    floor: ShareOfOne = 1e-4
    """σ: the value that replaces a share u of 0."""
    spread: NonNegativeFloat = 0.1
    """The standard deviation of the noise that makes the initial centres differ."""
    selection: Literal["importance", "configured"] = "importance"
    """Which hospitals train: each centre samples them by ``importance``, or the ``configured`` selection does."""
    fraction: ShareOfOne = 0.5
    """In a round, each centre samples ``fraction / S`` of the available hospitals."""
    start: Literal["own", "mixture"] = "own"
    """The model from which a hospital begins a round: its ``own`` model, or its ``mixture`` of the centres."""

    def setup(self, view: FederationView) -> SoftState:
        centres = self.starts(view)
        return SoftState(models=models_from_centres(centres), importance=self._importance(view, centres))

    def uses_selection(self) -> bool:
        return self.selection == "configured"

    def unused_settings(self) -> Mapping[str, str]:
        return {"fraction": "selection: importance"} if self.selection == "configured" else {}

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        if self.selection == "configured":
            return choose(view, state, view.trainable, "sample", round)
        return np.flatnonzero(self._sampled(view, state).any(axis=1))

    def starts(self, view: FederationView) -> Floats:
        return initial_centres(view, self.clusters, self.spread)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        u = own_state(state, SoftState).importance[ids]
        if self.selection == "configured":
            into = u * view.sizes[ids, None]
        else:
            into = self._sampled(view, state)[ids].astype(np.float64)
        total = into.sum(axis=0)
        return LocalProblem(
            start=np.full_like(ids, OWN if self.start == "own" else MIXTURE),
            # A centre without participants among its sampled hospitals has no weights and does not change.
            upload=Upload(into / np.where(total > 0, total, 1.0), sums=self.clusters, what="parameters"),
            objective=Objective(
                proximal=tuple(Proximal(self.lam * u[:, s], np.full_like(ids, 1 + s)) for s in range(self.clusters))
            ),
            training=LocalTraining(keep=True),
        )

    def aggregate(self, view: FederationView, state: State, update: Update) -> SoftState:
        weight = sent_weights(update)
        state, trained = own_state(state, SoftState), np.asarray((weight > 0).any(axis=0))
        centres = np.where(trained[:, None], update.sums, state.models[1:])
        rounds, importance = state.rounds + 1, state.importance
        if rounds % self.every == 0:
            importance = self._importance(view, centres)
        return SoftState(models=models_from_centres(centres), importance=importance, rounds=rounds)

    def mixture(self, view: FederationView, state: State) -> Floats:
        u = own_state(state, SoftState).importance
        u = np.where(view.sizes[:, None] > 0, u, view.sizes @ u)  # without rows: the shares of all training rows
        return np.hstack([np.zeros((len(u), 1)), u / u.sum(axis=1, keepdims=True)])

    def _importance(self, view: FederationView, centres: Floats) -> Floats:
        u = np.zeros((len(view.sizes), len(centres)))
        nearest = statistics_of(view, NearestShares((len(centres),)), view.trainable, centres)
        u[view.trainable] = np.where(nearest > 0, nearest, self.floor)
        return u

    def _sampled(self, view: FederationView, state: State) -> NDArray[np.bool_]:
        """Return a mask ``[N, S]`` of the hospitals that each of S centres samples in the round."""
        state, ids = own_state(state, SoftState), view.present
        count = int(np.ceil(self.fraction * len(ids) / self.clusters - 1e-9))
        chances = np.log(state.importance[ids] * view.sizes[ids, None])
        sampled = np.zeros((len(view.sizes), self.clusters), dtype=np.bool_)
        for s in range(self.clusters):
            rng = view.rng("centre_sample", view.round, s)
            sampled[weighted_sample(ids, chances[:, s], count, rng), s] = True
        return sampled
