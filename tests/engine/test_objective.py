"""Weight decay, class weights and carried optimisers in whole runs, against a plain loop over the same streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.job import Job
from raysim.engine.messages.memory import STORED
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.strategies.base import POOLED, FederationView, Ids, LocalProblem, State
from raysim.strategies.fairness.qfedavg import QFedAvg
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from tests.conftest import MakeFederation, job_of, run

SIZES = [9, 0, 5, 14]
DECAY = 0.2


def job(federation: Federation, strategy: Any, *, decay: float = 0.0, weights: Any = "none", **settings: Any) -> Job:
    made = job_of(federation, strategy, **settings)
    work = replace(made.work, optimizer=replace(made.work.optimizer, weight_decay=decay), class_weights=weights)
    return replace(made, work=work)


class Sequel:
    """The optimiser of one hospital over local updates, written out: logistic regression, batches of four, rate .1."""

    def __init__(self, name: str, theta: NDArray[np.float64], decay: float, weights: NDArray[np.float64]) -> None:
        self.name, self.theta, self.decay, self.weights = name, theta.copy(), decay, weights
        self.v, self.m, self.s, self.t = (np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta), 0)

    def trained(self, X: NDArray[Any], y: NDArray[Any], round: int, hospital: int, epochs: int = 1) -> NDArray[Any]:
        for epoch in range(epochs if len(y) else 0):
            order = np.arange(len(y))
            if len(y) > 4:
                order = stream(1, "batch", round, hospital, epoch).permutation(len(y))
            for low in range(0, len(y), 4):
                rows = order[low : low + 4]
                z = X[rows] @ self.theta[:-1] + self.theta[-1]
                residual = (1 / (1 + np.exp(-z)) - y[rows]) * self.weights[y[rows]] / len(rows)
                self.step(np.append(residual @ X[rows] + self.decay * self.theta[:-1], residual.sum()))
        return self.theta

    def step(self, g: NDArray[np.float64]) -> None:
        self.t += 1
        self.v = 0.9 * self.v * (self.name == "momentum") + g
        self.m, self.s = 0.9 * self.m + 0.1 * g, 0.999 * self.s + 0.001 * g * g
        step = self.v
        if self.name == "adam":
            step = self.m / (1 - 0.9**self.t) / (np.sqrt(self.s / (1 - 0.999**self.t)) + 1e-8)
        self.theta = self.theta - 0.1 * step


def balanced(federation: Federation) -> NDArray[np.float64]:
    y = federation.y[pooled_rows(federation)]
    counts = np.bincount(y)
    return len(y) / (len(counts) * counts)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("actors", [1, 3])
def test_the_references_train_as_one_would_with_the_rows(federate: MakeFederation, optimizer: str, actors: int) -> None:
    """Shuffled mini-batches, weight decay, balanced classes, and one optimiser for all rounds."""
    federation = federate(SIZES)
    terms: dict[str, Any] = {"optimizer": optimizer, "decay": DECAY, "weights": "balanced", "epochs": 2, "rounds": 3}
    everything, weights = pooled_rows(federation), balanced(federation)
    pooled = Sequel(optimizer, np.zeros(4), DECAY, weights)
    hospitals = [Sequel(optimizer, np.zeros(4), DECAY, weights) for _ in SIZES]
    for t in range(1, 4):
        pooled.trained(federation.X[everything].astype(float), federation.y[everything], t, POOLED, 2)
        for h, alone in enumerate(hospitals):
            rows = federation.rows(h, "train")
            alone.trained(federation.X[rows].astype(float), federation.y[rows], t, h, 2)
    central = run(federation, job(federation, Centralized(), **terms), actors)
    np.testing.assert_allclose(central.models[0], pooled.theta, atol=1e-9)
    local = run(federation, job(federation, Local(), **terms), actors)
    for h, theta in local.own_models.items():
        np.testing.assert_allclose(theta, hospitals[h].theta, atol=1e-9)
    assert sorted(local.own_models) == [0, 2, 3]


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_federated_hospitals_begin_afresh(federate: MakeFederation, optimizer: str) -> None:
    federation = federate(SIZES)
    outcome = run(federation, job(federation, FedAvg(), optimizer=optimizer, decay=DECAY, rounds=3), 1)
    theta, shares = np.zeros(4), np.array(SIZES) / sum(SIZES)
    for t in range(1, 4):
        ends = []
        for h in range(len(SIZES)):
            rows = federation.rows(h, "train")
            fresh = Sequel(optimizer, theta, DECAY, np.ones(2))
            ends.append(fresh.trained(federation.X[rows].astype(float), federation.y[rows], t, h))
        theta = theta + shares @ (np.array(ends) - theta)
    np.testing.assert_allclose(outcome.models[0], theta, atol=1e-9)


def test_plain_sgd_has_nothing_to_carry(federate: MakeFederation) -> None:
    """A hospital's own model is all that it remembers, and of pooled rows nobody remembers anything."""
    federation = federate(SIZES)
    outcome = run(federation, job(federation, Centralized()), 1)
    assert outcome.own_models == {}


