"""SCAFFOLD: identity 5, the mean of the variates, and two rounds by hand."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.messages.memory import STORED
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.scaffold import Scaffold, VariateState
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.strategies.test_identities import SIZES, assert_different, assert_same

WITH_AN_EMPTY_ONE = [9, 4, 0, 13, 7, 1, 6]


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def variates(federation: Federation, strategy: Scaffold, **settings) -> tuple[Outcome, list[tuple[np.ndarray, dict]]]:
    """The outcome, and after each round but the last the server's variate c and the hospitals' own."""
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    run = JobRun(pool, job_of(federation, strategy, **settings))
    seen = []
    for event in run.run():
        if isinstance(event, Outcome):
            return event, seen[:-1]
        standing = run.state_after_round()
        assert standing is not None
        variates_by_hospital = {h: stored[STORED + "variate"] for h, stored in (standing.states or {}).items()}
        assert isinstance(standing.state, VariateState)
        assert len(standing.state.models) == 1, "the models holds models and nothing else"
        seen.append((standing.state.variate, variates_by_hospital))
    raise AssertionError("a run ends with its outcome")


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("renew", ["steps", "gradient"])
def test_05_the_first_round_is_that_of_fedavg(weights, renew, federation):
    run = {"epochs": 3, "selection": Uniform(0.5, 2)}
    scaffold, fedavg = Scaffold(weights=weights, renew=renew), FedAvg(weights=weights)
    assert_same(
        run_strategy(federation, scaffold, rounds=1, **run).models[0],
        run_strategy(federation, fedavg, rounds=1, **run).models[0],
    )
    several = run_strategy(federation, scaffold, rounds=3, **run).models[0]
    assert_different(several, run_strategy(federation, fedavg, rounds=3, **run).models[0])


@pytest.mark.parametrize("renew", ["steps", "gradient"])
def test_05_one_full_batch_step_of_everybody_is_fedavg_in_every_round(renew, federation):
    run = {"rounds": 6, "batch_size": 0, "epochs": 1}
    fedavg = run_strategy(federation, FedAvg(weights="uniform"), **run)
    assert_same(run_strategy(federation, Scaffold(renew=renew), **run).models[0], fedavg.models[0])


@pytest.mark.parametrize("renew", ["steps", "gradient"])
def test_05_the_servers_variate_is_the_mean_of_all_hospitals_own(renew, federate):
    federation = federate(WITH_AN_EMPTY_ONE)
    run = {"rounds": 5, "epochs": 2, "selection": Uniform(0.4, 2)}
    _, seen = variates(federation, Scaffold(renew=renew), **run)
    assert len(seen) == 4
    for c, by_hospital in seen:
        assert_same(sum(by_hospital.values()) / len(WITH_AN_EMPTY_ONE), c)
        assert np.abs(c).max() > 1e-3
        assert 2 not in by_hospital
    assert len(seen[0][1]) < len(seen[-1][1]), "not everybody took part at once"


def gradient(federation: Federation, h: int, theta: np.ndarray) -> np.ndarray:
    """Of hospital ``h``'s mean log loss, by hand."""
    rows = federation.rows(h, "train")
    X = np.column_stack([federation.X[rows].astype(np.float64), np.ones(rows.stop - rows.start)])
    return X.T @ (1 / (1 + np.exp(-X @ theta)) - federation.y[rows]) / len(X)


@pytest.mark.parametrize("renew", ["steps", "gradient"])
@pytest.mark.parametrize("server_rate", [1.0, 0.4])
def test_rounds_by_hand(renew, server_rate, federation):
    """Algorithm 1 with full batches, K = 3 steps of .1 and everybody, in plain numpy."""
    steps, rate, n = 3, 0.1, len(SIZES)
    theta, c, local_variates = np.zeros(4), np.zeros(4), [np.zeros(4) for _ in range(n)]
    for _ in range(3):
        ends, renewed = [], []
        for h in range(n):
            y = theta.copy()
            for _ in range(steps):
                y = y - rate * (gradient(federation, h, y) - local_variates[h] + c)
            ends.append(y)
            by_steps = local_variates[h] - c + (theta - y) / (steps * rate)
            renewed.append(by_steps if renew == "steps" else gradient(federation, h, theta))
        c = c + sum(new - old for new, old in zip(renewed, local_variates, strict=True)) / n
        theta = theta + server_rate * (np.mean(ends, axis=0) - theta)
        local_variates = renewed
    strategy = Scaffold(renew=renew, server_rate=server_rate)
    run = {"epochs": steps, "learning_rate": rate, "batch_size": 0}
    assert_same(run_strategy(federation, strategy, rounds=3, **run).models, theta[None, :])
    _, seen = variates(federation, strategy, rounds=4, **run)
    assert_same(seen[-1][0], c)


def test_a_short_last_batch_is_a_step(federation):
    """Nine rows in batches of 4 are three steps: after one round c_i is the mean gradient of the steps taken."""
    _, ((c, _),) = variates(federation, Scaffold(), rounds=2, epochs=2, batch_size=4)
    fedavg = run_strategy(federation, FedAvg(weights="uniform"), rounds=1, epochs=2, batch_size=4)
    steps = 2 * -(-np.array(SIZES) // 4)
    ends = np.stack(
        [run_strategy(federation, _Only(h), rounds=1, epochs=2, batch_size=4).models[0] for h in range(len(SIZES))]
    )
    assert_same(ends.mean(axis=0), fedavg.models[0])
    assert_same(c, (-ends / (0.1 * steps[:, None])).mean(axis=0))


class _Only(FedAvg):
    """Federated averaging of one hospital."""

    hospital: int

    def __init__(self, hospital: int) -> None:
        super().__init__()
        object.__setattr__(self, "hospital", hospital)

    def select(self, view, state, round):
        return np.array([self.hospital])


@pytest.mark.parametrize("renew", ["steps", "gradient"])
def test_batch_statistics_have_no_variate(renew, federation):
    """They are averaged as parameters are, but no step subtracts anything from them."""
    module = ModelSpec(None, "tests.strategies.personal.test_shared_body.Deep", {}, "default")
    outcome, seen = variates(federation, Scaffold(renew=renew), rounds=3, model=module)
    assert outcome.layout.names[-2:] == ("body.1.running_mean", "body.1.running_var")
    for c, by_hospital in seen:
        assert (c[-8:] == 0).all()
        assert all((variate[-8:] == 0).all() for variate in by_hospital.values())
        assert (np.abs(c[:-8]) > 0).any()
    assert np.abs(outcome.models[0, -4:] - 1).max() > 1e-3


def test_both_vectors_travel_both_ways(federation):
    outcome = run_strategy(federation, Scaffold(), rounds=2, selection=Uniform(0.5, 2))
    size = outcome.layout.size
    assert [row.bytes_down for row in outcome.rounds] == [4 * 3 * 2 * size] * 2
    assert [row.bytes_up for row in outcome.rounds] == [4 * 3 * (2 * size + 1)] * 2
    assert not outcome.own_models, "a variate is not a model"


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_another_optimiser_than_plain_sgd_is_refused_before_anything_starts(optimizer, federation):
    check_job(job_of(federation, Scaffold()), federation)
    with pytest.raises(ConfigError, match=rf"^training\.optimizer: .*'{optimizer}'.*set sgd"):
        check_job(job_of(federation, Scaffold(), optimizer=optimizer), federation)


@pytest.mark.parametrize("bad", [{"server_rate": -1.0}, {"renew": "II"}, {"weights": "rows"}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        Scaffold(**bad)
