"""The table of a linear model's coefficients, in standard deviations and in the units of the source's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.strategies.base import Uncertainty
from raysim.training.base import Layout

if TYPE_CHECKING:
    import pandas as pd

COEFFICIENTS = "coefficients.csv"

GLOBAL = "global"
"""What the server's model is called among the owners."""


def coefficients(
    federation: Federation,
    vectors: Mapping[str, NDArray[Any]],
    layout: Layout,
    uncertainty: Uncertainty | None = None,
) -> pd.DataFrame | None:
    """Of a linear model, a row an owner and feature: ``model, feature, coefficient, per_unit``; None for others.

    - ``coefficient``: of the feature as the model receives it, a numeric one in standard deviations.
    - ``per_unit``: of the source's column in its own unit, 0 where it did not vary in training.
    - ``se``, ``low``, ``high``, ``se_robust``: of ``coefficient``, its standard error, the ends of its 95 % interval,
      and the standard error that holds where hospitals differ. They are of the global model, and empty where a strategy
      does not estimate them, or where a column was left out.
    - the feature ``(intercept)`` comes last; of more than two classes there is a row for each ``class``.
    """
    import pandas as pd

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
    features = np.array([*federation.features, "(intercept)"], dtype=object)
    table = pd.DataFrame(
        columns
        | {
            "feature": np.tile(features, outputs * len(vectors)),
            "coefficient": np.concatenate([weight, bias[..., None]], axis=2).ravel(),
            "per_unit": np.concatenate([slope, constant[..., None]], axis=2).ravel(),
        }
    )
    of_global = table["model"] == GLOBAL
    for name in ("se", "low", "high", "se_robust"):
        table[name] = np.nan
        if uncertainty is not None:
            named = layout.split(getattr(uncertainty, name))
            table.loc[of_global, name] = np.concatenate([named["weight"], named["bias"][:, None]], axis=1).ravel()
    return table