@pytest.mark.parametrize("weights", ["balanced", (0.5, 3.0)])
def test_losses_that_strategies_hear_are_those_that_are_minimised(federate: MakeFederation, weights: Any) -> None:
    """q-FedAvg with q = 1 weighs hospitals by their losses, so a wrong one shows in the model."""
    federation = federate([9, 5, 14])
    losses: list[NDArray[np.float64]] = []

    class Noted(QFedAvg):
        def aggregate(self, view: FederationView, state: State, update: Any) -> State:
            losses.append(update.losses)
            return super().aggregate(view, state, update)

    run(federation, job(federation, Noted(), weights=weights, rounds=1), 1)
    of_class = balanced(federation) if weights == "balanced" else np.array(weights)
    expected = [np.log(2) * of_class[federation.y[federation.rows(h, "train")]].mean() for h in range(3)]
    np.testing.assert_allclose(losses[0], expected)


def test_scaffolds_gradient_is_that_of_the_objective(federate: MakeFederation) -> None:
    """Option I after the second round: the full-batch gradient, with decay and weights, at what was received in it."""
    federation, received = federate([6, 5]), []

    class Noted(Scaffold):
        def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
            received.append(state.models[0])
            return super().problem(view, state, ids)

    weights = np.array([0.5, 3.0])
    made = job(federation, Noted(renew="gradient"), decay=DECAY, weights=(0.5, 3.0), rounds=2)
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    *_, standing = (event for event in JobRun(pool, made).events(1) if isinstance(event, RunState))
    theta = received[1]
    for h in range(2):
        rows = federation.rows(h, "train")
        X, y = federation.X[rows].astype(float), federation.y[rows]
        residual = (1 / (1 + np.exp(-(X @ theta[:-1] + theta[-1]))) - y) * weights[y] / len(y)
        gradient = np.append(residual @ X + DECAY * theta[:-1], residual.sum())
        np.testing.assert_allclose(standing.states[h][STORED + "variate"], gradient, atol=1e-9)


def test_balanced_weights_follow_from_label_counts(federate: MakeFederation) -> None:
    federation = federate(SIZES, classes=3)
    entries = {
        weights: [(t, kind, ids.tolist(), sent.tolist()) for t, kind, ids, sent, _ in outcome.ledger.entries if t == 0]
        for weights in ("none", "balanced")
        for outcome in [run(federation, job(federation, FedAvg(), weights=weights), 1)]
    }
    added = [entry for entry in entries["balanced"] if entry not in entries["none"]]
    assert added == [(0, "label_counts", [0, 1, 2, 3], [12] * 4)]


def test_weights_that_do_not_fit_are_refused(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    with pytest.raises(
        ConfigError, match=r"training.class_weights: \[1.0, 2.0, 3.0\] has 3 weights, but this label has 2"
    ):
        check_job(job(federation, FedAvg(), weights=(1.0, 2.0, 3.0)), federation)
