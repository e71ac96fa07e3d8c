"""Metrics by group of patients (sex, ethnicity, age), within and across hospitals, and the gaps between groups.

Predictions stay at the hospital. The server computes a group's AUROC over all hospitals from histograms of scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.data.raw_columns import slices
from raysim.metrics.declared import ScoreFigure
from raysim.metrics.labels import TaskKind
from raysim.metrics.measures import ScoreHistogram, pooled_auroc, score_histogram

if TYPE_CHECKING:
    import pandas as pd


UNKNOWN = "unknown"
"""The name of the group of patients whose attribute is unknown."""

MOST_GROUPS = 100
"""The largest allowed number of groups of an attribute."""

EVERYWHERE = ""
"""The value in a table's hospital column that stands for all hospitals together."""


@dataclass(frozen=True)
class Grouping:
    """The groups of patients to compare: the names of the groups of each attribute, and the lower bounds of age groups
    in years (``bands``).
    """

    levels: tuple[tuple[str, tuple[str, ...]], ...]
    bands: tuple[float, ...]


@dataclass(eq=False)
class GroupFigures:
    """For one attribute of patients, the metrics of each group at each hospital of one process, ``[h, G, columns]``.

    ``histograms`` has one histogram of scores for each group. It is empty unless the label has two classes and the
    model returns one score per row.
    """

    figures: Floats
    histograms: list[ScoreHistogram]


def grouping(federation: Federation, wanted: Sequence[str] | None, bands: Sequence[float]) -> Grouping | None:
    """Return the groups of ``federation``'s patients by the attributes ``wanted``; None means all attributes in the
    data. ``bands`` are the lower bounds of age groups in years.

    Attributes that are unknown for all patients are left out. Return None if no attribute remains. Raises
    ``ConfigError`` for an attribute that the data does not have, or that has more than :data:`MOST_GROUPS` groups.
    """
    attributes = federation.patient_attributes
    for attribute in wanted or ():
        if attribute not in attributes:
            remedy = (
                f"known: {', '.join(attributes)}" if attributes else "remove the key, because the data source has none"
            )
            raise ConfigError(f"evaluation.groups: '{attribute}' is not an attribute of these patients; {remedy}")
    chosen = attributes if wanted is None else tuple(wanted)
    if not chosen:
        return None
    made = _grouping(str(federation.folder), federation.fingerprint, chosen, tuple(bands))
    for attribute, levels in made.levels:
        if len(levels) > MOST_GROUPS:
            raise ConfigError(
                f"evaluation.groups: '{attribute}' divides patients into {len(levels):,} groups, and at most "
                f"{MOST_GROUPS} are compared; leave it out, or name fewer groups in the data"
            )
    known = tuple((attribute, levels) for attribute, levels in made.levels if set(levels) != {UNKNOWN})
    return Grouping(known, made.bands) if known else None


@lru_cache(maxsize=16)
def _grouping(folder: str, fingerprint: str, chosen: tuple[str, ...], bands: tuple[float, ...]) -> Grouping:
    patients = Federation.open(folder).patients
    return Grouping(tuple((attribute, _ordered(patients[attribute], bands)) for attribute in chosen), bands)


def measure(
    grouping: Grouping,
    federation: Federation,
    hospitals: Sequence[int],
    part: str,
    outputs: NDArray[Any],
    y: NDArray[Any],
) -> dict[str, GroupFigures]:
    """Return, for each attribute of patients, the metrics of its groups at ``hospitals``.

    ``outputs [n, ...]`` and ``y [n]`` are the model outputs and labels of the hospitals' rows of ``part``.
    """
    measured = {}
    for attribute, levels in grouping.levels:
        order, offsets = cells(federation, tuple(hospitals), part, attribute, levels, grouping.bands)
        scores, labels = outputs[order], y[order]
        shape = len(hospitals), len(levels), len(federation.task.figures)
        figures = federation.task.measure(scores, labels, offsets).reshape(shape)
        histograms = []
        if federation.classes and outputs.ndim == 1:
            group = np.repeat(np.arange(len(offsets) - 1) % len(levels), np.diff(offsets))
            histograms = [score_histogram(scores[group == g], labels[group == g]) for g in range(len(levels))]
        measured[attribute] = GroupFigures(figures, histograms)
    return measured


