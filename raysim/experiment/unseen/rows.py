"""The evaluated rows of a fold's hospitals, for each model and each number of labelled rows that adapt the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.evaluation import UnseenSection
from raysim.core.streams import stream
from raysim.core.words import listed
from raysim.data.federation import Federation, pooled_rows
from raysim.data.fitted import Categorical
from raysim.data.split import number
from raysim.engine.measuring.recalibrating import estimated
from raysim.experiment.unseen.folds import Fold, LeftOut
from raysim.experiment.unseen.joining import NOBODY, in_cluster, joined, name_of


def notes_of(run: LeftOut) -> Iterator[str]:
    """Return sentences on columns that differ at left-out hospitals: empty columns, and categories unknown in
    training."""
    federation = run.result.federation
    for name in run.fold.held:
        rows = federation.rows(federation.hospitals.index(name), "test")
        X, observed, first, empty = federation.X[rows], federation.observed[rows], 0, []
        for column in federation.preprocessing.columns:
            block = slice(first, first + len(column.values))
            known, first = observed[:, block].any(axis=1), block.stop
            if not known.any():
                empty.append(f"'{column.name}'")
            elif isinstance(column, Categorical) and not column.coded:
                share = float((known & ~X[:, block].any(axis=1)).mean())
                if share:
                    yield (
                        f"{share:.0%} of the rows of {name} have a '{column.name}' that no participant has: they are "
                        "scored with 0 for every category."
                    )
        if empty and np.size(X):
            yield f"{name} has no value of {listed(empty, 5)}: it is filled in as at the participants."


Joins = int | Literal["all"]
"""How many labelled rows of a left-out hospital adapt a model; ``all`` means all rows that are not kept for testing."""

MOST_NOTES = 3
"""Largest number of printed sentences on columns that differ at left-out hospitals."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """The evaluated rows of one hospital, with one model's predictions."""

    margins: NDArray[Any]
    """The model's output for each row, ``[n]``, or for each row and class, ``[n, C]``; NaN if no model can be used."""
    ranked: NDArray[Any]
    """The model's outputs before recalibration with the hospital's labelled rows; AUROC and AUPRC are computed from
    them."""
    y: NDArray[Any]
    patients: NDArray[np.int64]
    place: int
    """The hospital's index in the federation."""
    name: str
    fold: int
    served_by: str
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """For each existing clinical score, by name, its value in each of the ``n`` rows, ``[n]``; NaN for rows without a
    value."""
    prevalence: float = float("nan")
    """The share of events among participants' training rows; NaN if there are no participants, or if the label does not
    have two classes."""

    def those(self, mask: NDArray[np.bool_]) -> JudgedRows:
        """Return only the rows marked in ``mask [n]``."""
        scores = {name: values[mask] for name, values in self.scores.items()}
        of = {name: getattr(self, name)[mask] for name in ("margins", "ranked", "y", "patients")}
        return replace(self, scores=scores, **of)


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows of a left-out hospital, with predictions of models that used no labelled row of this hospital."""

    source_rows: NDArray[np.int64]
    """The rows' positions in the source, ``[n]``."""
    margins: Mapping[str, NDArray[Any]]
    """By model name, the model's output for each row, ``[n]``, or for each row and class, ``[n, C]``."""


@dataclass(frozen=True, eq=False)
class Judged:
    """The predictions of a run at the hospitals that its fold left out of training."""

    strategy: str
    seed: int
    fold: Fold
    folder: Path
    """The folder of the run's files."""
    rows: Mapping[tuple[str, Joins], tuple[JudgedRows, ...]]
    """The evaluated rows of each hospital of the fold. The key is a pair: the model's name, and the number of labelled
    rows (or ``all``) that adapt the model."""
    everything: Mapping[str, AllRows]
    """All rows of each hospital of the fold, by the hospital's name."""
    notes: tuple[str, ...]
    """Sentences on columns that the fold's hospitals record differently from participants."""


def notes(left_out: Sequence[Judged]) -> list[str]:
    """Return the notes of all folds, at most :data:`MOST_NOTES`, and a sentence that counts the others."""
    folds = {each.fold.number: each for each in reversed(left_out)}  # all runs of a fold have the same notes
    texts = [text for fold in sorted(folds) for text in folds[fold].notes]
    more = len(texts) - MOST_NOTES
    return (
        [*texts[:MOST_NOTES], f"The same holds for {more:,} more columns of hospitals left out."] if more > 0 else texts
    )


