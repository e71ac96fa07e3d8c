"""Clusters of hospitals: their attributes, and the means of their signatures (statistics of training rows)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.core.words import listed
from raysim.data.federation import Federation
from raysim.engine.job import Result
from raysim.report import svg
from raysim.report.figures.models import Names
from raysim.report.naming import number, of_strategy
from raysim.report.tables import read_csv
from raysim.strategies.base import Rows
from raysim.strategies.shared.signatures import (
    Signature,
    exact_signature,
    fill_with_column_means,
    label_scalars,
    standardise,
)

LEVELS = 8
"""Hospital attributes with more values than this are left out."""

FEATURES = 6
"""The largest number of features whose means are shown."""

ClusterMeans = tuple[list[str], NDArray[np.float64], list[list[str]]]
"""The means of ``R`` quantities in each of ``K`` clusters, in three parts:

- the names of the quantities;
- the means minus those of all hospitals, in standard deviations over hospitals, ``[R, K]``;
- the means as texts, one row for each quantity; for a feature, the texts of its values in the second part.
"""


def clusters(results: Sequence[Result], names: Names) -> list[svg.Figure]:
    """Plot heat maps of hospital clusters by strategy, for the first seed.

    The heat maps show the attributes of each cluster's hospitals and, if hospitals sent signatures without noise, the
    means of signatures in each cluster.
    """
    charts: list[svg.Chart] = []
    answers: NDArray[np.float64] | None = None
    signed = False
    for alike in _alike([each for each in results if each.seed == results[0].seed]):
        result, rows = alike[0], np.asarray(alike[0].outcome.cluster)
        present = np.unique(rows[rows > 0])
        of = [of_strategy(next(names[key] for key in names if key[0] == each.label)) for each in alike]
        title = listed(of)
        columns = [f"{k} ({int((rows == k).sum())})" for k in present]
        row_names, shares = _shares(result.federation, rows, present)
        if row_names:
            charts.append(
                svg.heat_map(
                    row_names,
                    columns,
                    shares,
                    name=f"clusters-{len(charts)}",
                    column_title="cluster (hospitals in it)",
                    title=title,
                    description=f"Shares of hospitals of each of {len(present)} clusters by attribute.",
                    texts=[[f"{share:.0%}" for share in line] for line in shares],
                    high=1.0,
                )
            )
        if any(map(_reported_signatures, alike)):
            signed = True
            answers = signatures(result.federation) if answers is None else answers
            sent = result.federation.sizes("train") > 0
            feature_rows, far, texts = cluster_means(result.federation, answers[sent], rows[sent], present)
            charts.append(
                svg.heat_map(
                    feature_rows,
                    columns,
                    np.abs(far),
                    name=f"clusters-{len(charts)}",
                    column_title="cluster (hospitals in it)",
                    title=f"{title}: signatures",
                    description="; ".join(
                        f"{name}: {', '.join(line)}" for name, line in zip(feature_rows, texts, strict=True)
                    )
                    + ".",
                    texts=texts,
                )
            )
    if not charts:
        return []
    signature_note = (
        " Hospitals were clustered by the signatures that they sent; values are means over a cluster. Features are "
        f"standardised over all hospitals; only the {FEATURES} with the largest differences between clusters are "
        "listed. Darker is farther from the mean of all hospitals."
    ) * signed
    return [
        svg.figure(
            "clusters",
            "Who is in which cluster",
            charts,
            "The share of a cluster's hospitals with each attribute; its number of hospitals is in brackets. Clusters "
            f"are from seed {results[0].seed}; their numbers cannot be compared between strategies.{signature_note}",
        )
    ]


def _alike(results: Sequence[Result]) -> list[list[Result]]:
    """Return the runs with more than one cluster, in groups whose clusters are identical."""
    groups: dict[bytes, list[Result]] = {}
    for result in results:
        rows = np.asarray(result.outcome.cluster if result.outcome.cluster is not None else [], dtype=np.int64)
        if len(np.unique(rows[rows > 0])) > 1:
            groups.setdefault(rows.tobytes(), []).append(result)
    return list(groups.values())


def _shares(
    federation: Federation, rows: NDArray[np.int64], clusters: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.float64]]:
    """Return the share of each cluster's hospitals that have each value of each attribute.

    The result is the names of ``R`` values and the shares ``[R, K]`` in ``K`` clusters.
    """
    row_names, shares = [], []
    for attribute, values in federation.attributes.items():
        levels = sorted(set(values))
        if len(levels) > LEVELS:
            continue
        for level in levels:
            row_names.append(f"{attribute}: {level or 'unknown'}")
            has = np.array([value == level for value in values])
            shares.append([has[rows == k].mean() for k in clusters])
    return row_names, np.array(shares)


def _reported_signatures(result: Result) -> bool:
    """Whether hospitals sent their signatures without noise."""
    if result.outcome.privacy is not None and Signature.name in result.outcome.privacy.covers:
        return False
    if result.outcome.ledger.entries:
        return any(kind == Signature.name for _, kind, *_ in result.outcome.ledger.entries)
    file = result.folder / "egress.csv"
    return file.exists() and bool((read_csv(file)["kind"] == Signature.name).any())


def signatures(federation: Federation) -> NDArray[np.float64]:
    """Return the signatures of all hospitals, one row each; see :class:`Signature`."""
    parts = [federation.rows(h, "train") for h in range(len(federation.hospitals))]
    rows = (Rows(federation.X[at], federation.y[at], federation.observed[at]) for at in parts)
    return np.stack([exact_signature(of_hospital, len(federation.classes)) for of_hospital in rows])


def cluster_means(
    federation: Federation, answers: NDArray[np.float64], rows: NDArray[np.int64], clusters: NDArray[np.int64]
) -> ClusterMeans:
    """Average signatures over each cluster: size, label, missing values, and some feature means.

    Only the :data:`FEATURES` features whose means differ most between clusters are returned.
    """
    label, columns = label_scalars(len(federation.classes)), federation.observed.shape[1]
    blocks = np.split(answers, [1, 1 + label, 1 + label + columns, 1 + label + 2 * columns], axis=1)
    size, of_label, missing, mean, _ = blocks
    labels = [f"share of {name}" for name in federation.classes[1:]] or ["mean of the label", "deviation of the label"]
    features = [f"mean {name}" for name in federation.features[:columns]]
    raw = np.concatenate([size, of_label, np.nanmean(missing, axis=1, keepdims=True)], axis=1)
    deviations = standardise(fill_with_column_means(np.concatenate([raw, mean], axis=1)))
    inside = [rows == k for k in clusters]
    far = np.stack([deviations[members].mean(axis=0) for members in inside], axis=1)
    first = 2 + label
    most = first + np.argsort(-np.ptp(far[first:], axis=1), kind="stable")[:FEATURES]
    chosen = [*range(first), *most.tolist()]
    texts: list[list[str]] = []
    for column in chosen:
        if column == 0:
            texts.append([f"{np.exp(np.nanmean(size[members])):,.0f}" for members in inside])
        elif column < first:
            share = column > label or bool(federation.classes)
            values = [float(np.nanmean(raw[members, column])) for members in inside]
            texts.append([f"{value:.1%}" if share else number(value, 2) for value in values])
        else:
            texts.append([number(float(value), 1, sign=True) for value in far[column]])
    named = ["training rows (geometric mean)", *labels, "missing values", *features]
    return [named[column] for column in chosen], far[chosen], texts