@lru_cache(maxsize=16)
def cells(
    federation: Federation,
    hospitals: tuple[int, ...],
    part: str,
    attribute: str,
    levels: tuple[str, ...],
    bands: tuple[float, ...],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two arrays. The first is the order ``[n]`` that sorts the concatenated rows of the hospitals by hospital,
    and then by group in the order of ``levels``. The second has the position in the sorted rows at which each group of
    each hospital starts, followed by ``n``, ``[h * G + 1]``.
    """
    rows = [federation.rows(hospital, part) for hospital in hospitals]
    home = np.repeat(np.arange(len(rows)), np.array([r.stop - r.start for r in rows], dtype=np.int64))
    values = federation.patients[attribute]
    names, which = _groups(np.concatenate([values[:0], *(values[r] for r in rows)]), bands)
    position = {name: i for i, name in enumerate(levels)}
    group = np.array([position[name] for name in names], np.int64)[which]
    cells = home * len(levels) + group
    counts = np.bincount(cells, minlength=len(rows) * len(levels))
    return np.argsort(cells, kind="stable"), np.concatenate([[0], np.cumsum(counts)])


def merged(parts: Sequence[GroupFigures], order: NDArray[np.int64], task: TaskKind) -> tuple[Floats, Floats]:
    """Return two arrays: the metrics of an attribute's groups at each hospital, ``[N, G, columns]``, and their metrics
    over all hospitals, ``[G, columns]``.

    ``parts`` has one result per process, and ``order`` sorts the concatenated hospitals of all processes by id. The
    AUPRC and R2 over all hospitals are undefined. The AUROC and the recall over all hospitals are undefined if the
    label has more than two classes.
    """
    figures = np.concatenate([part.figures for part in parts])[order]
    together = np.full(figures.shape[1:], np.nan)
    column = {name: i for i, name in enumerate(task.figures)}
    n = figures[:, :, 0]
    binary = all(part.histograms for part in parts)
    for name in ("n", *task.counts):
        together[:, column[name]] = figures[:, :, column[name]].sum(axis=0)
    weights = {"rows": n, "rows, squared": n}
    if binary and "events" in column:
        events = figures[:, :, column["events"]]
        weights |= {"events": events, "other rows": n - events}
    for figure in task.declared:
        if figure.weighted_by in weights:
            values, over = figures[:, :, column[figure.name]], weights[figure.weighted_by]
            squared = figure.weighted_by == "rows, squared"
            mean = np.sqrt(_weighted(np.square(values), over)) if squared else _weighted(values, over)
            together[:, column[figure.name]] = mean
    if binary and "auroc" in column:
        for g in range(len(together)):
            together[g, column["auroc"]] = pooled_auroc(part.histograms[g] for part in parts)[0]
    return figures, together


def gaps(attribute: str, levels: Sequence[str], figures: Floats, together: Floats, task: TaskKind) -> dict[str, float]:
    """Return the gaps between the groups ``levels [G]`` of an attribute, as metrics by name; NaN where undefined.

    ``figures [N, G, columns]`` and ``together [G, columns]`` are the two results of :func:`merged`. Patients whose
    attribute is unknown are excluded from all gaps.

    - ``<attribute>_gap``: the largest minus the smallest main metric (such as the AUROC) of the groups, computed over
      all hospitals. ``<attribute>_<figure>_gap`` is the same difference for accuracy and recall. Both are NaN if fewer
      than two groups have a defined metric.
    - ``<attribute>_gap_within``: the largest minus the smallest main metric of the groups within one hospital, averaged
      over the hospitals where at least two groups have a defined metric.
    - ``<attribute>_undefined``: the number of groups that have evaluated rows at a hospital but no defined main metric
      there, summed over hospitals. Patients whose attribute is unknown are not counted as a group.
    - ``<attribute>_unknown_rows``: number of rows of patients whose attribute is unknown. ``<attribute>_unknown``: the
      main metric of these rows over all hospitals. Both are left out if the attribute of every patient is known.
    """
    column = {name: i for i, name in enumerate(task.figures)}
    headline = column[task.headline]
    group = np.array([level != UNKNOWN for level in levels], dtype=bool)
    apart = together[~group]
    figures, together = figures[:, group], together[group]
    metrics = {f"{attribute}_gap": _spread(together[:, headline])}
    for figure in task.declared:
        if isinstance(figure, ScoreFigure) and figure.gap:
            metrics[f"{attribute}_{figure.name}_gap"] = _spread(together[:, column[figure.name]])
    within = np.array([_spread(row) for row in figures[:, :, headline]])
    defined = within[np.isfinite(within)]
    metrics[f"{attribute}_gap_within"] = float(defined.mean()) if len(defined) else float("nan")
    tested = figures[:, :, 0] > 0
    metrics[f"{attribute}_undefined"] = float((tested & ~np.isfinite(figures[:, :, headline])).sum())
    if len(apart):
        metrics[f"{attribute}_unknown_rows"] = float(apart[0, 0])
        metrics[f"{attribute}_unknown"] = float(apart[0, headline])
    return metrics


def table(
    federation: Federation, grouping: Grouping, groups: dict[str, dict[str, tuple[Floats, Floats]]]
) -> pd.DataFrame:
    """Return the table ``patients.csv``. For each model, attribute and group, it has one row over all hospitals, and
    one row for each hospital with evaluated rows of the group.

    ``groups`` are the results of :func:`merged`, by model and attribute.
    """
    import pandas as pd

    task, names, levels = federation.task, np.array(federation.hospitals, dtype=object), dict(grouping.levels)
    heads, hospitals, blocks = [], [], []
    for model, attributes in groups.items():
        for attribute, (figures, together) in attributes.items():
            for g, group in enumerate(levels[attribute]):
                tested = figures[:, g, 0] > 0
                blocks.append(np.vstack([together[None, g], figures[tested, g]]))
                heads.append((model, attribute, group))
                hospitals.append(np.concatenate([[EVERYWHERE], names[tested]]))
    lengths = [len(block) for block in blocks]
    columns: dict[str, Any] = {
        name: np.repeat(np.array(values, dtype=object), lengths)
        for name, values in zip(("model", "attribute", "group"), zip(*heads, strict=True), strict=True)
    }
    columns["hospital"] = np.concatenate(hospitals)
    columns |= dict(zip(task.figures, np.concatenate(blocks).T, strict=True))
    return pd.DataFrame(columns).astype(dict.fromkeys(("n", *task.counts), "Int64"))


def _weighted(values: Floats, weights: Floats) -> Floats:
    """Return the weighted mean ``[G]`` of ``values [N, G]`` over hospitals; NaN if a hospital with a positive weight
    has no value, or if no weight is positive.
    """
    counted = weights > 0
    total = np.where(counted, weights, 0.0).sum(axis=0)
    summed = np.where(counted, values * weights, 0.0).sum(axis=0)
    with np.errstate(all="ignore"):
        mean: Floats = summed / total
    return mean


def _spread(values: Floats) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.max() - defined.min()) if len(defined) > 1 else float("nan")


def _groups(values: NDArray[Any], bands: tuple[float, ...]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the groups to which patients with attribute ``values [n]`` belong. The names are unordered,
    and some may be equal. Also return the index ``[n]`` of each patient's group among the names.
    """
    if values.dtype.kind != "f":
        place: dict[str, int] = {}  # each distinct text is processed once
        which = np.empty(len(values), np.int64)
        for at in slices(len(values)):
            which[at] = [place.setdefault(text, len(place)) for text in values[at].astype(str).tolist()]
        return [UNKNOWN if text.lower() in ("", UNKNOWN) else text for text in place], which
    recorded = np.isfinite(values)
    band = np.searchsorted(np.asarray(bands), np.where(recorded, values, 0.0), side="right")
    named = [*_band_names(bands), UNKNOWN]
    occurring, which = np.unique(np.where(recorded, band, len(named) - 1), return_inverse=True)
    return [named[i] for i in occurring], which.reshape(-1)


def _band_names(bands: tuple[float, ...]) -> list[str]:
    if not bands:
        return ["all ages"]
    inner = [f"{low:g} to under {high:g}" for low, high in pairwise(bands)]
    return [f"under {bands[0]:g}", *inner, f"{bands[-1]:g} and over"]


def _ordered(values: NDArray[Any], bands: tuple[float, ...]) -> tuple[str, ...]:
    """Return the groups that occur in ``values``: age groups from young to old, other groups by name, the unknown group
    last.
    """
    occurring = set(_groups(values, bands)[0])
    ordered = _band_names(bands) if values.dtype.kind == "f" else sorted(occurring - {UNKNOWN})
    return tuple(name for name in [*ordered, UNKNOWN] if name in occurring)
