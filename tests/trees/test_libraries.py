"""The same trees as scikit-learn and xgboost grow, where these are given the same bins."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from raysim.trees.boosting import bins_of, boosted
from raysim.trees.settings import TreeSettings, TreeTask
from tests.trees.tables import table_c, table_r, task_r


def codes_of(task, X, rows):
    """Rows as the numbers of their bins, which every library cuts alike; missing stays missing."""
    bins = bins_of(task, X)
    codes = bins.codes(rows).astype(np.float64)
    codes[np.isnan(rows)] = np.nan
    return codes


def xgboost_margins(X, y, rows, *, depth, rounds, rate, **settings):
    xgboost = pytest.importorskip("xgboost")
    taken = {"max_depth": depth, "eta": rate, "lambda": 1, "min_child_weight": 0, "nthread": 1} | settings
    booster = xgboost.train(taken, xgboost.DMatrix(X, y), rounds)
    return booster.predict(xgboost.DMatrix(rows), output_margin=True)


def sklearn_of(kind, depth, rounds, rate, leaf=1):
    return kind(
        max_depth=depth,
        max_iter=rounds,
        learning_rate=rate,
        l2_regularization=1.0,
        min_samples_leaf=leaf,
        max_leaf_nodes=None,
        early_stopping=False,
    )


def test_table_r_by_both():
    X, y = table_r()
    ours = boosted(task_r(), X, y).margins(X)[:, 0]
    theirs = sklearn_of(HistGradientBoostingClassifier, 2, 3, 0.3).fit(X, y).decision_function(X)
    assert np.abs(ours - theirs).max() < 2e-8
    for method in ("hist", "exact"):
        theirs = xgboost_margins(
            X, y, X, depth=2, rounds=3, rate=0.3, objective="binary:logistic", base_score=15 / 24, tree_method=method
        )
        assert np.abs(ours - theirs).max() < 2e-7


@pytest.mark.parametrize("min_rows", [1, 20])
def test_table_c_on_common_bins(min_rows):
    X, y, X_test, _ = table_c()
    settings = TreeSettings(trees=60, depth=3, rate=0.1, min_rows=min_rows, bins=16, edges="exact")
    task = TreeTask(settings, (0,) * 30, 2)
    codes, rows = codes_of(task, X, X), codes_of(task, X, X_test)
    ours = boosted(task, X, y).margins(X_test)[:, 0]
    theirs = sklearn_of(HistGradientBoostingClassifier, 3, 60, 0.1, min_rows).fit(codes, y).decision_function(rows)
    assert np.abs(ours - theirs).max() < 1e-6
    if min_rows == 1:
        theirs = xgboost_margins(
            codes, y, rows, depth=3, rounds=60, rate=0.1, objective="binary:logistic", base_score=y.mean()
        )
        assert np.abs(ours - theirs).max() < 5e-6


def test_squared_loss_by_both():
    X, _ = table_r()
    y = (X[:, 0] / 2 - X[:, 2]).astype(np.float64)
    settings = TreeSettings(trees=2, depth=2, rate=0.3, min_rows=1, bins=64, edges="exact")
    ours = boosted(TreeTask(settings, (0, 0, 0), 0), X, y).margins(X)[:, 0]
    theirs = sklearn_of(HistGradientBoostingRegressor, 2, 2, 0.3).fit(X, y).predict(X)
    assert np.abs(ours - theirs).max() < 1e-6
    theirs = xgboost_margins(X, y, X, depth=2, rounds=2, rate=0.3, base_score=y.mean())
    assert np.abs(ours - theirs).max() < 2e-6
