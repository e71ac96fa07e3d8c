"""FedGMC, CBFL and k-FED: identity 17, clusters that are there to be found, what is sent, and bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.strategies.base import GroupSizes
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.patient_clusters.cbfl import Cbfl, MeanPatient
from raysim.strategies.patient_clusters.continuous import MoreThanTwoValues, clustered_columns
from raysim.strategies.patient_clusters.fedgmc import FedGmc
from raysim.strategies.patient_clusters.gaussian_mixtures import Mixture
from raysim.strategies.patient_clusters.kfed import KFed
from raysim.strategies.selections.sampling import All, Uniform
from tests.conftest import MakeFederation, run_strategy, store
from tests.strategies.contexts import hospital, sent, view_of
from tests.strategies.test_identities import SIZES, assert_different, assert_same

METHODS = [FedGmc, Cbfl, KFed]
RUN = {"rounds": 3, "epochs": 2, "batch_size": 4}
CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def type_of(X: np.ndarray) -> np.ndarray:
    """The nearest of ``CENTRES``, by the first two columns."""
    return np.linalg.norm(X[:, None, :2] - CENTRES, axis=2).argmin(axis=1)


def typed(folder: Path, shares: list[list[float]], train: int = 60, test: int = 40) -> Federation:
    """Hospitals with these shares of three types of patients, marked by two features; for each type another of two
    further features decides the label, or the first of them the other way round. The last feature is binary.
    """
    rng = np.random.default_rng(3)
    X, y = [], []
    for share in shares:
        n = train + test
        kind = rng.choice(3, n, p=share)
        rows = np.column_stack([CENTRES[kind] + rng.normal(size=(n, 2)), rng.normal(size=(n, 2)), rng.random(n) < 0.5])
        score = np.choose(kind, [rows[:, 2], rows[:, 3], -rows[:, 2]])
        X.append(rows)
        y.append(score + 0.3 * rng.normal(size=n) > 0)
    starts = np.arange(len(shares)) * (train + test)
    bounds = np.column_stack([starts, starts + train, starts + train, starts + train + test])
    folder.mkdir()
    return store(folder, np.concatenate(X), np.concatenate(y).astype(int), bounds)


MIXED = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]


@pytest.mark.parametrize("method", METHODS)
def test_17_one_cluster_is_fedavg_to_the_last_bit(method, federation):
    for selection in (All(), Uniform(0.5, 2)):
        run = RUN | {"selection": selection}
        one, fedavg = run_strategy(federation, method(clusters=1), **run), run_strategy(federation, FedAvg(), **run)
        np.testing.assert_array_equal(one.models, np.repeat(fedavg.models, 2, axis=0))
        np.testing.assert_array_equal(one.figures["cluster"], fedavg.figures["global"])
    assert_different(run_strategy(federation, method(clusters=2), **run).models[1], fedavg.models[0])


def test_one_cluster_that_shares_is_fedprox(federation):
    run = RUN | {"rounds": 4, "selection": Uniform(0.5, 2)}
    one = run_strategy(federation, FedGmc(clusters=1, lam=0.4, mu=0.3, alpha=0.6), **run)
    assert_same(one.models[1], run_strategy(federation, FedProx(mu=2 * (0.4 + 0.3)), **run).models[0])


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_row_0_is_the_mean_of_all_clusters_and_alpha_draws_them_to_it(alpha, federation):
    outcome = run_strategy(federation, FedGmc(clusters=3, alpha=alpha), **RUN)
    assert outcome.clusters_of_patients is not None
    rows = outcome.clusters_of_patients.sum(axis=0)
    assert_same(rows @ outcome.models[1:] / rows.sum(), outcome.models[0])
    spread = np.abs(outcome.models[1:] - outcome.models[0]).max()
    assert spread == 0 if alpha == 0 else spread > 1e-3
    plain = run_strategy(federation, FedGmc(clusters=3), **RUN)
    if alpha == 1:
        np.testing.assert_array_equal(outcome.models, plain.models)


def test_a_proximal_term_towards_the_mean_costs_each_hospital_one_more_model_down(federation):
    plain, sharing = (run_strategy(federation, FedGmc(clusters=2, mu=mu), **RUN) for mu in (0.0, 0.5))
    assert plain.rounds[0].bytes_down + 4 * 4 * len(SIZES) == sharing.rounds[0].bytes_down
    assert plain.clusters_of_patients is not None
    assert plain.rounds[0].bytes_down == 4 * 4 * np.count_nonzero(plain.clusters_of_patients)
    assert plain.rounds[0].bytes_up == sharing.rounds[0].bytes_up
    assert_different(plain.models[1], sharing.models[1])


@pytest.mark.parametrize("method", METHODS)
def test_patient_clusters_that_matter_are_found_and_pay(method, tmp_path):
    """Labels contradict each other between types of patients, who differ in other features."""
    federation = typed(tmp_path / "typed", MIXED)
    run = {"rounds": 15, "epochs": 2, "batch_size": 16, "learning_rate": 0.3}
    outcome, fedavg = run_strategy(federation, method(), **run), run_strategy(federation, FedAvg(), **run)
    if method is not Cbfl:  # the means of hospitals do not tell types apart
        assert outcome.facts == {"patient_clusters": 3, "patient_clusters_found": 3}
        kinds = type_of(federation.X)
        for h, rows in enumerate(outcome.clusters_of_patients):
            there = np.bincount(kinds[federation.rows(h, "train")], minlength=3)
            assert sorted(rows) == sorted(there)
    gain = outcome.metrics["cluster"]["auroc"] - fedavg.metrics["global"]["auroc"]
    assert gain > (0.1 if method is not Cbfl else 0.0)
    assert fedavg.metrics["global"]["auroc"] < 0.85
    if method is not Cbfl:
        assert outcome.metrics["cluster"]["auroc"] > 0.9


@pytest.mark.parametrize(
    ("strategy", "kind", "scalars"),
    [
        (FedGmc(clusters=2), "local_mixture", lambda k: k * (1 + 4 + 4 * 5 // 2)),
        (Cbfl(clusters=2), "mean_patient", lambda k: 4),
        (KFed(clusters=2), "local_centres", lambda k: k * 4),
    ],
)
def test_statistics_that_are_sent_once(strategy, kind, scalars, tmp_path):
    """One bit of each column, the summary of the four continuous ones, and how many rows are in each cluster."""
    federation = typed(tmp_path / "typed", MIXED, train=20, test=5)
    outcome = run_strategy(federation, strategy, rounds=1)
    scalars_by_kind = {name: sent // 4 for t, name, _, sent, _ in outcome.ledger.entries if t == 0}
    assert list(scalars_by_kind) == ["size", "continuous_features", kind, "group_sizes", "metrics"]
    assert set(scalars_by_kind["continuous_features"].tolist()) == {5}
    assert set(scalars_by_kind["group_sizes"].tolist()) == {2}
    assert set(scalars_by_kind[kind].tolist()) <= {scalars(k) for k in (1, 2, 3, 4)}


def test_features_all_with_values_need_no_hospital(tmp_path):
    federation = typed(tmp_path / "typed", MIXED, train=20, test=5)
    outcome = run_strategy(federation, FedGmc(features="values", clusters=2), rounds=1)
    assert "continuous_features" not in {kind for _, kind, _, _, _ in outcome.ledger.entries}


def test_more_than_two_values_are_counted_where_they_were_recorded():
    X = np.array([[0, 0, 1, 5, 0], [1, 0, 1, 6, 0], [1, 3, 1, 7, 0], [0, 1, 1, 8, 1.0]])
    observed = np.ones((4, 4), dtype=bool)
    observed[1:3, 3] = False
    rows = hospital([2, 2], X, observed)
    assert sent(MoreThanTwoValues((4,)), rows).tolist() == [0, 1, 0, 0], "the fifth column is a flag"
    nobody = hospital([0, 0], np.empty((0, 5)), np.empty((0, 4), dtype=bool))
    assert sent(MoreThanTwoValues((4,)), nobody).tolist() == [0, 0, 0, 0]


# --- Virtual patients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["per_component", "per_hospital", "proportional"])
def test_virtual_patients_are_shared_out(how):
    mixtures = [
        Mixture(np.array([0.75, 0.25]), np.array([[0.0], [100.0]]), np.ones((2, 1, 1))),
        Mixture(np.ones(1), np.array([[200.0]]), np.ones((1, 1, 1))),
        Mixture(np.ones(1), np.array([[300.0]]), np.ones((1, 1, 1))),
    ]
    view = view_of([hospital([15, 15]), hospital([0, 0]), hospital([5, 5]), hospital([5, 4])])
    points = FedGmc(virtual=how, samples=8)._patients(view, mixtures)
    counts = {"per_component": [8, 8, 8, 8], "per_hospital": [6, 2, 8, 8], "proportional": [15, 5, 6, 6]}[how]
    assert np.bincount((points[:, 0] / 100).round().astype(int)).tolist() == counts
    expected = [
        mean + stream(1, "virtual", i, c).normal(size=n)
        for (i, c, mean), n in zip([(0, 0, 0.0), (0, 1, 100.0), (2, 0, 200.0), (3, 0, 300.0)], counts, strict=True)
    ]
    np.testing.assert_allclose(points[:, 0], np.concatenate(expected))


# --- Patients of clusters without training rows -----------------------------------------------------------------------


def test_a_cluster_without_training_rows_is_left_out(tmp_path):
    """CBFL's centre at the mean of hospitals with patients on both sides has no patient near it."""
    X = np.concatenate([np.tile([[-10.0], [10.0]], (10, 1)), np.full((20, 1), -10.0), np.full((20, 1), 10.0)])
    X += np.random.default_rng(0).normal(scale=0.1, size=X.shape)
    y = np.arange(60) % 2
    bounds = [[0, 12, 12, 20], [20, 32, 32, 40], [40, 52, 52, 60]]
    (tmp_path / "sides").mkdir()
    federation = store(tmp_path / "sides", X, y, np.array(bounds))
    outcome = run_strategy(federation, Cbfl(clusters=3), rounds=2)
    assert outcome.facts == {"patient_clusters": 2, "patient_clusters_found": 3}
    assert outcome.models.shape[0] == 3
    assert outcome.clusters_of_patients is not None
    assert outcome.clusters_of_patients.tolist() == [[6, 6], [12, 0], [0, 12]]
    assert np.isfinite(outcome.figures["cluster"][:, 4]).all(), "every test patient is served"


