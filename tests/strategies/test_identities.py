"""Every strategy equals a simpler one at its neutral hyper-parameters.

The numbers in the names are rows of the identity table that the methods' definitions come with. All runs are float64;
equality is ``max|a - b| <= 1e-10 (1 + max|a|)``, which the rounding of exact sums (6e-14) stays far below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.strategies.base import State, Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.hospital_clusters.hierarchical import Hierarchical
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import InverseSqrt, Uniform
from raysim.strategies.shared.personalization import Personalization
from tests.conftest import MakeFederation, run_strategy, store

SIZES = [9, 4, 13, 7, 1, 6]


def assert_same(a: np.ndarray, b: np.ndarray) -> None:
    assert np.abs(a - b).max() <= 1e-10 * (1 + np.abs(a).max())


def assert_different(a: np.ndarray, b: np.ndarray) -> None:
    """The opposite of :func:`assert_same`, so that an identity is not kept by a run that does nothing."""
    assert np.abs(a - b).max() > 1e-6


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_01_full_participation_and_one_full_batch_step_is_gradient_descent_on_pooled_rows(federation):
    one_step = {"rounds": 5, "batch_size": 0}
    federated = run_strategy(federation, FedAvg(), **one_step)
    assert_same(federated.models, run_strategy(federation, Centralized(), **one_step).models)
    assert_same(federated.models[0], gradient_descent(federation, steps=5, rate=0.1))


def gradient_descent(federation: Federation, steps: int, rate: float) -> np.ndarray:
    """Logistic regression on all training rows by hand: gradient (sigmoid(z) - y) x, mean over rows."""
    rows = np.concatenate([np.arange(*federation.bounds[h, :2]) for h in range(len(federation.hospitals))])
    X, y = federation.X[rows].astype(np.float64), federation.y[rows]
    w, b = np.zeros(X.shape[1]), 0.0
    for _ in range(steps):
        residual = 1 / (1 + np.exp(-(X @ w + b))) - y
        w, b = w - rate * X.T @ residual / len(y), b - rate * residual.mean()
    return np.append(w, b)


def test_a_strategy_that_overrides_nothing_is_fedavg(federation):
    @dataclass(frozen=True)
    class Plain(Strategy):
        title: ClassVar[str] = "plain"

    run = {"rounds": 3, "selection": Uniform(0.5, 2)}
    assert_same(run_strategy(federation, Plain(), **run).models, run_strategy(federation, FedAvg(), **run).models)


def test_02_fedprox_with_mu_zero_or_one_full_batch_step_is_fedavg(federation):
    several = {"rounds": 4, "epochs": 3, "selection": Uniform(0.5, 1)}
    base = run_strategy(federation, FedAvg(), **several).models
    assert_same(run_strategy(federation, FedProx(mu=0.0), **several).models, base)
    assert_different(run_strategy(federation, FedProx(mu=0.5), **several).models, base)
    one_step = {"rounds": 4, "batch_size": 0}
    assert_same(
        run_strategy(federation, FedProx(mu=7.0), **one_step).models,
        run_strategy(federation, FedAvg(), **one_step).models,
    )


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_09_chip_with_one_cluster_is_fedprox_with_both_proximal_terms(federation, alpha):
    run = {"rounds": 4, "epochs": 2, "selection": InverseSqrt(0.5, 2)}
    chip = run_strategy(federation, Chip(clusters=1, lam=0.4, mu=0.3, alpha=alpha), **run)
    prox = run_strategy(federation, FedProx(mu=2 * (0.4 + 0.3)), **run)
    assert_same(chip.models[0], prox.models[0])
    assert_same(chip.models[1], prox.models[0])


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_10_chip_with_one_cluster_and_no_proximal_terms_is_fedavg(federation, alpha):
    run = {"rounds": 4, "epochs": 2, "selection": Uniform(0.5, 2)}
    chip = run_strategy(federation, Chip(clusters=1, lam=0.0, mu=0.0, alpha=alpha), **run)
    assert_same(chip.models[0], run_strategy(federation, FedAvg(), **run).models[0])


def test_11_chip_with_alpha_zero_has_equal_clusters_and_without_proximal_terms_is_fedavg(federation):
    run = {"rounds": 3, "epochs": 2}
    by_cluster = run_strategy(federation, Chip(clusters=3, alpha=0.0), **run).models
    for row in by_cluster[1:]:
        assert_same(row, by_cluster[0])
    free = run_strategy(federation, Chip(clusters=3, lam=0.0, mu=0.0, alpha=0.0), **run).models
    fedavg = run_strategy(federation, FedAvg(), **run).models
    assert_same(free[0], fedavg[0])
    assert_same(run_strategy(federation, Hierarchical(clusters=3), **run).models[0], fedavg[0])


def test_12_chip_with_alpha_one_and_no_proximal_terms_is_fedavg_inside_each_cluster(federation, tmp_path):
    run = {"rounds": 3, "epochs": 2}
    chip = run_strategy(federation, Chip(clusters=3, lam=0.0, mu=0.0, alpha=1.0), **run)
    clustered = run_strategy(federation, Clustered(clusters=3), **run)
    assert_same(chip.models[1:], clustered.models[1:])
    cluster = clustered.cluster
    assert cluster is not None
    assert set(cluster) == {1, 2, 3}
    for row in (1, 2, 3):
        alone = run_strategy(federation, _Only(tuple(np.flatnonzero(cluster == row))), **run)
        assert_same(clustered.models[row], alone.models[0])


class _Only(FedAvg):
    """Federated averaging among some hospitals, with the whole federation's streams."""

    ids: tuple[int, ...]

    def __init__(self, ids: tuple[int, ...]) -> None:
        super().__init__()
        object.__setattr__(self, "ids", ids)

    def select(self, view, state, round):
        return np.array(self.ids)


