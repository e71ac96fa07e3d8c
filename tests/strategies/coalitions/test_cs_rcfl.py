"""CS-RCFL against numpy: the whole protocol, its identities, and what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation, write
from raysim.engine.job import Outcome
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.storage.run_tables import hospitals_table
from raysim.strategies.base import State, Strategy
from raysim.strategies.coalitions.cs_rcfl import CoalitionState, CsRcfl
from raysim.strategies.coalitions.robust.fits import RadiusRule, RobustTransferLoss
from raysim.traffic.ledger import TO_EXPERIMENTER, Bytes
from tests.conftest import MakeFederation, job_of, run_strategy, store
from tests.strategies.contexts import hospital, view_of

SIZES = [14, 9, 0, 21, 12, 1, 17]
LINEAR = ModelSpec("linear_regression", None, {"loss": "absolute"}, "default")


def shot(federation: Federation, strategy: CsRcfl, **run) -> Outcome:
    return run_strategy(federation, strategy, rounds=0, **run)


def train_rows(federation: Federation) -> list[tuple[np.ndarray, np.ndarray]]:
    """``X [n, F + 1]`` in float64 with a column of ones, and labels, of the hospitals that have training rows."""
    parts = [federation.rows(h, "train") for h in range(len(federation.hospitals))]
    by_hospital = [(federation.X[rows].astype(np.float64), federation.y[rows]) for rows in parts]
    return [(np.column_stack([X, np.ones(len(X))]), y) for X, y in by_hospital if len(y)]


def partitions(n: int, coalitions: int) -> Iterator[np.ndarray]:
    """Every division of ``n`` into exactly ``coalitions``, numbered by smallest member."""
    for labels in itertools.product(range(coalitions), repeat=n):
        if list(dict.fromkeys(labels)) == list(range(coalitions)):
            yield np.array(labels)


def cost(losses: np.ndarray, labels: np.ndarray) -> float:
    return sum(losses[np.ix_(labels == k, labels == k)].sum() / (labels == k).sum() for k in set(labels.tolist()))


def dual(Z: np.ndarray, y: np.ndarray, theta: np.ndarray, radius: float, kappa: float) -> float:
    """The worst mean logistic loss: its dual is piecewise linear in a, least at ``|θ|`` or where a margin is a κ."""
    m, norm = (2 * y - 1) * (Z @ theta), np.linalg.norm(theta[:-1])
    values = [
        a * radius + np.log1p(np.exp(-m)).mean() + np.maximum(0, m - a * kappa).mean()
        for a in [norm, *(m / kappa)]
        if a >= norm
    ]
    return min(values)


def store_real(folder: Path, sizes: list[int], tests: int = 4, features: int = 3) -> Federation:
    """Hospitals in two groups of unlike laws with a real-valued label."""
    rng = np.random.default_rng(5)
    weights = 3 * rng.normal(size=(2, features))
    blocks = [rng.normal(size=(n + tests, features)).astype(np.float32) for n in sizes]
    y = [X @ weights[h % 2] + rng.normal(size=len(X)) for h, X in enumerate(blocks)]
    starts = np.cumsum([0, *(n + tests for n in sizes)])[:-1]
    folder.mkdir()
    write(
        folder,
        X=np.concatenate(blocks),
        y=np.concatenate(y),
        observed=np.ones((len(np.concatenate(y)), features), dtype=np.bool_),
        bounds=np.array([[s, s + n, s + n, s + n + tests] for s, n in zip(starts, sizes, strict=True)], dtype=np.int64),
        patients={},
        meta={
            "hospitals": [f"h{i}" for i in range(len(sizes))],
            "features": [f"x{j}" for j in range(features)],
            "classes": [],
            "attributes": {},
            "notes": [],
            "fingerprint": "real",
            "preprocessing_scalars": 0,
        },
    )
    return Federation.open(folder)


@pytest.mark.parametrize(("radius", "kappa"), [(0.0, 1.0), (0.2, 1.0), (0.7, 1.0), (0.2, np.inf)])
def test_the_whole_protocol_against_numpy(federate: MakeFederation, radius, kappa):
    """Losses by the dual's candidates, coalitions by trying all, models by means; ε = 0 is non-robust clustering."""
    federation = federate(SIZES, features=2)
    rows = train_rows(federation)
    models = shot(federation, CsRcfl(clusters="each")).models[1:]
    losses = np.array([[dual(Z, y, theta, radius, min(kappa, 1e9)) for theta in models] for Z, y in rows])
    best = min(partitions(len(rows), 3), key=lambda labels: cost(losses, labels))

    outcome = shot(federation, CsRcfl(clusters=3, radius=radius, kappa=kappa))
    assert outcome.facts["coalition_cost"] == pytest.approx(cost(losses, best), abs=1e-6)
    assert outcome.facts["coalition_bound"] <= outcome.facts["coalition_cost"]
    assert outcome.facts["coalition_gap"] < 1e-6
    trained = [0, 1, 3, 4, 5, 6]
    assert (outcome.cluster[trained] - 1).tolist() == best.tolist()
    for k in range(3):
        assert outcome.models[1 + k] == pytest.approx(models[best == k].mean(axis=0), abs=1e-12)
    if radius == 0:
        by_name = shot(federation, CsRcfl(clusters=3, radius=9.0, transfer="plain"))
        np.testing.assert_array_equal(by_name.models, outcome.models)
        plain = [[np.log1p(np.exp(-(2 * y - 1) * (Z @ theta))).mean() for theta in models] for Z, y in rows]
        assert losses == pytest.approx(np.array(plain), abs=1e-12)