# --- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_fewer_patients_than_components_constant_features_and_one_class(method, tmp_path):
    """Hospitals of 1, 2, 3 and 5 rows, one whose rows are all alike, one of one class; a feature that never varies."""
    rng = np.random.default_rng(7)
    train, test = [1, 2, 3, 5, 8, 12, 0], [2, 2, 2, 2, 2, 4, 3]
    stops = np.cumsum([[a, 0, b] for a, b in zip(train, test, strict=True)])
    bounds = np.column_stack([np.concatenate([[0], stops.reshape(-1, 3)[:-1, 2]]), stops.reshape(-1, 3)])
    X = rng.normal(size=(stops[-1], 4))
    X[:, 1] = 0.0
    X[bounds[4, 0] : bounds[4, 1]] = X[bounds[4, 0]]
    y = (rng.random(len(X)) < 0.5).astype(int)
    y[bounds[5, 0] : bounds[5, 1]] = 1
    (tmp_path / "odd").mkdir()
    federation = store(tmp_path / "odd", X, y, bounds)
    for features in ("continuous", "values"):
        outcome: Outcome = run_strategy(federation, method(features=features), **RUN)
        assert np.isfinite(outcome.models).all()
        assert outcome.clusters_of_patients is not None
        assert outcome.clusters_of_patients.sum(axis=1).tolist() == train
        assert (outcome.figures["cluster"][:, 0] == test).all()


