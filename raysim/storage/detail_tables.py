"""The tables of groups of patients within hospitals, of attacks and of clusters of patients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from raysim.core.atomic import plain
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.measuring import subgroups
from raysim.statistics.patient_groups.within import NOTHING, PairGap, WithinGap
from raysim.strategies.base import Floats, Ids

if TYPE_CHECKING:
    from raysim.adversaries.attack_effect import AttackFigures


def of_groups(federation: Federation, outcome: Outcome) -> dict[str, pd.DataFrame]:
    """Return ``patients.csv``, ``fairness.csv`` and ``risks_by_group.csv`` by name; empty tables are absent."""
    tables = {}
    if outcome.grouping is not None:
        tables["patients.csv"] = subgroups.table(federation, outcome.grouping, outcome.groups)
    if outcome.gaps:
        model = list(outcome.figures)[-1]
        tables["fairness.csv"] = fairness_table(model, outcome.gaps)
        if any(gap.risks for gap in outcome.gaps.values()):
            tables["risks_by_group.csv"] = risks_table(model, outcome.gaps)
    return tables


def fairness_table(model: str, gaps: Mapping[str, WithinGap]) -> pd.DataFrame:
    """Return one row per patient attribute and pair of its groups, with the difference between the two groups.

    ``docs/statistics.md`` explains the columns. Only the pair with the largest difference relative to its standard
    error has a test and a decomposition of its pooled difference.
    """
    return pd.DataFrame(
        {"model": model, "attribute": attribute} | _of_pair(pair) | (_of_test(gap) if pair.groups == gap.groups else {})
        for attribute, gap in gaps.items()
        for pair in gap.pairs or (NOTHING,)
    )


def _of_pair(pair: PairGap) -> dict[str, object]:
    return {
        "first": pair.groups[0],
        "second": pair.groups[1],
        "hospitals": pair.hospitals,
        "difference": pair.estimate,
        "low": pair.low,
        "high": pair.high,
        "se": pair.se,
        "like_low": pair.like_low,
        "like_high": pair.like_high,
        "visible": pair.visible,
    }


def _of_test(gap: WithinGap) -> dict[str, object]:
    of_hospitals, of_ratios = gap.composition, gap.composition_ratio
    return {
        "p": gap.p,
        "p_holm": gap.p_holm,
        "arrangements": gap.arrangements,
        "exact": gap.exact,
        "pooled": gap.pooled,
        "mixed": gap.mixed,
        "composition": of_hospitals.estimate,
        "composition_low": of_hospitals.low,
        "composition_high": of_hospitals.high,
        "composition_ratio": of_ratios.estimate,
        "composition_ratio_low": of_ratios.low,
        "composition_ratio_high": of_ratios.high,
    }


def risks_table(model: str, gaps: Mapping[str, WithinGap]) -> pd.DataFrame:
    """Return the risks of each group of patients, one row per attribute and group; empty if the label is numeric."""
    return pd.DataFrame(
        {"model": model, "attribute": attribute, **risk._asdict()}
        for attribute, gap in gaps.items()
        for risk in gap.risks
    )


def clusters(outcome: Outcome) -> Any:
    """Return each hospital's cluster, counted from 0, as an array ``[N]``; None without clusters.

    A hospital that uses the global model (row 0 of the models) is in no cluster: its entry is missing.
    """
    if outcome.cluster is None:
        return None
    return pd.array([row - 1 if row > 0 else None for row in outcome.cluster.tolist()], dtype="Int64")


ATTACK = "attack.csv"


def as_json(figures: AttackFigures) -> dict[str, Any]:
    """Return the metrics of an attack, except those per hospital, as values for JSON; undefined values become None."""
    tree = dataclasses.asdict(figures)
    tree.pop("per_hospital")
    return dict(plain(tree))


def table(federation: Federation, outcome: Outcome, figures: AttackFigures) -> pd.DataFrame:
    """Return one row per hospital: whether it is Byzantine, its cluster (as in ``hospitals.csv``), and how much the
    attack harmed it.
    """
    bad = set(figures.bad)
    return pd.DataFrame(
        {
            "hospital": federation.hospitals,
            "bad": [name in bad for name in federation.hospitals],
            "cluster": clusters(outcome),
            "harm": figures.per_hospital,
        }
    )


TOP = (5, 10, 20)
"""The values of ``k`` in :func:`mean_overlap`."""


def tables(federation: Federation, outcome: Outcome) -> dict[str, pd.DataFrame]:
    """Return ``patient_clusters.csv`` and ``feature_overlap.csv`` by name; tables without content are absent."""
    tables = {"patient_clusters.csv": composition(federation, outcome), "feature_overlap.csv": overlap(outcome)}
    return {name: table for name, table in tables.items() if table is not None}


def composition(federation: Federation, outcome: Outcome) -> pd.DataFrame | None:
    """Return one row ``hospital, cluster, n_train`` per hospital and cluster of patients; None without clusters."""
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
    """Return the :func:`mean_overlap` of patient clusters' most important features, one row for each number in ``TOP``
    below the number of features.

    Returns None if no number in ``TOP`` is below the number of features, if there are fewer than two clusters of
    patients, or if the model is not linear.
    """
    served = [rows for rows in outcome.serve.values() if rows.ndim == 2]
    if not served or len(models := np.unique(served[-1])) < 2 or set(outcome.layout.names) != {"weight", "bias"}:
        return None
    # With several classes a feature has a coefficient for each: their Euclidean norm.
    sizes = np.stack([np.linalg.norm(outcome.layout.split(outcome.models[row])["weight"], axis=0) for row in models])
    shares = [(k, mean_overlap(sizes, k)) for k in TOP if k < sizes.shape[1]]
    return pd.DataFrame(shares, columns=["top", "overlap"]) if shares else None


def mean_overlap(sizes: Floats, k: int) -> float:
    """Return the share of the ``k`` largest coefficients that two models have in common, averaged over pairs of models.

    ``sizes [G, F]`` has the absolute coefficients of ``G`` models for ``F`` features. Among equal coefficients, the
    first counts as larger.
    """
    tops: Ids = np.argsort(-sizes, axis=1, kind="stable")[:, :k]
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in combinations(tops, 2)]))
