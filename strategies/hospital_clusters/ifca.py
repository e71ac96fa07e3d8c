"""IFCA: each hospital trains the cluster model that has the smallest loss on its rows.

A. Ghosh, J. Chung, D. Yin, K. Ramchandran: *An Efficient Framework for Clustered Federated Learning*, NeurIPS 2020,
Algorithm 1.

In a round, each participant i receives all K cluster models and chooses ``k_i = argmin_k L_i(theta_k)``, ties to the
smaller k.

- Option II (``averaging: model``): hospitals train from the chosen model, and each cluster model becomes the mean of
  the models trained from it, with equal weights as in the paper.
- Option I (``averaging: gradient``): hospitals train for one epoch, and the sum of a cluster's deltas (changes of the
  parameters) is divided by the size of the whole cohort. With ``training.batch_size: 0`` and plain SGD this is the
  paper's step with γ the learning rate.

Choices: models start at the common initial model plus ``spread N(0, I)``. The authors restart from several
initial models and keep the best; here, compare several seeds. For predictions, a hospital uses the model with the
smallest loss on its training rows. A hospital without training rows uses the model that serves the most training rows.

If the server may learn only sums, a hospital does not send its choice. Instead it sends K vectors of P scalars: its
delta for the chosen model, and zeros for the others. It also sends K scalars: a positive constant for the chosen model,
and 0 for the others. The sums reveal how many hospitals chose a model, but not which hospitals.

Traffic in a round: each participant receives K models of P scalars. It sends back the index of the chosen model, P
scalars and the number of its training rows. If its choice is hidden, it sends K P + K scalars and the number of its
training rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    OWN,
    Context,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    LocalTraining,
    Needs,
    NonNegativeFloat,
    Program,
    Reply,
    Send,
    State,
    Statistic,
    Update,
    Upload,
    losses_of,
    sent_weights,
    statistics_of,
)
from raysim.strategies.hospital_clusters.centres import initial_centres, models_from_centres
from raysim.strategies.shared.clustering import Clusters, capped, check_enough_hospitals, members, number_of
from raysim.strategies.shared.weights import Weighted, Weighting


@dataclass(frozen=True)
class Nearest(Statistic):
    """The index of the received model that has the smallest mean training loss at a hospital; 0 if the hospital has no
    rows."""

    name = "choice"
    shape = ()

    def value(self, at: Context) -> Floats:
        return np.array(losses_of(at).sum(axis=1).argmin(), dtype=np.float64)


COUNTS = 0.1
"""The squared norm of the array ``chosen`` of :class:`ChosenTraining`, as a fraction of ``clip`` squared."""

LEAST = 3
"""The divisor of a noisy sum is at least the total weight of this many hospitals, as noise can bring it near 0."""


@dataclass(frozen=True)
class ChosenTraining(Program):
    """Local training from the best of K received models; sums over hospitals hide which model each chose.

    In the row of the chosen model, ``delta [K, P]`` has the hospital's update, and ``chosen [K]`` has a positive
    number. All other entries are 0. Under a privacy guarantee (``clip`` is finite) the norm of both arrays together is
    at most ``clip``.
    """

    models: int
    size: int
    epochs: int | None
    clip: float
    name: str = "ifca"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.models, self.size)), "chosen": Send((self.models,))}

    @property
    def one(self) -> float:
        """Return the number that a hospital sends in ``chosen`` for its model; 1 without a privacy guarantee."""
        return math.sqrt(COUNTS) * self.clip if math.isfinite(self.clip) else 1.0

    def run(self, at: Context) -> Reply:
        models = at.received["models"]
        k = int(np.argmin([at.model.loss(theta) for theta in models]))
        delta, chosen = np.zeros((self.models, self.size)), np.zeros(self.models)
        trained = at.model.train(models[k], epochs=self.epochs).theta - models[k]
        if math.isfinite(self.clip):
            trained *= min(1.0, math.sqrt(1.0 - COUNTS) * self.clip / max(float(np.linalg.norm(trained)), 1e-300))
        delta[k], chosen[k] = trained, self.one
        return Reply({"delta": delta, "chosen": chosen})


@dataclass(frozen=True)
class Ifca(Weighted):
    """Clusters of hospitals: each hospital chooses the best of K models (IFCA)."""

    title: ClassVar[str] = "IFCA"
    needs: ClassVar[Needs] = Needs("clusters")

    clusters: Clusters = "auto"
    """K, the number of cluster models; ``auto`` is 5, or the number of hospitals with training rows if this is
    smaller."""
    averaging: Literal["model", "gradient"] = "model"
    """What is averaged: trained models (``model``, option II) or the updates of one epoch (``gradient``, option I)."""
    spread: NonNegativeFloat = 0.1
    """Standard deviation of the noise that makes the initial models differ."""
    weights: Weighting = field(default="uniform", kw_only=True)
    """The weights of hospitals within a cluster (with ``averaging: gradient``, within the cohort): equal (``uniform``),
    by rows (``samples``), or by rows with a minimum for small hospitals (``floor``)."""

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        check_enough_hospitals(number_of(self.clusters, sizes), sizes)

    def remark(self, sizes: Ids) -> str:
        return capped(self.clusters, sizes)

    def unused_when_pooled(self) -> frozenset[str]:
        return super().unused_when_pooled() | {"averaging"}

    def setup(self, view: FederationView) -> State:
        centres = self.starts(view)
        cluster = None if view.hides else np.ones(len(view.sizes), dtype=np.int64)
        return State(models=models_from_centres(centres), cluster=cluster)

    def starts(self, view: FederationView) -> Floats:
        return initial_centres(view, number_of(self.clusters, view.sizes), self.spread)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        epochs = 1 if self.averaging == "gradient" else None
        training = LocalTraining(epochs=epochs)
        if view.hides:
            count, clip = len(state.models) - 1, math.inf if view.noise is None else view.noise.clip
            return LocalProblem(
                start=np.full_like(ids, OWN),  # the hospital chooses its start
                upload=Upload(self.weigh(view.sizes[ids]), sums=count),
                training=training,
                program=ChosenTraining(count, len(view.initial), epochs, clip),
                received={"models": state.models[1:]},
            )
        rows, sizes = nearest(view, state, ids), view.sizes[ids]
        weight = self.weigh_groups(sizes, rows) if self.averaging == "model" else self.weigh(sizes)
        return LocalProblem(
            start=rows, upload=Upload(weight, sum_index=rows - 1, sums=len(state.models) - 1), training=training
        )

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        if update.problem is None:
            raise TypeError("update: has no problem; pass an update that answers this strategy's problem")
        program = update.problem.program
        if isinstance(program, ChosenTraining):
            chosen, step = update.extra("chosen")[:, None] / program.one, update.sums
            if view.noise is not None and view.noise.multiplier:
                # Under a guarantee all hospitals have the same weight, independent of the other participants.
                part = float(sent_weights(update).max(initial=0.0))
                chosen = np.maximum(chosen, max(LEAST, view.least_members) * part)
            if self.averaging == "model":
                step = np.divide(update.sums, chosen, out=np.zeros_like(update.sums), where=chosen > 0)
            return State(models=models_from_centres(state.models[1:] + step))
        cluster = members(state).copy()
        cluster[update.ids] = update.problem.start
        return State(models=models_from_centres(state.models[1:] + update.sums), cluster=cluster)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        rows = nearest(view, state, view.everyone)
        ids = view.trainable
        rows[view.sizes == 0] = np.bincount(rows[ids], weights=view.sizes[ids]).argmax()
        return {"cluster": rows}


def nearest(view: FederationView, state: State, ids: Ids) -> Ids:
    """Call hospitals ``ids [H]``. Return, for each hospital, the row in ``state.models`` of the cluster model with the
    smallest loss on the hospital's training rows, ``[H]``."""
    return 1 + statistics_of(view, Nearest(), ids, state.models[1:]).astype(np.int64)
