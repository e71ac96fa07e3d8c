"""Finds the metric that predicts the skew best: scikit-learn models predict the skew from the metrics.

A model's own importances divide the importance of correlated metrics arbitrarily. Therefore the loss of accuracy when
one metric is shuffled, and the accuracy of each metric alone, are computed too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.streams import stream

ALL = "all"

FOLDS = 5
SHUFFLES = 5
TREES = 100


def predictors() -> dict[str, Callable[[], Any]]:
    """Return functions that make new, unfitted regressors, by name."""
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "linear": lambda: make_pipeline(StandardScaler(), Ridge(alpha=1.0)),
        "random_forest": lambda: RandomForestRegressor(n_estimators=TREES, random_state=0),
        "gradient_boosting": lambda: GradientBoostingRegressor(n_estimators=TREES, random_state=0),
    }


def importances(table: pd.DataFrame, metrics: Sequence[str], target: str) -> pd.DataFrame:
    """Evaluate how well ``metrics`` predict ``target`` (``log_alpha`` or ``alpha``) over a study's feasible partitions.

    Returns a table with one row for each model and metric, computed over all partitions (``clients`` is ``all``). If
    there are several numbers of clients, there are also such rows for each of these numbers. A number of clients is
    left out if its feasible partitions have fewer than two seeds or values of alpha. R² is computed from predictions
    for held-out seeds.

    - ``importance``: the model's own importance of the metric; a model's importances sum to 1, unless all are 0.
    - ``permutation``: the fall of R² when the metric is shuffled.
    - ``r2_alone``, ``r2``: R² of the metric alone, and of all metrics together.
    - ``spearman``: the rank correlation of the metric with alpha.
    """
    feasible = table[table["feasible"]]
    rows: list[dict[str, Any]] = []
    groups: list[tuple[Any, pd.DataFrame]] = [(ALL, feasible)]
    if feasible["clients"].nunique() > 1:
        groups += list(feasible.groupby("clients", sort=True))
    for clients, group in groups:
        if group["seed"].nunique() < 2 or group["alpha"].nunique() < 2:
            continue
        X, alpha = group[list(metrics)].to_numpy(np.float64), group["alpha"].to_numpy(np.float64)
        y = np.log(alpha) if target == "log_alpha" else alpha
        folds = list(held_out(group["seed"].to_numpy(np.int64)))
        ranks = group[list(metrics)].corrwith(group["alpha"], method="spearman")
        for name, make in predictors().items():
            r2, drops = _together(make, X, y, folds)
            shares = _importances(make().fit(X, y))
            for j, metric in enumerate(metrics):
                rows.append(
                    {
                        "clients": clients,
                        "model": name,
                        "metric": metric,
                        "importance": shares[j],
                        "permutation": drops[j],
                        "r2_alone": r_squared(y, _predicted(make, X[:, [j]], y, folds)),
                        "r2": r2,
                        "spearman": ranks[metric],
                    }
                )
    return pd.DataFrame(rows)


def held_out(seeds: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Yield for each fold of a cross-validation a mask ``[n]`` of the partitions that are held out.

    All partitions of one seed are in the same fold, because they share random numbers.
    """
    distinct = np.unique(seeds)
    for part in np.array_split(distinct, min(FOLDS, len(distinct))):
        yield np.isin(seeds, part)


def r_squared(y: Floats, predicted: Floats) -> float:
    """Compute R², ``1 - sum (y - predicted)^2 / sum (y - mean y)^2``."""
    return float(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def _predicted(make: Callable[[], Any], X: Floats, y: Floats, folds: Sequence[NDArray[np.bool_]]) -> Floats:
    predicted = np.empty_like(y)
    for out in folds:
        predicted[out] = make().fit(X[~out], y[~out]).predict(X[out])
    return predicted


def _together(
    make: Callable[[], Any], X: Floats, y: Floats, folds: Sequence[NDArray[np.bool_]]
) -> tuple[float, Floats]:
    """Compute R² of a model with all ``D`` metrics, and the fall of R² if one metric is shuffled in held-out
    partitions. The falls are an array ``[D]``, one for each metric.
    """
    predicted, shuffled = np.empty_like(y), np.empty((X.shape[1], SHUFFLES, len(y)))
    for k, out in enumerate(folds):
        model = make().fit(X[~out], y[~out])
        predicted[out] = model.predict(X[out])
        for j in range(X.shape[1]):
            for s in range(SHUFFLES):
                changed = X[out].copy()
                changed[:, j] = stream(0, "shuffle", k, j, s).permutation(changed[:, j])
                shuffled[j, s, out] = model.predict(changed)
    r2 = r_squared(y, predicted)
    return r2, np.array([r2 - np.mean([r_squared(y, values) for values in of_metric]) for of_metric in shuffled])


def _importances(model: Any) -> Floats:
    """Return a fitted model's importances of the metrics. The importances sum to 1 unless all are 0. They are based on
    impurity or, for a linear model, on absolute coefficients.
    """
    weights = model.feature_importances_ if hasattr(model, "feature_importances_") else np.abs(model[-1].coef_)
    total = weights.sum()
    return np.asarray(weights / total if total > 0 else weights)