def test_hospitals_own_models_are_the_optimum(federate: MakeFederation):
    """A gradient of 0 with the ridge."""
    federation = federate(SIZES, features=2)
    models = shot(federation, CsRcfl(clusters="each")).models[1:]
    for (Z, y), theta in zip(train_rows(federation), models, strict=True):
        gradient = Z.T @ (1 / (1 + np.exp(-Z @ theta)) - y) / len(y) + 1e-6 * theta
        assert np.abs(gradient).max() < 1e-7


def test_18_as_many_coalitions_as_hospitals_are_local_models_and_one_is_their_mean(federate: MakeFederation):
    federation = federate([8, 15, 11, 20])
    each = shot(federation, CsRcfl(clusters="each"))
    most = shot(federation, CsRcfl(clusters=4))
    one = shot(federation, CsRcfl(clusters=1))
    assert most.models == pytest.approx(each.models, abs=1e-12)
    assert most.cluster.tolist() == each.cluster.tolist() == [1, 2, 3, 4]
    assert one.models[1] == pytest.approx(each.models[1:].mean(axis=0), abs=1e-12)
    assert one.models[0] == pytest.approx(one.models[1], abs=1e-12)
    assert one.cluster.tolist() == [1] * 4


def test_19_l1_partitions_do_not_depend_on_an_equal_radius(tmp_path: Path):
    federation = store_real(tmp_path / "real", [12, 20, 15, 11, 18, 14])
    outcomes = [shot(federation, CsRcfl(clusters=2, radius=radius), model=LINEAR) for radius in (0.0, 0.4, 3.0)]
    assert [outcome.cluster.tolist() for outcome in outcomes] == [[1, 2, 1, 2, 1, 2]] * 3
    models = shot(federation, CsRcfl(clusters="each"), model=LINEAR).models[1:]
    price = np.sqrt((models[:, :-1] ** 2).sum(axis=1) + 1).sum()
    assert outcomes[2].facts["coalition_cost"] - outcomes[0].facts["coalition_cost"] == pytest.approx(3.0 * price)
    plain = np.array([[np.abs(y - Z @ theta).mean() for theta in models] for Z, y in train_rows(federation)])
    assert outcomes[0].facts["coalition_cost"] == pytest.approx(cost(plain, np.arange(6) % 2))


def test_the_order_in_which_models_are_shuffled_does_not_show(federate: MakeFederation):
    federation = federate(SIZES)
    first, second = (shot(federation, CsRcfl(), seed=seed) for seed in (1, 2))
    assert first.models == pytest.approx(second.models, abs=1e-12)
    assert first.facts["coalition_cost"] == pytest.approx(second.facts["coalition_cost"])


def test_what_is_sent_is_what_the_paper_says(federate: MakeFederation):
    """Up a model and N losses a hospital, down N models; the radius stays, cross-validated or not."""
    federation = federate([8, 0, 15, 11], features=3)
    outcome = shot(federation, CsRcfl(clusters=2, radii=(0.01, 0.1)))
    sent = {
        (kind, h): bytes_ // 4
        for _, kind, ids, each, _ in outcome.ledger.entries
        for h, bytes_ in zip(ids, each, strict=True)
    }
    asked = {kind for kind, _ in sent} - {"size", "preprocessing", *TO_EXPERIMENTER}
    assert asked == {"model", "transfer_losses"}
    assert [sent.get(("model", h)) for h in range(4)] == [4, None, 4, 4]
    assert [sent.get(("transfer_losses", h)) for h in range(4)] == [3, None, 3, 3]
    (setup,) = outcome.rounds
    # All four have sent their numbers of rows.
    assert (setup.round, setup.bytes_up, setup.bytes_down) == (0, 4 * (4 + 3 * (4 + 3)), 4 * 3 * 3 * 4)
    assert (outcome.setup, outcome.traffic) == (Bytes(setup.bytes_down, setup.bytes_up), Bytes())
    alone = shot(federation, CsRcfl(clusters="each"))
    assert alone.rounds[0].bytes_down == 0
    assert alone.facts == {}


