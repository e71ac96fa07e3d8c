"""What every registered strategy must pass, without exception by name."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from raysim.config.plugins import construct
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.job_checks import check_job
from raysim.strategies.base import OWN, Strategy
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import InverseSqrt, Uniform
from raysim.traffic.ledger import TO_EXPERIMENTER
from tests.conftest import MLP, MakeFederation, fitting, job_of, run, store, with_patients
from tests.equality import same_models

STRATEGIES = sorted(registry.entries("strategies"))
UNEVEN = [9, 4, 13, 0, 1, 6, 8]
SECOND_MOMENTS = {"hessian", "scores", "products"}
"""Kinds of arrays from which the rows of a small hospital can be computed."""
OTHERS = {
    *("choice", "coefficients", "continuous_features", "counts of values", "gradient", "group_counts", "group_sizes"),
    *("histograms", "intercepts", "label sums", "label_counts", "leaf sums", "local_centres", "local_mixture", "loss"),
    *("mean_patient", "metrics", "model", "nearest_shares", "pull", "rows", "signature", "size", "transfer_losses"),
    *("trees", "update", "variate"),
}


@pytest.fixture(params=STRATEGIES)
def strategy(request) -> Strategy:
    """With its defaults, but for a search of the number of clusters, which takes long and has tests of its own."""
    built = registry.load("strategies", request.param, "strategy.name")()
    assert isinstance(built, Strategy)
    return with_clusters(built, 3) if getattr(built, "clusters", 0) is None else built


@pytest.fixture
def federate(federate: MakeFederation) -> MakeFederation:
    return lambda *rows, **how: with_patients(federate(*rows, **how))


def run_strategy(federation: Federation, strategy: Strategy, *, actors: int = 1, **settings) -> Outcome:
    """As :func:`tests.conftest.run_strategy`, with a model that fits the strategy."""
    return run(federation, fitting(job_of(federation, strategy, **settings), federation), actors)


def with_clusters(strategy: Strategy, count: int) -> Strategy:
    """The strategy with so many clusters, if it has any: it refuses more than there are hospitals."""
    return dataclasses.replace(strategy, clusters=count) if hasattr(strategy, "clusters") else strategy


def same(a: Outcome, b: Outcome) -> None:
    """Equal to the last bit: models, what hospitals keep, figures, and training losses."""
    same_models(a, b)
    assert [row.training_loss for row in a.rounds] == [row.training_loss for row in b.rounds]


def test_it_is_an_immutable_value_with_documented_source(strategy):
    assert dataclasses.is_dataclass(strategy)
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.anything = 1
    module = __import__(type(strategy).__module__, fromlist=["x"])
    assert "raffic" in module.__doc__, "the docstring says what travels each round"


def test_it_derives_from_no_other_strategy(strategy):
    others = {registry.load("strategies", name, "strategy.name") for name in STRATEGIES} - {type(strategy)}
    assert len(others) == len(STRATEGIES) - 1
    assert not others & set(type(strategy).__mro__)


def test_weights_are_keys_at_its_own_level(strategy):
    if not hasattr(strategy, "weights"):
        assert not hasattr(strategy, "minimum_weight")
        return
    sizes, how = (
        np.array([98, 1, 1]),
        construct(type(strategy), {"weights": "floor", "minimum_weight": 0.1}, "strategy"),
    )
    np.testing.assert_allclose(how.weigh(sizes), np.array([0.98, 0.1, 0.1]) / 1.18)
    for key, value in (("weights", "rows"), ("minimum_weight", -0.5)):
        with pytest.raises(ConfigError, match=rf"^strategy\.{key}: "):
            construct(type(strategy), {key: value}, "strategy")


def rounds_of(outcome: Outcome, strategy: Strategy) -> int:
    """How many of three rounds were run: all, unless the strategy says when it is done."""
    assert outcome.rounds_run == 3 or type(strategy).done is not Strategy.done
    return outcome.rounds_run


def test_placement_changes_nothing(strategy, federate: MakeFederation):
    """On three actors, of which some have several hospitals; float32 rounds most."""
    federation = federate(UNEVEN, features=4)
    settings = {"selection": Uniform(0.6, 2), "rounds": 2, "epochs": 2, "precision": "float32"}
    same(*(run_strategy(federation, strategy, actors=each, **settings) for each in (1, 3)))


def test_the_seed_matters(strategy, federate: MakeFederation):
    """That it decides everything is seen where hospitals are placed in two ways."""
    federation = federate(UNEVEN, features=4)
    settings = {"selection": InverseSqrt(0.5, 2), "rounds": 2, "epochs": 2}
    first = run_strategy(federation, strategy, seed=3, **settings)
    if not any(row.cohort_size for row in first.rounds):
        return  # it trains in no round, so there are no hospitals or batches to draw
    if all(row.cohort_size == np.count_nonzero(UNEVEN) for row in first.rounds):
        with suppress(ConfigError):
            check_job(job_of(federation, strategy, model=MLP), federation)
            settings["model"] = MLP  # nobody is drawn, and perhaps no batch: what is drawn is how the model starts
        if "model" not in settings:
            return  # it fits linear models, exactly, so that nothing is drawn at all
        first = run_strategy(federation, strategy, seed=3, **settings)
    other = run_strategy(federation, strategy, seed=4, **settings)
    moved = [np.abs(first.models - other.models).max()] if first.models.shape == other.models.shape else [1.0]
    moved += [
        np.abs(theta - other.own_models[h]).max() for h, theta in first.own_models.items() if h in other.own_models
    ]
    assert max(moved) > 1e-6


def test_it_learns(strategy, federate: MakeFederation):
    federation = federate([60, 50, 40, 45, 30, 55], [30] * 6, features=4)
    outcome = run_strategy(federation, strategy, rounds=12, learning_rate=0.5, epochs=2)
    for model, metrics in outcome.metrics.items():
        assert metrics["auroc"] > 0.7, model


def test_hospitals_without_training_rows_are_served_and_never_sampled(strategy, federate: MakeFederation):
    federation = federate([8, 0, 9, 0, 7], [4, 6, 0, 5, 4])
    outcome = run_strategy(federation, with_clusters(strategy, 3), rounds=2)
    for figures in outcome.figures.values():
        assert figures[:, 0].tolist() == [4, 6, 0, 5, 4]
    kinds = {entry.kind for entry in outcome.ledger.entries}
    assert kinds <= SECOND_MOMENTS | OTHERS, "a new kind: can a hospital's rows be computed from it?"
    assert strategy.hides_sums() or not kinds & SECOND_MOMENTS
    trained = [ids for _, kind, ids, _, _ in outcome.ledger.entries if kind == "update"]
    assert not {1, 3} & {int(i) for ids in trained for i in ids}


def test_a_hospital_of_one_class_and_one_of_one_row_train_like_any_other(
    strategy, federate: MakeFederation, tmp_path: Path
):
    drawn = federate([6, 1, 9, 5, 8, 3], [4, 4, 4, 4, 4, 4])
    labels = drawn.y.copy()
    labels[drawn.rows(0, "train")] = 1
    labels[drawn.rows(2, "test")] = 0
    (tmp_path / "one-class").mkdir()
    federation = with_patients(store(tmp_path / "one-class", drawn.X, labels, drawn.bounds))
    outcome = run_strategy(federation, strategy, rounds=2)
    for metrics in outcome.metrics.values():
        assert metrics["undefined"] >= 1
    assert np.isfinite(outcome.models).all()
    assert all(np.isfinite(theta).all() for theta in outcome.own_models.values())


def test_rounds_are_counted_with_their_losses_and_traffic_and_models_that_exist_are_served(
    strategy, federate: MakeFederation
):
    outcome = run_strategy(federate(UNEVEN, features=4), strategy, rounds=3, selection=Uniform(0.5, 2))
    rounds = rounds_of(outcome, strategy)
    assert [row.round for row in outcome.rounds] == list(range(1, rounds + 1))
    if rounds:
        assert sorted(outcome.loss_curve) == list(range(rounds + 1)), "the loss is taken in every round and before"
        assert np.isfinite(list(outcome.loss_curve.values())).all()
        assert (outcome.convergence is None) == outcome.ended
    assert outcome.serve
    for model, rows in outcome.serve.items():
        assert len(rows) == len(UNEVEN), model
        assert set(rows.flat) <= {OWN, *range(len(outcome.models))}
        if rows.ndim == 2:
            assert outcome.clusters_of_patients is not None
            assert rows.shape == outcome.clusters_of_patients.shape, "a model for each group of patients"
    size = outcome.layout.size - (0 if outcome.private is None else int(outcome.private.sum()))
    for row in outcome.rounds:
        sent = [
            (kind, b) for t, kind, _, b, _ in outcome.ledger.entries if t == row.round and kind not in TO_EXPERIMENTER
        ]
        assert row.bytes_up == sum(int(b.sum()) for _, b in sent)
        updates = [(ids, b // 4) for t, kind, ids, b, _ in outcome.ledger.entries if (t, kind) == (row.round, "update")]
        for ids, scalars in updates:
            assert len(scalars) == row.cohort_size
            if outcome.called is not None:
                assert set(scalars.tolist()) == {2 * size}, "float64; the weight is of another kind"
            elif outcome.clusters_of_patients is None:
                # The vector without what is private, the number of rows, and for some the loss before training.
                assert set(scalars.tolist()) in ({size + 1}, {size + 2})
            else:
                # A vector for each cluster of its patients, whose numbers it has sent before.
                models = np.count_nonzero(outcome.clusters_of_patients[ids], axis=1)
                assert scalars.tolist() == (models * size).tolist()
        assert len(updates) <= 1


def test_a_federation_of_one_hospital(strategy, federate: MakeFederation):
    outcome = run_strategy(federate([12], [8]), with_clusters(strategy, 1), rounds=2)
    assert outcome.metrics


def test_several_classes(strategy, federate: MakeFederation):
    federation = federate([20, 15, 25, 18, 22], [10] * 5, classes=3)
    try:
        outcome = run_strategy(federation, strategy, rounds=6, learning_rate=0.5)
    except ConfigError as error:
        refusal = str(error)  # what it is not for, it says before anything starts
    else:
        refusal = "two classes"
        for metrics in outcome.metrics.values():
            assert metrics["accuracy"] > 0.4
    assert "two classes" in refusal


def test_the_least_that_is_allowed_is():
    strategy = FedProx(mu=0.0, mu_by_hospital={"one": 0.0}, straggler_epochs={"one": 0})
    assert strategy.mu_by_hospital == {"one": 0.0}
    with pytest.raises(ValueError, match=r"mu_by_hospital\.one"):
        FedProx(mu_by_hospital={"one": -0.1})


def test_references_train_everybody_whoever_is_selected():
    assert not Local().uses_selection()
    assert not Centralized().uses_selection()