def judge(run: LeftOut, section: UnseenSection) -> Judged:
    """Return the predictions of all models of a run for the hospitals that the run left out."""
    result, federation = run.result, run.result.federation
    predictions = result.outcome.predictions
    everything = {}
    for name in run.fold.held:
        own = federation.rows(federation.hospitals.index(name), "test")
        margins = {model: outputs[own].copy() for model, outputs in predictions.items()}
        everything[name] = AllRows(federation.source_rows[own].copy(), margins)
    rows = {(model, k): tuple(_rows(run, model, k, section)) for model in predictions for k in section.onboarding}
    notes = tuple(notes_of(run))
    return Judged(result.label, result.seed, run.fold, result.folder, rows, everything, notes)


def _rows(run: LeftOut, model: str, k: Joins, section: UnseenSection) -> Iterator[JudgedRows]:
    from raysim.statistics.clinical.recalibration import fit, rows_of  # imports scipy.special, which is slow

    federation, outcome = run.result.federation, run.result.outcome
    prior = estimated(outcome.validation_scores[model]) if k != 0 and model in outcome.validation_scores else None
    untrained = outcome.untrained.get(model)
    two = len(federation.classes) == 2
    prevalence = float(federation.y[pooled_rows(federation)].mean()) if two else float("nan")
    for name in run.fold.held:
        h = federation.hospitals.index(name)
        rows = federation.rows(h, "test")
        order, joins = _joining(federation, h, run.result.seed, section)
        last = max(joins.values())
        judged, labelled = np.sort(order[last:]), order[: joins.get(k, 0)]
        margins, y = outcome.predictions[model][rows], federation.y[rows]
        nobody = np.isnan(margins).any() or (untrained is not None and bool(untrained[h]))
        serve = outcome.serve.get(model)
        by_cluster = outcome.cluster is not None and serve is not None and serve.ndim == 1 and serve[h] > 0
        served = name_of(model, int(serve[h])) if by_cluster and serve is not None else model
        cluster = in_cluster(run, model, h, labelled)
        if cluster is not None:
            margins, served, nobody = cluster.margins, cluster.served_by, cluster.served_by == NOBODY
        ranked, out = margins[judged], margins[judged].astype(np.float64) if k != 0 else margins[judged]
        own = None
        if k != 0 and k in joins:
            own = joined(run, model, h, labelled, section.joining, defined=not nobody)
        if k not in joins:
            out = ranked = np.full_like(out, np.nan)
        elif own is not None:
            out = ranked = own.margins[judged]
            served, nobody = own.served_by, False
        elif k != 0 and section.joining == "fine_tune":
            nobody = True
        elif k != 0 and section.joining == "recalibrate" and prior is not None:
            shifts = fit(rows_of(margins[labelled], y[labelled], [0, len(labelled)]), "eb", prior)
            out = shifts.intercept[0] + shifts.slope[0] * out
        if nobody:
            out = ranked = np.full_like(out, np.nan, dtype=np.float64)
        yield JudgedRows(
            out,
            ranked,
            y[judged],
            federation.identities[rows][judged],
            h,
            name,
            run.fold.number,
            NOBODY if nobody else served,
            {score: values[rows][judged] for score, values in federation.scores.items()},
            prevalence,
        )


def _joining(
    federation: Federation, h: int, seed: int, section: UnseenSection
) -> tuple[NDArray[np.int64], dict[Joins, int]]:
    """Return a random order of hospital ``h``'s test rows, in which labelled rows come first, and the actual number of
    labelled rows for each configured number.

    Either all rows of a patient are labelled or none, so there may be fewer labelled rows than configured. Configured
    numbers that leave too few rows for evaluation are omitted. If all are omitted, the result has only 0 labelled rows.
    """
    people = federation.identities[federation.rows(h, "test")]
    present, turn = np.unique(people, return_inverse=True)
    shuffled = stream(seed, "rows that join", number(federation.hospitals[h])).permutation(len(present))
    order = np.argsort(shuffled[turn], kind="stable")
    most = int((1 - section.held) * len(people) + 1e-9)
    joins: dict[Joins, int] = {}
    for k in section.onboarding:
        rows = most if k == "all" else k
        if rows <= most:
            # A patient whose rows would be divided is left out.
            while rows and rows < len(people) and people[order[rows - 1]] == people[order[rows]]:
                rows -= 1
            joins[k] = rows
    return order, joins or {0: 0}