def test_a_hospital_without_rows_is_served_the_mean_of_all_models(federate: MakeFederation):
    federation = federate([8, 0, 15, 11])
    outcome = shot(federation, CsRcfl(clusters=2))
    assert outcome.serve["cluster"][1] == 0
    assert hospitals_table(federation, outcome, "test")["cluster"].isna().tolist() == [False, True, False, False]
    models = shot(federation, CsRcfl(clusters="each")).models[1:]
    assert outcome.models[0] == pytest.approx(models.mean(axis=0), abs=1e-12)


def test_robust_models_shrink_with_the_radius_to_the_prevalence(federate: MakeFederation):
    federation = federate([30, 25, 40])
    norms = [
        np.linalg.norm(shot(federation, CsRcfl("each", radius, kappa=np.inf, robust=True)).models[1:, :-1], axis=1)
        for radius in (0.0, 0.1, 10.0)
    ]
    assert (norms[0] > norms[1]).all()
    assert (norms[1] > norms[2]).all()
    assert (norms[2] == 0).all()


def test_robust_models_have_the_least_worst_loss(federate: MakeFederation):
    """Against plain models, under the dual worked above."""
    federation = federate([30, 25, 40])
    plain = shot(federation, CsRcfl("each")).models[1:]
    robust = shot(federation, CsRcfl("each", 0.1, robust=True)).models[1:]
    for (Z, y), a, b in zip(train_rows(federation), plain, robust, strict=True):
        least = dual(Z, y, b, 0.1, 1.0)
        assert least < dual(Z, y, a, 0.1, 1.0)
        for step in 1e-3 * np.eye(len(b)):
            assert least <= min(dual(Z, y, b + step, 0.1, 1.0), dual(Z, y, b - step, 0.1, 1.0)) + 1e-6


def test_the_radius_follows_the_rows():
    rule = RadiusRule(0.5, 1.0, 100, (), 5, 1.0)
    X = np.zeros((101, 2))
    assert rule.of(X, np.zeros(101), 2) == 0.5
    assert rule.of(X[:100], np.zeros(100), 2) == 1.0
    assert RadiusRule(0.5, None, 100, (), 5, 1.0).of(X[:1], np.zeros(1), 2) == 0.5


def test_a_state_that_was_not_sought_has_no_facts():
    view, models = view_of([hospital([1, 1])]), np.zeros((2, 2))
    assert CsRcfl().facts(view, State(models)) == CsRcfl().facts(view, CoalitionState(models)) == {}
    assert CsRcfl().facts(view, CoalitionState(models, np.array([1]), 2.0, 1.5, 3.0)) == {
        "coalition_cost": 2.0,
        "coalition_bound": 1.5,
        "coalition_gap": 0.25,
        "coalition_seconds": 3.0,
    }


def test_a_hospital_computes_losses_from_its_rows_and_the_models_alone():
    """Weight 3, intercept 1: margins 2 and 1 of the rows' own classes; real-valued labels are 2 and 0 off."""
    rows = hospital([1, 1], np.array([[-1.0], [0.0]]))
    model = SimpleNamespace(outputs=lambda theta: rows.X @ theta[:-1] + theta[-1])

    def losses(program: RobustTransferLoss) -> np.ndarray:
        at: Any = SimpleNamespace(rows=rows.rows, received={"models": np.array([[3.0, 1.0]])}, model=model)
        return program.value(at)

    plain = (np.log1p(np.exp(-2.0)) + np.log1p(np.exp(-1.0))) / 2
    assert losses(RobustTransferLoss(2, None, 1)) == pytest.approx([plain])
    assert losses(RobustTransferLoss(0, None, 1)) == pytest.approx([1.0])
    # With a radius of .5, the same as for certain labels.
    certain = RadiusRule(0.5, None, 0, (), 5, np.inf)
    assert losses(RobustTransferLoss(2, certain, 1)) == pytest.approx([plain + 1.5])