@pytest.mark.parametrize("method", METHODS)
def test_without_a_continuous_feature_there_is_a_remedy(method, federate, tmp_path):
    drawn = federate([20, 15, 18], [5, 5, 5])
    (tmp_path / "binary").mkdir()
    federation = store(tmp_path / "binary", drawn.X > 0, drawn.y, drawn.bounds)
    with pytest.raises(ConfigError, match=r"^strategy\.features: continuous, but no feature .* set features: values"):
        run_strategy(federation, method(), rounds=1)
    assert run_strategy(federation, method(features="values"), rounds=1).metrics


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", [[12], [12, 9], [12, 9, 11]])
def test_few_hospitals(method, sizes, federate):
    assert np.isfinite(run_strategy(federate(sizes), method(), rounds=1).models).all()


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        *((method, bad) for method in METHODS for bad in ({"clusters": 0}, {"features": "all"})),
        *((FedGmc, bad) for bad in ({"virtual": "many"}, {"samples": 0}, {"lam": -1}, {"mu": -1}, {"alpha": 1.5})),
        (KFed, {"local_clusters": 0}),
    ],
)
def test_impossible_settings_are_refused_by_name(method, bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        method(**bad)


def test_all_columns_that_hold_values_or_those_of_more_than_two():
    """Four columns at two hospitals: the second takes three values at the first alone, the fourth is a flag."""
    X = np.array([[0.0, 1.0, 5.0, 1.0], [1.0, 2.0, 5.0, 0.0], [1.0, 3.0, 5.0, 1.0]])
    view = view_of([hospital([2, 1], X, np.ones((3, 3), bool)), hospital([1, 1], X[:2], np.ones((2, 3), bool))])
    assert clustered_columns(view, "values").tolist() == [0, 1, 2]
    assert clustered_columns(view, "continuous").tolist() == [1]
    with pytest.raises(ValueError, match=r"^features: continuous, but no feature takes more than two values"):
        clustered_columns(view_of([hospital([1, 1], X[:2], np.ones((2, 3), bool))]), "continuous")


def test_the_mean_patient_is_of_the_columns_that_the_hospital_receives():
    two = hospital([1, 1], np.array([[1.0, 2.0, 9.0], [3.0, 6.0, 9.0]]))
    assert sent(MeanPatient((2,)), replace(two, given={"columns": np.array([0, 1])})).tolist() == [2.0, 4.0]


def test_a_division_that_does_not_say_how_large_it_is_costs_nothing():
    silent: Any = SimpleNamespace(count=2)
    sending: Any = SimpleNamespace(count=2, scalars=7)
    assert (GroupSizes(silent).carries, GroupSizes(sending).carries) == (0, 7)
