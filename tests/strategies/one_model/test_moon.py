"""MOON: identity 6, and a round of two by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.moon import Moon
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.strategies.contexts import hospital, view_of
from tests.strategies.personal.test_ditto import cohorts
from tests.strategies.test_identities import SIZES, assert_different, assert_same

MLP = ModelSpec("mlp", None, {"hidden": [5]}, "default")
RUN = {"epochs": 2, "model": MLP}


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_without_mu_there_is_no_contrast():
    view = view_of([hospital([1, 1])])
    contrasts = [Moon(mu=mu).problem(view, Moon().setup(view), np.array([0])).objective.contrast for mu in (0.0, 0.5)]
    assert contrasts[0] is None
    assert contrasts[1] == (0.5, 0.5)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_06_without_mu_it_is_fedavg(weights, federation):
    run = RUN | {"rounds": 4, "selection": Uniform(0.5, 2)}
    fedavg = run_strategy(federation, FedAvg(weights=weights), **run)
    assert_same(run_strategy(federation, Moon(mu=0.0, weights=weights), **run).models, fedavg.models)
    assert_different(run_strategy(federation, Moon(mu=5.0, weights=weights), **run).models, fedavg.models)


@pytest.mark.parametrize(
    "model", [MLP, ModelSpec(None, "tests.strategies.personal.test_shared_body.Deep", {}, "default")]
)
def test_06_the_first_participation_is_that_of_fedavg(model, federation):
    """Not the first round alone: who is drawn for the first time later has no model of its own either."""
    run = RUN | {"selection": Uniform(0.3, 2), "model": model}
    rounds = next(t for t in range(1, 20) if repeats(run_strategy(federation, FedAvg(), rounds=t, **run)))
    assert rounds > 1
    fresh = {"rounds": rounds - 1, **run}
    assert_same(
        run_strategy(federation, Moon(mu=5.0), **fresh).models, run_strategy(federation, FedAvg(), **fresh).models
    )
    again = {"rounds": rounds, **run}
    assert_different(
        run_strategy(federation, Moon(mu=5.0), **again).models, run_strategy(federation, FedAvg(), **again).models
    )


def repeats(outcome) -> bool:
    seen = [h for _, ids in cohorts(outcome) for h in ids]
    return len(set(seen)) < len(seen)


def test_two_rounds_by_autograd(federation):
    """Full batches of everybody, two steps a round, with the loss as the paper writes it."""
    mu, tau, rate = 3.0, 0.4, 0.2
    run = RUN | {"batch_size": 0, "learning_rate": rate}
    start = run_strategy(federation, FedAvg(), rounds=0, **run)
    shapes, theta = start.layout, start.models[0]
    previous = {}
    for _ in range(2):
        received, ends = theta, []
        for h in range(len(SIZES)):
            rows = federation.rows(h, "train")
            X, y = torch.from_numpy(federation.X[rows].astype(np.float64)), torch.from_numpy(federation.y[rows].copy())

            def below(vector, X=X):
                parts = shapes.split(vector)
                return (X @ parts["layers.0.weight"].T + parts["layers.0.bias"]).relu(), parts

            with torch.no_grad():
                z_glob, z_prev = (below(torch.from_numpy(v))[0] for v in (received, previous.get(h, received)))
            y_theta = torch.from_numpy(received.copy())
            for _ in range(2):
                y_theta.requires_grad_(True)
                z, parts = below(y_theta)
                entropy = torch.nn.functional.cross_entropy(z @ parts["layers.1.weight"].T + parts["layers.1.bias"], y)
                alike = torch.cosine_similarity(z, z_glob, dim=1, eps=1e-8) / tau
                unlike = torch.cosine_similarity(z, z_prev, dim=1, eps=1e-8) / tau
                con = torch.nn.functional.cross_entropy(torch.stack([alike, unlike], 1), torch.zeros(len(y)).long())
                (slope,) = torch.autograd.grad(entropy + mu * con, y_theta)
                y_theta = (y_theta - rate * slope).detach()
            previous[h] = y_theta.numpy()
            ends.append(previous[h])
        theta = np.average(ends, axis=0, weights=SIZES)
    outcome = run_strategy(federation, Moon(mu=mu, temperature=tau), rounds=2, **run)
    assert_same(outcome.models[0], theta)
    assert_different(outcome.models[0], run_strategy(federation, FedAvg(), rounds=2, **run).models[0])
    for h, stored in previous.items():
        assert_same(outcome.own_models[h], stored)


def test_only_the_global_model_serves_and_travels(federation):
    run = RUN | {"rounds": 3, "selection": Uniform(0.5, 2)}
    outcome, fedavg = run_strategy(federation, Moon(), **run), run_strategy(federation, FedAvg(), **run)
    assert set(outcome.serve) == {"global"}
    for name in ("bytes_down", "bytes_up"):
        assert [getattr(row, name) for row in outcome.rounds] == [getattr(row, name) for row in fedavg.rounds]


@pytest.mark.parametrize("model", [None, ModelSpec("mlp", None, {"hidden": []}, "default")])
def test_a_model_of_one_layer_is_refused_before_anything_starts(model, federation):
    with pytest.raises(ConfigError, match=r"^model: .*single layer"):
        check_job(job_of(federation, Moon(), model=model), federation)
    check_job(job_of(federation, Moon(), model=MLP), federation)


@pytest.mark.parametrize("bad", [{"mu": -1.0}, {"temperature": 0.0}, {"temperature": -1.0}, {"weights": "rows"}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        Moon(**bad)
