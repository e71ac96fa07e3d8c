"""Momentum and adaptive servers: identities 3 and 4, and movements that follow from the update rules by hand."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.data.federation import Federation
from raysim.strategies.base import Strategy, Update
from raysim.strategies.one_model.adaptive import FedAdagrad, FedAdam, FedYogi
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedavgm import FedAvgM
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.test_identities import SIZES, assert_different, assert_same

ADAPTIVE = (FedAdagrad, FedAdam, FedYogi)
D = np.array([0.5, -2.0, 0.0, 1e-3])


class View:
    """Enough of a federation to set up a server."""

    initial = np.array([1.0, -1.0, 0.25, 0.0])


def moved(strategy: Strategy, *deltas: np.ndarray) -> np.ndarray:
    """How far the global model moves in rounds with these averaged deltas."""
    state = strategy.setup(View())
    for delta in deltas:
        state = strategy.aggregate(View(), state, Update(np.array([0]), delta[None, :]))
    return state.models[0] - View.initial


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_03_fedavgm_without_momentum_or_in_the_first_round_is_fedavg(federation):
    run = {"rounds": 4, "epochs": 2, "selection": Uniform(0.5, 1)}
    fedavg = run_strategy(federation, FedAvg(), **run).models
    assert_same(run_strategy(federation, FedAvgM(momentum=0.0), **run).models, fedavg)
    assert_different(run_strategy(federation, FedAvgM(momentum=0.9), **run).models, fedavg)
    run["rounds"] = 1
    assert_same(
        run_strategy(federation, FedAvgM(momentum=0.9), **run).models, run_strategy(federation, FedAvg(), **run).models
    )


def test_04_fedyogi_is_fedadam_in_the_first_round(federation):
    yogi, adam = FedYogi(server_learning_rate=0.1, tau=0.01), FedAdam(server_learning_rate=0.1, tau=0.01)
    run = {"rounds": 1, "epochs": 2}
    assert_same(run_strategy(federation, yogi, **run).models, run_strategy(federation, adam, **run).models)
    run["rounds"] = 4
    assert_different(run_strategy(federation, yogi, **run).models, run_strategy(federation, adam, **run).models)


def test_fedyogi_differs_from_fedadam_in_the_first_round_where_the_accumulator_starts_above_zero():
    how = {"server_learning_rate": 0.1, "tau": 0.01, "initial_accumulator": "tau2"}
    assert_different(moved(FedYogi(**how), D), moved(FedAdam(**how), D))


@pytest.mark.parametrize("beta", [0.0, 0.7, 0.99])
def test_a_constant_delta_makes_fedavgm_gather_speed(beta):
    """After t rounds the model moved by ``D * sum_{r=1..t} (1 - beta^r) / (1 - beta)``."""
    expected = D * sum((1 - beta**r) / (1 - beta) for r in range(1, 8))
    assert_same(moved(FedAvgM(momentum=beta), *[D] * 7), expected)


def test_the_first_round_of_fedadagrad():
    assert_same(moved(FedAdagrad(server_learning_rate=0.3, tau=0.1), D), 0.3 * D / (np.abs(D) + 0.1))


def test_fedadam_without_memory_or_tau_moves_by_the_sign():
    adam = FedAdam(server_learning_rate=0.2, beta_1=0.0, beta_2=0.0, tau=0.0)
    assert_same(moved(adam, D, -3.0 * D, D), 0.2 * np.sign(D))


@pytest.mark.parametrize("method", ADAPTIVE)
def test_a_huge_tau_is_fedavg_with_a_server_rate(method):
    """``eta = c tau`` and ``tau -> infinity`` without momentum: to c times the delta."""
    adaptive = method(server_learning_rate=0.5e8, beta_1=0.0, tau=1e8)
    assert moved(adaptive, D, 2 * D) == pytest.approx(0.5 * 3 * D, rel=1e-6)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_nothing_divided_by_nothing_does_not_move(method):
    assert moved(method(tau=0.0), np.zeros(4)).tolist() == [0.0] * 4


def test_three_rounds_by_hand():
    """The rules written out for one coordinate with deltas 1, -2, .5 and b1 = .9, b2 = .99, tau = .1, eta = .3."""
    deltas = [1.0, -2.0, 0.5]
    by_name: dict[str, float] = {}
    for name in ("adagrad", "adam", "yogi", "flower"):
        theta, m, v = 0.0, 0.0, 0.1**2
        for r, d in enumerate(deltas, start=1):
            m = 0.9 * m + 0.1 * d
            if name == "adagrad":
                v = v + d * d
            elif name == "yogi":
                v = v - 0.01 * d * d * np.sign(v - d * d)
            else:
                v = 0.99 * v + 0.01 * d * d
            rate = 0.3
            if name == "flower":
                rate *= np.sqrt(1 - 0.99 ** (r + 1)) / (1 - 0.9 ** (r + 1))
            theta += rate * m / (np.sqrt(v) + 0.1)
        by_name[name] = theta
    how = {"server_learning_rate": 0.3, "beta_1": 0.9, "tau": 0.1, "initial_accumulator": "tau2"}
    made = {
        "adagrad": FedAdagrad(**how),
        "adam": FedAdam(beta_2=0.99, **how),
        "yogi": FedYogi(beta_2=0.99, **how),
        "flower": FedAdam(beta_2=0.99, bias_correction="flower", **how),
    }
    for name, strategy in made.items():
        steps = [np.array([d, 0.0, 0.0, 0.0]) for d in deltas]
        assert moved(strategy, *steps)[0] == pytest.approx(by_name[name], rel=1e-12), name


@pytest.mark.parametrize("method", [FedAvgM, *ADAPTIVE])
def test_a_round_without_participants_leaves_the_server_as_it_was(method, federation):
    """Rounds 2 and 3 have no cohort; the state of round 1 is what round 4 starts from."""
    seen = []

    class Idle(method):
        def select(self, view, state, round):
            seen.append(state)
            return view.trainable if round in (1, 4) else np.empty(0, dtype=np.int64)

    outcome = run_strategy(federation, Idle(), rounds=4)
    assert seen[1] is seen[2] is seen[3]
    assert seen[1] is not seen[0]
    assert_different(outcome.models, seen[3].models)


@pytest.mark.parametrize("method", [FedAvgM, *ADAPTIVE])
def test_uniform_weights_count_every_participant_alike(method, federation):
    by_rows = run_strategy(federation, method(), rounds=2).models
    assert_different(run_strategy(federation, method(weights="uniform"), rounds=2).models, by_rows)
    assert_same(run_strategy(federation, method(weights="floor", minimum_weight=0.0), rounds=2).models, by_rows)


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        (FedAvgM, {"momentum": 1.0}),
        (FedAvgM, {"server_learning_rate": -1.0}),
        (FedAvgM, {"server_learning_rate": np.inf}),
        (FedAvgM, {"minimum_weight": np.inf, "weights": "floor"}),
        (FedAdagrad, {"tau": -0.1}),
        (FedAdam, {"beta_1": -0.1}),
        (FedAdam, {"bias_correction": "paper"}),
        (FedYogi, {"beta_2": 1.5}),
        (FedYogi, {"initial_accumulator": "one"}),
        (FedYogi, {"weights": "rows"}),
    ],
)
def test_impossible_settings_are_refused_by_name(method, bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        method(**bad)
