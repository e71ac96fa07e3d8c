"""FedAsync: the identity with one hospital, weights by hand, and a simulation of events in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.config.sections.system import SystemSection
from raysim.data.federation import Federation
from raysim.strategies.asynchronous.fedasync import FedAsync
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import All, Uniform
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.asynchronous.event_loop import simulated
from tests.strategies.contexts import hospital, view_of
from tests.strategies.test_identities import SIZES, assert_different, assert_same

SPEEDS = {"h0": 3.0, "h1": 1.0, "h2": 4.0, "h3": 1.5, "h4": 0.25, "h5": 2.0}
"""Rows per second."""

WEIGHTS = {
    "constant": lambda tau: 1.0,
    "polynomial": lambda tau: (tau + 1.0) ** -0.7,
    "hinge": lambda tau: 1.0 if tau <= 2 else 1.0 / (0.5 * (tau - 2) + 1.0),
}


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def speeds() -> SystemSection:
    return SystemSection.model_validate({"hospitals": {h: {"rows_per_second": v} for h, v in SPEEDS.items()}})


def test_one_hospital_and_whole_mixing_is_training_at_that_hospital(federate):
    alone = federate([12], [8])
    run = {"rounds": 4, "epochs": 2}
    whole = FedAsync(mixing=1.0, rho=0.0)
    outcome = run_strategy(alone, whole, **run)
    assert_same(outcome.models, run_strategy(alone, FedAvg(), **run).models)
    assert_same(outcome.models[0], run_strategy(alone, Local(), **run).own_models[0])
    assert_same(
        run_strategy(alone, FedAsync(mixing=1.0, rho=0.3), **run).models,
        run_strategy(alone, FedProx(mu=0.3), **run).models,
    )
    assert_different(outcome.models, run_strategy(alone, FedAsync(mixing=0.5, rho=0.0), **run).models)


def test_one_hospital_at_a_time_is_never_stale_and_mixes_the_delta(federation):
    """theta + alpha (theta_i - theta), a hospital after the other."""
    run = {"rounds": 5, "selection": Uniform(0.5, 2)}
    outcome = run_strategy(federation, FedAsync(mixing=0.4, rho=0.0, concurrency=1), **run)
    for kind in ("constant", "hinge"):
        same = FedAsync(mixing=0.4, rho=0.0, concurrency=1, staleness=kind)
        assert_same(outcome.models, run_strategy(federation, same, **run).models)


def test_nothing_is_mixed_in_without_mixing(federation):
    assert not run_strategy(federation, FedAsync(mixing=0.0), rounds=3).models.any()


@pytest.mark.parametrize("kind", WEIGHTS)
def test_it_is_the_papers_algorithm_on_a_simulation_of_events(kind, federation):
    weight, seconds = WEIGHTS[kind], 2 * np.array(SIZES) / np.array(list(SPEEDS.values()))

    def step(model, ready):
        ((_, new, age),) = ready
        alpha = 0.6 * weight(age)
        return (1 - alpha) * model + alpha * new

    expected, times, ages = simulated(federation, seconds, 17, 1, step, rate=0.3, epochs=2, rho=0.05)
    strategy = FedAsync(staleness=kind, exponent=0.7, slope=0.5, start=2, rho=0.05)
    run = {"rounds": 17, "epochs": 2, "batch_size": 0, "learning_rate": 0.3, "selection": All(), "system": speeds()}
    outcome = run_strategy(federation, strategy, **run)
    assert_same(outcome.models[0], expected)
    assert [row.virtual_seconds for row in outcome.rounds] == pytest.approx(times)
    assert [row.staleness for row in outcome.rounds] == [age[0] for age in ages]
    assert max(age[0] for age in ages) > 3, "the example has stale updates"
    assert_different(outcome.models[0], run_strategy(federation, strategy, **(run | {"system": None})).models[0])


def test_weights_by_hand():
    view = view_of([hospital([n, 0]) for n in (2, 3, 5)])
    object.__setattr__(view, "staleness", np.array([0, 3, 8]))
    ids, state = np.arange(3), FedAsync().setup(view)
    for how, expected in (
        ({"staleness": "constant"}, [0.6, 0.6, 0.6]),
        ({"staleness": "polynomial", "exponent": 0.5}, [0.6, 0.3, 0.2]),
        ({"staleness": "hinge", "slope": 10, "start": 4}, [0.6, 0.6, 0.6 / 41]),
    ):
        assert FedAsync(**how).problem(view, state, ids).upload.weight == pytest.approx(expected)


@pytest.mark.parametrize("bad", [{"mixing": 1.1}, {"staleness": "linear"}, {"exponent": -1}, {"rho": -1}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        FedAsync(**bad)


def test_nobody_trains_at_a_time_is_refused():
    with pytest.raises(ValueError, match=r"^concurrency: 0 is not at least 1"):
        FedAsync(concurrency=0)


def test_without_mu_the_objective_has_no_proximal_term():
    view = replace(view_of([hospital([1, 1])] * 2), staleness=np.array([0, 3]))
    assert FedAsync(rho=0.0).problem(view, None, np.array([1])).objective.proximal == ()
    (term,) = FedAsync(rho=0.25).problem(view, None, np.array([1])).objective.proximal
    assert term.weight == 0.25
