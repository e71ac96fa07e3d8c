"""Effect of each source column on a run's headline model: permutation importance, and partial dependence.

To measure a column's importance, its values are permuted among the rows of each hospital (L. Breiman, *Random Forests*,
2001). Differences between hospitals therefore remain.

The column's importance at a hospital is how much permuting worsens the headline metric, averaged over ``repeats``
permutations. The importance over hospitals is the mean weighted by rows. Its interval
(:func:`raysim.statistics.differences.paired.paired`) is valid for this trained model, at the hospitals of the run and
at similar hospitals. Correlated columns share their importance, so that each alone may seem unimportant.

Partial dependence is the mean prediction over all rows after a column is set to the same value in every row (J.
Friedman, *Greedy Function Approximation*, 2001). Some rows then have combinations of values that no patient has.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from raysim.core.arrays import Floats
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.data.fitted import Categorical, Numeric, Preprocessing
from raysim.serving.predictor import Predictor
from raysim.statistics.differences.paired import paired
from raysim.storage.served import NOBODY
from raysim.training.base import Grows
from raysim.training.kernels.linear import LinearModel

SHARES = (0.05, 0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 0.95)
"""The quantiles of a numeric column at which partial dependence is evaluated."""

CATEGORIES = 8
"""Partial dependence is evaluated at this many categories at most: the most frequent ones."""

VALUES = max(len(SHARES), CATEGORIES)

STRONGEST = 6
"""Partial dependence is evaluated for this many columns: the most important ones."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The rows of one part of the split at hospitals with a trained model, grouped by hospital."""

    X: NDArray[np.float32]
    observed: NDArray[np.bool_]
    y: NDArray[np.int64] | NDArray[np.float32]
    hospitals: NDArray[np.str_]
    """The name of the hospital of each row, ``[n]``."""
    offsets: NDArray[np.int64]
    """``[H + 1]`` for ``H`` hospitals: hospital ``h`` has the rows from ``offsets[h]`` to ``offsets[h + 1] - 1``."""

    @staticmethod
    def of(predictor: Predictor, federation: Federation, part: str) -> Evaluated:
        """Select the rows of ``part`` at the hospitals with a trained model."""
        owners = predictor.served.owners[predictor.served.headline]
        names = federation.hospitals
        there = [h for h, name in enumerate(names) if owners.get(name) != NOBODY and federation.sizes(part)[h]]
        rows = np.concatenate([np.arange(*federation.rows(h, part).indices(len(federation.y))) for h in there])
        sizes = federation.sizes(part)[there]
        return Evaluated(
            np.array(federation.X[rows]),
            np.array(federation.observed[rows]),
            np.array(federation.y[rows]),
            np.repeat(np.array([names[h] for h in there]), sizes),
            np.concatenate([[0], np.cumsum(sizes)]),
        )


def importances(predictor: Predictor, federation: Federation, part: str, repeats: int, seed: int) -> pd.DataFrame:
    """Return one row per source column (``column``), the most important first, with these columns:

    - ``importance``: how much AUROC falls (or, for numeric labels, the absolute error rises) if the column is permuted.
    - ``low``, ``high``: the 95 % interval of ``importance``.
    - ``hospitals``: the number of hospitals at which the metric is defined.
    - ``gain``: for trees, the column's share of the gain of all splits; NaN for random splits, which have no gain.
    - ``spread``: for linear models with one output, the standard deviation, over rows, of the column's contribution to
      the output.
    """
    rows, task = Evaluated.of(predictor, federation, part), federation.task
    at = task.figures.index(task.headline)

    def figure(X: NDArray[np.float32], observed: NDArray[np.bool_]) -> Floats:
        outputs = predictor.outputs(X, observed, rows.hospitals)
        return np.asarray(task.measure(outputs, rows.y, rows.offsets)[:, at])

    whole, sizes = figure(rows.X, rows.observed), np.diff(rows.offsets)
    gain, spread = _gains(predictor, rows), _spreads(predictor, rows)
    found = []
    for name, (values, features) in columns_of(predictor.preprocessing).items():
        of_repeats = []
        for repeat in range(repeats):
            order = _within(rows.offsets, seed, name, repeat)
            X, observed = rows.X.copy(), rows.observed.copy()
            X[:, features], observed[:, values] = X[order][:, features], observed[order][:, values]
            of_repeats.append(figure(X, observed))
        without = np.mean(of_repeats, axis=0)
        pair = paired(whole, without, sizes) if task.larger else paired(without, whole, sizes)
        row = {"column": name, "importance": pair.difference}
        row |= dict(zip(("low", "high"), pair.population(), strict=True)) | {"hospitals": pair.hospitals}
        row |= {} if gain is None else {"gain": float(gain[features].sum())}
        row |= {} if spread is None else {"spread": float(np.std(spread[:, features].sum(axis=1)))}
        found.append(row)
    return pd.DataFrame(found).sort_values("importance", ascending=False, kind="stable", ignore_index=True)


