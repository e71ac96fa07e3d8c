"""Tables of clusters of patients: their sizes by hospital, and the overlap of their models' features.

Both follow from models and from hospitals' messages; no patient's row is read.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.strategies.base import Floats, Ids

if TYPE_CHECKING:
    import pandas as pd

TOP = (5, 10, 20)
"""The numbers of features with the largest coefficients whose overlap is computed."""


def tables(federation: Federation, outcome: Outcome) -> dict[str, pd.DataFrame]:
    """Return ``patient_clusters.csv`` and ``feature_overlap.csv`` by these names, if the run has such clusters."""
    tables = {"patient_clusters.csv": composition(federation, outcome), "feature_overlap.csv": overlap(outcome)}
    return {name: table for name, table in tables.items() if table is not None}


def composition(federation: Federation, outcome: Outcome) -> pd.DataFrame | None:
    """Return one row per hospital and cluster of patients: ``hospital, cluster, n_train``. None without such
    clusters."""
    import pandas as pd

    rows = outcome.clusters_of_patients
    if rows is None:
        return None
    hospitals, clusters = rows.shape
    return pd.DataFrame(
        {
            "hospital": np.repeat(np.array(federation.hospitals, dtype=object), clusters),
            "cluster": np.tile(np.arange(clusters), hospitals),
            "n_train": rows.ravel(),
        }
    )


def overlap(outcome: Outcome) -> pd.DataFrame | None:
    """Return one row for each number k of ``TOP``: ``top, overlap``, see :func:`mean_overlap`.

    None with fewer than two clusters of patients, or if the model is not linear and so has no coefficients.
    """
    import pandas as pd

    served = [rows for rows in outcome.serve.values() if rows.ndim == 2]
    if not served or len(models := np.unique(served[-1])) < 2 or set(outcome.layout.names) != {"weight", "bias"}:
        return None
    # With several classes a feature has a coefficient for each: their Euclidean norm.
    sizes = np.stack([np.linalg.norm(outcome.layout.split(outcome.models[row])["weight"], axis=0) for row in models])
    shares = [(k, mean_overlap(sizes, k)) for k in TOP if k < sizes.shape[1]]
    return pd.DataFrame(shares, columns=["top", "overlap"]) if shares else None


def mean_overlap(sizes: Floats, k: int) -> float:
    """Return ``|top k of one and of the other| / k``, the mean over pairs of models with ``sizes [G, F]`` of
    coefficients.

    Of equal sizes the earlier feature comes first.
    """
    tops: Ids = np.argsort(-sizes, axis=1, kind="stable")[:, :k]
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in combinations(tops, 2)]))