def test_13_the_global_model_of_chip_is_the_mean_of_its_clusters_by_rows(federation):
    outcome = run_strategy(federation, Chip(clusters=3, alpha=0.7), rounds=5, selection=Uniform(0.3, 1))
    assert outcome.cluster is not None
    rows = np.bincount(outcome.cluster - 1, weights=SIZES)
    assert_same((rows / rows.sum()) @ outcome.models[1:], outcome.models[0])


def test_28_fine_tuning_without_rate_or_epochs_changes_nothing(federation):
    for how in (Personalization(epochs=3, learning_rate=0.0), Personalization(epochs=0)):
        outcome = run_strategy(federation, FineTuning(personalization=how))
        for theta in outcome.own_models.values():
            assert_same(theta, outcome.models[0])
    tuned = run_strategy(federation, FineTuning(personalization=Personalization(epochs=2, learning_rate=0.1)))
    assert_different(tuned.own_models[2], tuned.models[0])


def test_29_two_identical_hospitals_are_one_with_its_rows_doubled(tmp_path):
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    ya, yb = np.array([0, 1, 1, 0, 1, 0]), np.array([1, 0, 0, 1])
    folders = [tmp_path / "split", tmp_path / "doubled"]
    for folder in folders:
        folder.mkdir()
    # One test row at the last hospital is enough to evaluate.
    split = store(
        folders[0], np.vstack([a, a, b]), np.r_[ya, ya, yb], [[0, 6, 6, 6], [6, 12, 12, 12], [12, 15, 15, 16]]
    )
    doubled = store(folders[1], np.vstack([a, a, b]), np.r_[ya, ya, yb], [[0, 12, 12, 12], [12, 15, 15, 16]])
    run = {"rounds": 4, "epochs": 3, "batch_size": 0}
    assert_same(run_strategy(split, FedAvg(), **run).models, run_strategy(doubled, FedAvg(), **run).models)


def test_a_federation_of_one_hospital_is_that_hospital_alone(federate):
    federation = federate([11], [6])
    run = {"rounds": 3, "epochs": 2}
    assert_same(
        run_strategy(federation, FedAvg(), **run).models[0], run_strategy(federation, Local(), **run).own_models[0]
    )


def test_weights_with_a_floor_above_one_are_uniform(federation):
    floor = run_strategy(federation, FedAvg(weights="floor", minimum_weight=1.0)).models
    assert_same(floor, run_strategy(federation, FedAvg(weights="uniform")).models)
    assert_same(
        run_strategy(federation, FedAvg(weights="floor", minimum_weight=0.0)).models,
        run_strategy(federation, FedAvg()).models,
    )
    assert_different(floor, run_strategy(federation, FedAvg()).models)


def test_chip_on_a_quadratic_reaches_the_closed_form():
    """``theta_E = theta* + (1 - eta a)^E (theta_k - theta*)`` with ``a = 1 + 2 lam + 2 mu``; golden number."""
    from raysim.strategies.shared.clustering import cluster_problem

    state = State(models=np.array([[-0.4], [0.2]]), cluster=np.array([1]))

    class View:
        sizes = np.array([3])

    problem = cluster_problem(View(), state, np.array([0]), lam=0.5, mu=0.05)
    theta = state.models[problem.start[0]].copy()
    for _ in range(7):
        gradient = theta - 1.3
        for term in problem.objective.proximal:
            gradient = gradient + term.weight * (theta - state.models[term.towards[0]])
        theta = theta - 0.1 * gradient
    assert theta[0] == pytest.approx(0.6001330221637841, abs=1e-15)
    assert problem.upload.weight == pytest.approx([1.0])


def test_streams_depend_on_their_key_alone():
    a, b = stream(1, "batch", 3, 7, 0), stream(1, "batch", 3, 7, 0)
    assert a.integers(2**40) == b.integers(2**40)
    others = [stream(2, "batch", 3, 7, 0), stream(1, "sample", 3, 7, 0), stream(1, "batch", 7, 3, 0)]
    draws = {int(rng.integers(2**40)) for rng in [stream(1, "batch", 3, 7, 0), *others]}
    assert len(draws) == 4


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_training_alone_goes_on_where_it_stopped(federation, optimizer):
    """Rounds of an epoch are epochs of a round: an optimiser's moments stay with the hospital."""
    run = {"batch_size": 0, "optimizer": optimizer}
    rounds = run_strategy(federation, Local(), rounds=4, epochs=1, **run).own_models
    epochs = run_strategy(federation, Local(), rounds=1, epochs=4, **run).own_models
    assert rounds.keys() == epochs.keys()
    for h in epochs:
        assert_same(rounds[h], epochs[h])