def test_two_rows_are_enough_to_choose_a_radius_by_and_one_is_not():
    # Either row foretells the other best where nothing is feared.
    rule = RadiusRule(0.5, None, 100, (0.0, 0.4), 5, 1.0)
    X, y = np.ones((2, 1)), np.ones(2)
    assert rule.of(X, y, 2) == 0.0
    assert rule.of(X[:1], y[:1], 2) == 0.4


@pytest.mark.parametrize("classes", [0, 2])
def test_a_cross_validated_radius_is_small_where_labels_follow_and_large_where_they_do_not(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    rule = RadiusRule(0.5, None, 100, (10.0, 0.001), 5, np.inf)

    def label(scores):
        return (scores > 0).astype(int) if classes else scores

    y = label(X @ [3.0, -2.0, 1.0])
    assert rule.of(X, y, classes) == 0.001
    # As many features as rows to learn from, and nothing to be learned.
    assert rule.of(rng.normal(size=(20, 15)), label(rng.normal(size=20)), classes) == 10.0
    assert rule.of(X[:1], y[:1], classes) == 10.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"clusters": 0}, "clusters: 0 is not at least 1"),
        ({"radius": -1}, "radius: -1 is not at least 0"),
        ({"small_radius": np.inf}, "small_radius: inf is not finite"),
        ({"radii": (0.1, -2.0)}, r"radii: -2.0 is not at least 0"),
        ({"kappa": 0}, "kappa: 0 is not greater than 0"),
        ({"folds": 1}, "folds: 1 is not at least 2"),
        ({"transfer": "worst"}, "transfer: 'worst' is not one of robust, plain"),
        ({"seconds": -1}, "seconds: -1 is not at least 0"),
    ],
)
def test_settings_out_of_range(settings, said):
    with pytest.raises(ValueError, match=said):
        CsRcfl(**settings)


@pytest.mark.parametrize(
    ("strategy", "model", "said"),
    [
        (CsRcfl(clusters=4), None, "strategy.clusters: 4 is more than the 3 hospitals with training rows; lower it"),
        (CsRcfl(), ModelSpec("mlp", None, {}, "default"), "model: strategy cs_rcfl is for linear models"),
        (CsRcfl(robust=True), None, "strategy.radius: 0.5 must be below kappa / 2 = 0.5"),
        (CsRcfl(radii=(0.1, 0.6)), None, "strategy.radii: 0.6 must be below kappa / 2 = 0.5"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(federate: MakeFederation, strategy, model, said):
    federation = federate([8, 0, 15, 11])
    with pytest.raises(ConfigError, match=said):
        check_job(job_of(federation, strategy, rounds=0, model=model), federation)


def test_three_classes_are_refused_and_absolute_loss_has_no_largest_radius(federate: MakeFederation, tmp_path: Path):
    federation = federate([8, 15, 11], classes=3)
    with pytest.raises(ConfigError, match="two classes or a real-valued label"):
        check_job(job_of(federation, CsRcfl(), rounds=0), federation)
    real = store_real(tmp_path / "real", [12, 20, 15])
    check_job(job_of(real, CsRcfl(radius=2.0, robust=True), rounds=0, model=LINEAR), real)


def test_without_time_the_best_found_is_used_and_its_gap_is_reported(federate: MakeFederation):
    """42 hospitals: too many to enumerate, and no second to prove anything."""
    federation = federate([6] * 42, [2] * 42, features=2)
    outcome = shot(federation, CsRcfl(clusters=5, seconds=0.0))
    assert sorted(set(outcome.cluster.tolist())) == [1, 2, 3, 4, 5]
    facts = outcome.facts
    assert facts["coalition_bound"] < facts["coalition_cost"]
    assert facts["coalition_gap"] == pytest.approx(1 - facts["coalition_bound"] / facts["coalition_cost"])


@pytest.mark.parametrize("robust", [False, True])
def test_one_row_and_one_class_hospitals_take_part(federate: MakeFederation, tmp_path: Path, robust):
    drawn = federate([9, 1, 12, 7])
    labels = drawn.y.copy()
    labels[drawn.rows(0, "train")] = 1
    (tmp_path / "one").mkdir()
    federation = store(tmp_path / "one", drawn.X, labels, drawn.bounds)
    strategy: Strategy = CsRcfl(clusters=2, radii=(0.01, 0.1), robust=robust)
    outcome = run_strategy(federation, strategy, rounds=0)
    assert np.isfinite(outcome.models).all()
    assert (outcome.cluster > 0).all()
