"""The table of a linear model's coefficients, per standard deviation and per unit of the source's columns."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core import csv_files
from raysim.data.federation import Federation
from raysim.strategies.base import Uncertainty
from raysim.training.base import Layout

COEFFICIENTS = "coefficients.csv"

IMPORTANCE, DEPENDENCE = "importance.csv", "dependence.csv"
"""Names of the files with the importance of each source column, and with the partial dependence of predictions on
it."""

INTERCEPT = "(intercept)"

SURE = ("se", "low", "high", "se_robust", "low_robust", "high_robust")
"""Columns with the standard error and interval of a coefficient; :class:`Uncertainty` has the same fields."""

GLOBAL = "global"
"""The name of the server's model in the column ``model``."""


def coefficients(
    federation: Federation, vectors: Mapping[str, NDArray[Any]], layout: Layout, uncertainty: Uncertainty | None = None
) -> pd.DataFrame | None:
    """Return the coefficients of a run's linear models, with one row per model and feature; None for other models.

    ``vectors`` has the parameters of each model by the model's name, such as ``global`` or ``personal/<hospital>``.

    Columns are ``model``, ``feature`` and:

    - ``coefficient``: the coefficient of the feature as the model receives it; numeric features are in standard
      deviations.
    - ``per_unit``: the coefficient per unit of the source's column; 0 if the column did not vary in training.
    - ``se``, ``low``, ``high``: standard error and 95 % interval of ``coefficient``; empty if unknown, and for models
      other than the global one.
    - ``se_robust``, ``low_robust``, ``high_robust``: the same, but also valid if coefficients differ between hospitals.
    - ``effect``: the meaning of a coefficient: the logarithm of an odds ratio or rate ratio, or a difference; empty
      without ``se``.

    The feature ``(intercept)`` comes last. With more than two classes there is one row for each model, ``class`` and
    feature.
    """
    if set(layout.names) != {"weight", "bias"} or not vectors:
        return None
    outputs = layout.shapes[layout.names.index("weight")][0]
    fitted, F = federation.preprocessing, len(federation.features)
    means, scales = (np.pad(values, (0, F - len(values)), constant_values=k) for k, values in enumerate(fitted.scaling))
    tensors = [layout.split(theta.astype(np.float64)) for theta in vectors.values()]
    weight, bias = (
        np.stack([tensor[name] for tensor in tensors]) for name in ("weight", "bias")
    )  # [owners, C, F], [.., C]
    slope = weight / scales
    constant = bias - slope @ means
    columns = {"model": np.repeat(np.array(list(vectors), dtype=object), outputs * (F + 1))}
    if outputs > 1:
        columns["class"] = np.tile(np.repeat(np.array(federation.classes, dtype=object), F + 1), len(vectors))
    features = np.array([*federation.features, INTERCEPT], dtype=object)
    table = pd.DataFrame(
        columns
        | {
            "feature": np.tile(features, outputs * len(vectors)),
            "coefficient": np.concatenate([weight, bias[..., None]], axis=2).ravel(),
            "per_unit": np.concatenate([slope, constant[..., None]], axis=2).ravel(),
        }
    )
    of_global = table["model"] == GLOBAL
    for name in SURE:
        table[name] = np.nan
        if uncertainty is not None:
            named = layout.split(getattr(uncertainty, name))
            table.loc[of_global, name] = np.concatenate([named["weight"], named["bias"][:, None]], axis=1).ravel()
    table["effect"] = "" if uncertainty is None else np.where(np.isfinite(table["se"]), uncertainty.effect, "")
    return table


def of_global_model(path: Path) -> pd.DataFrame:
    """Read the rows of the global model from a file of :func:`coefficients`; no rows if there are more than two
    classes.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        names = ("model", "feature", "effect")
        several = "class" in next(rows)
        count = 0 if several else sum(1 for _ in itertools.takewhile(lambda row: row[0] == GLOBAL, rows))
    figures = ("coefficient", "per_unit", *SURE)
    return csv_files.read_csv(
        path,
        nrows=count,
        dtype=dict.fromkeys(names, str) | dict.fromkeys(figures, float),
        keep_default_na=False,
        na_values={name: [""] for name in figures},
    )