def dependence(predictor: Predictor, federation: Federation, part: str, columns: list[str]) -> pd.DataFrame:
    """Return the partial dependence of the headline model on ``columns``, one row per column and value.

    ``kind`` is ``number`` or ``category``. ``value`` is a text: a number in the column's own unit, or the category.
    ``mean`` is the mean prediction after the column is set to this value. The table is empty for more than two classes.
    """
    fitted = predictor.preprocessing
    found: list[tuple[str, str, object, float]] = []
    if len(fitted.classes) <= 2:
        rows, places = Evaluated.of(predictor, federation, part), columns_of(fitted)
        by_name = {column.name: column for column in fitted.columns}
        for name in columns:
            kind = "number" if isinstance(by_name[name], Numeric) else "category"
            for value, setting in _settings(by_name[name], rows, *places[name]):
                X, observed = rows.X.copy(), rows.observed.copy()
                X[:, places[name][1]], observed[:, places[name][0]] = setting, True
                outputs = predictor.outputs(X, observed, rows.hospitals).astype(np.float64)
                found.append((name, kind, value, float((expit(outputs) if fitted.classes else outputs).mean())))
    return pd.DataFrame(found, columns=["column", "kind", "value", "mean"])


def columns_of(fitted: Preprocessing) -> dict[str, tuple[list[int], list[int]]]:
    """Return two lists of feature indices for each source column: without and with the column's missing flag."""
    places: dict[str, tuple[list[int], list[int]]] = {}
    at = 0
    for column in fitted.columns:
        values = list(range(at, at + len(column.values)))
        places[column.name], at = (values, list(values)), at + len(values)
    for k, name in enumerate(fitted.flags):
        places[name][1].append(at + k)
    return {name: place for name, place in places.items() if place[1]}


def _within(offsets: NDArray[np.int64], seed: int, column: str, repeat: int) -> NDArray[np.int64]:
    """Return a random permutation of row indices ``[n]`` that moves rows only within their hospital."""
    rng = stream(seed, f"importance/{column}/{repeat}")
    return np.concatenate([a + rng.permutation(b - a) for a, b in pairwise(offsets)])


def _settings(
    column: Numeric | Categorical, rows: Evaluated, values: list[int], features: list[int]
) -> list[tuple[object, NDArray[np.float32]]]:
    """Return the column's values for partial dependence: each as a text, and as the values of the column's features."""
    settings: list[tuple[object, NDArray[np.float32]]] = []
    first, width = features[0], len(features)
    if isinstance(column, Numeric):
        recorded = rows.X[rows.observed[:, values[0]], first]
        for x in np.unique(np.quantile(recorded, SHARES, method="inverted_cdf")) if len(recorded) else []:
            found = float(x) * column.scale + column.mean if np.isfinite(column.scale) else column.mean
            settings.append((f"{found:.6g}", np.r_[x, np.zeros(width - 1)].astype(np.float32)))
        return settings
    coded, count = column.coded, len(column.categories)
    codes = rows.X[:, first] if coded else np.where(rows.X[:, values].any(axis=1), rows.X[:, values].argmax(axis=1), -1)
    often = np.array([(codes == k).sum() for k in range(count)])
    for k in np.sort(np.argsort(-often, kind="stable")[:CATEGORIES]).tolist():
        setting = np.full(width, k, np.float32) if coded else (np.arange(width) == k).astype(np.float32)
        settings.append((column.categories[k], setting))
    return settings


def _vectors(predictor: Predictor, rows: Evaluated) -> list[tuple[slice, Floats]] | None:
    """Return each hospital's range of rows and model parameters; None if groups of patients have own models."""
    owners = predictor.served.owners[predictor.served.headline]
    found = []
    for a, b in pairwise(rows.offsets.tolist()):
        owner = owners[str(rows.hospitals[a])]
        if not isinstance(owner, str):
            return None
        found.append((slice(a, b), predictor.served.of(owner)[0]))
    return found


def _gains(predictor: Predictor, rows: Evaluated) -> Floats | None:
    """Return each feature's share of the gain of all splits, averaged over rows.

    The shares are NaN if no split has a gain. Returns None without trees, or if groups of patients have own models.
    """
    vectors = _vectors(predictor, rows) if isinstance(predictor.model, Grows) else None
    if vectors is None or not isinstance(predictor.model, Grows):
        return None
    total, counted = np.zeros(rows.X.shape[1]), 0
    for part, theta in vectors:
        forest = predictor.model.forest(theta)
        split = forest.column >= 0
        gain = np.bincount(forest.column[split], forest.gain[split], minlength=len(total))
        if gain.sum() > 0:
            total += (part.stop - part.start) * gain / gain.sum()
            counted += part.stop - part.start
    return total / counted if counted else np.full_like(total, np.nan)


def _spreads(predictor: Predictor, rows: Evaluated) -> Floats | None:
    model = predictor.model
    vectors = _vectors(predictor, rows) if isinstance(model, LinearModel) and model.outputs == 1 else None
    if vectors is None:
        return None
    added = np.empty(rows.X.shape)
    for part, theta in vectors:
        added[part] = rows.X[part] * model.layout.split(theta)["weight"][0]
    return added
