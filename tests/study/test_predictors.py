"""Which metric predicts the skew: folds, R², and importances where the answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raysim.study import predictors as study_predictors
from raysim.study.predictors import ALL, held_out, importances, predictors, r_squared

ALPHAS = np.geomspace(0.05, 50, 8)


@pytest.fixture(scope="module")
def study_rows() -> pd.DataFrame:
    """``telling`` is a function of alpha with little noise, ``blind`` is noise; the last row is not feasible."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "clients": clients,
            "alpha": alpha,
            "seed": seed,
            "feasible": True,
            "telling": 1 - 0.2 * np.log(alpha) + rng.normal(0, 0.01),
            "blind": rng.normal(),
        }
        for clients in (10, 20)
        for alpha in ALPHAS
        for seed in range(3)
    ]
    return pd.DataFrame([*rows, {"clients": 20, "alpha": 0.01, "seed": 0, "feasible": False}])


@pytest.fixture(scope="module")
def importance(study_rows: pd.DataFrame) -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_predictors, "TREES", 30)
        return importances(study_rows, ["blind", "telling"], "log_alpha")


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_every_row_is_predicted_once_and_seeds_stay_whole(count):
    seeds = np.repeat(np.arange(count), 3)
    folds = list(held_out(seeds))
    assert len(folds) == min(5, count)
    assert (np.sum(folds, axis=0) == 1).all()
    for out in folds:
        assert not set(seeds[out]) & set(seeds[~out])


def test_r_squared_by_hand():
    y = np.array([1.0, 2.0, 6.0])  # around the mean 3: 4 + 1 + 9 = 14
    assert r_squared(y, y) == 1
    assert r_squared(y, np.full(3, 3.0)) == 0
    assert r_squared(y, np.array([1.0, 3.0, 6.0])) == pytest.approx(1 - 1 / 14)


def test_the_metric_that_knows_is_found_by_every_way_of_asking(importance):
    assert set(importance["clients"]) == {ALL, 10, 20}
    assert set(importance["model"]) == set(predictors())
    wide = importance.set_index(["clients", "model", "metric"])
    for clients, model in wide.index.droplevel("metric").unique():
        telling, blind = wide.loc[(clients, model, "telling")], wide.loc[(clients, model, "blind")]
        assert telling["importance"] + blind["importance"] == pytest.approx(1)
        assert telling["importance"] > 0.9
        assert telling["r2_alone"] > 0.95
        assert blind["r2_alone"] < 0.2
        assert telling["permutation"] > 1 > 0.1 > abs(blind["permutation"])
        assert telling["spearman"] < -0.99
        assert telling["r2"] == blind["r2"] > 0.95


def test_the_linear_figures_are_those_of_ridge_regression_written_out(study_rows, importance):
    """One standardised metric and a penalty of 1: slope x.y / (n + 1), around the training means."""
    feasible = study_rows[study_rows["feasible"]]
    x, y = feasible["telling"].to_numpy(), np.log(feasible["alpha"].to_numpy())
    predicted = np.empty_like(y)
    for seed in range(3):
        out = feasible["seed"].to_numpy() == seed
        middle, spread = x[~out].mean(), x[~out].std()
        z = (x[~out] - middle) / spread
        slope = z @ (y[~out] - y[~out].mean()) / (len(z) + 1)
        predicted[out] = y[~out].mean() + slope * (x[out] - middle) / spread
    expected = 1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    figures = importance.set_index(["clients", "model", "metric"]).loc[(ALL, "linear", "telling")]
    assert figures["r2_alone"] == pytest.approx(expected, rel=1e-9)


@pytest.fixture
def linear_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all models the one that is fitted at once."""
    linear = predictors()["linear"]
    monkeypatch.setattr(study_predictors, "predictors", lambda: {"linear": linear})


@pytest.mark.usefixtures("linear_alone")
def test_the_target_may_be_alpha_itself(study_rows):
    """``telling`` is linear in ln alpha, so that a line tells alpha itself worse."""
    ten = study_rows[study_rows["clients"] == 10]
    log, plain = (
        importances(ten, ["telling"], target).set_index("model")["r2_alone"] for target in ("log_alpha", "alpha")
    )
    assert log["linear"] > 0.95 > plain["linear"]


@pytest.mark.usefixtures("linear_alone")
def test_a_number_of_clients_with_one_feasible_alpha_is_only_part_of_all(study_rows):
    few = study_rows[(study_rows["clients"] == 10) & (study_rows["alpha"] < 1) | (study_rows["alpha"] == ALPHAS[-1])]
    assert set(importances(few, ["telling"], "log_alpha")["clients"]) == {ALL, 10}
