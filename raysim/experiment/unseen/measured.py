"""Evaluates models at hospitals that took no part, with the same measures as for a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.evaluation import ClinicalSection, UnseenSection
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.data.split import number
from raysim.engine.measuring.recalibrating import estimated
from raysim.experiment.scores import MODEL, margins_of
from raysim.experiment.unseen.folds import LeftOut
from raysim.experiment.unseen.joining import fine_tuned, in_cluster
from raysim.metrics.labels import CLASSIFICATION, TaskKind
from raysim.metrics.measures import RANKS
from raysim.metrics.score_counts import ScoreCounts, score_counts
from raysim.report.panel import Sketched
from raysim.statistics.clinical.calibration import Groups
from raysim.statistics.clinical.recalibration import fit, rows_of
from raysim.statistics.discrimination.auroc import PairSums, pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches
from raysim.strategies.base import Floats

NOBODY = "nobody"
"""The ``served_by`` of a hospital for which no model can be used without labelled rows."""

_JOINING = {"fine_tune": fine_tuned, "cluster": in_cluster}

Joins = int | Literal["all"]


@dataclass(frozen=True, eq=False)
class Unseen:
    """The results of one model and seed at every hospital, each left out once, after ``k`` labelled rows joined."""

    strategy: str
    model: str
    seed: int
    k: Joins
    hospitals: tuple[str, ...]
    fold: NDArray[np.int64]
    """The fold in which each hospital was left out, ``[H]``."""
    served_by: tuple[str, ...]
    """The model used for each hospital: the model, a cluster's model, or :data:`NOBODY`."""
    figures: Floats
    """The figures, as for a run, ``[H, len(task.figures)]``; NaN without a usable model, or with too few rows
    to join."""
    pairs: PairSums | None
    """What each hospital sends for the variance of its AUROC; None unless the label has two classes."""
    sketched: Sketched | None
    """What each hospital sends for the covariance of its AUROC with other models' AUROC; None as for ``pairs``."""
    scores: ScoreCounts | None
    """Counts of scores for the clinical figures; None unless these are defined."""
    scored: tuple[Groups, ...] | None
    """The scores by hospital; None as for ``scores``."""
    offsets: NDArray[np.int64]
    """The offsets of each hospital's judged rows, ``[H + 1]``."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """The judged rows of one hospital under one model."""

    margins: NDArray[Any]
    ranked: NDArray[Any]
    y: NDArray[Any]
    patients: NDArray[np.int64]
    place: int
    """The hospital's id."""
    name: str
    fold: int
    served_by: str


def measured(left_out: Sequence[LeftOut], section: UnseenSection, clinical: ClinicalSection | None) -> list[Unseen]:
    """Evaluate every strategy, model used and seed for every number of labelled rows, and every existing score once."""
    groups: dict[tuple[str, str, int], list[LeftOut]] = {}
    for each in left_out:
        for model in each.result.outcome.predictions:
            groups.setdefault((each.result.label, model, each.result.seed), []).append(each)
    models = [
        _unseen(of, model, k, section, clinical) for (_, model, _), of in groups.items() for k in section.onboarding
    ]
    return [*models, *_scores(left_out, section, clinical)]


def on_rows_of(
    score: str, each: Unseen, left_out: Sequence[LeftOut], section: UnseenSection, clinical: ClinicalSection | None
) -> Unseen:
    """Evaluate ``each`` only on the rows that have a value of an existing score."""
    of = [run for run in left_out if (run.result.label, run.result.seed) == (each.strategy, each.seed)]
    return _unseen(of, each.model, each.k, section, clinical, score)


def _scores(left_out: Sequence[LeftOut], section: UnseenSection, clinical: ClinicalSection | None) -> Iterator[Unseen]:
    """Evaluate each existing score with each seed, on the rows that have a value."""
    runs: dict[int, dict[int, LeftOut]] = {}
    for each in left_out:
        runs.setdefault(each.result.seed, {}).setdefault(each.fold.number, each)
    for seed, of in runs.items():
        first = next(iter(of.values())).result.federation
        for name in first.scores:
            rows = [row for run in of.values() for row in _rows_of_score(run, name, section)]
            probability = margins_of(first, name)[1]
            found = of_rows(name, MODEL, seed, section.onboarding[0], rows, first.task, clinical, risks=probability)
            yield found


def _rows_of_score(run: LeftOut, score: str, section: UnseenSection) -> Iterator[JudgedRows]:
    federation = run.result.federation
    for name in run.fold.held:
        h = federation.hospitals.index(name)
        rows = federation.rows(h, "test")
        order, joins = _joining(federation, h, run.result.seed, section)
        judged = np.sort(order[max(joins.values()) :])
        margins = margins_of(federation, score)[0][rows]
        judged = judged[~np.isnan(margins[judged])]
        said, people = margins[judged], federation.identities[rows][judged]
        yield JudgedRows(said, said, federation.y[rows][judged], people, h, name, run.fold.number, score)


def _unseen(
    of: Sequence[LeftOut],
    model: str,
    k: Joins,
    section: UnseenSection,
    clinical: ClinicalSection | None,
    within: str | None = None,
) -> Unseen:
    first = of[0].result
    rows = [each for run in of for each in _rows(run, model, k, section, within)]
    return of_rows(first.label, model, first.seed, k, rows, first.federation.task, clinical)


def of_rows(
    strategy: str,
    model: str,
    seed: int,
    k: Joins,
    rows: Sequence[JudgedRows],
    task: TaskKind,
    clinical: ClinicalSection | None,
    *,
    risks: bool = True,
) -> Unseen:
    """Evaluate a model's predictions on the judged ``rows`` of every hospital. Without ``risks``, only its ranking."""
    rows = sorted(rows, key=lambda each: each.place)
    offsets = np.concatenate([[0], np.cumsum([len(each.y) for each in rows])]).astype(np.int64)
    margins, ranked, y = (np.concatenate([getattr(each, name) for each in rows]) for name in ("margins", "ranked", "y"))
    ids = np.array([each.place for each in rows])
    figures = task.measure(margins, y, offsets)
    if k != 0:
        columns = [task.figures.index(name) for name in RANKS]
        figures[:, columns] = task.measure(ranked, y, offsets)[:, columns]
    lost = np.array([np.isnan(each.margins).any() or not len(each.y) for each in rows])
    counts = [task.figures.index(name) for name in ("n", *task.counts)]
    undefined = np.ones(figures.shape[1], dtype=bool)
    undefined[counts] = False
    figures[np.ix_(lost, undefined)] = np.nan
    if not risks:
        figures[:, [i for i, name in enumerate(task.figures) if name not in ("n", *task.counts, *RANKS)]] = np.nan
    two = task is CLASSIFICATION and margins.ndim == 1
    patients = np.concatenate([each.patients for each in rows])
    names = tuple(each.name for each in rows)
    counted = scored = None
    if two and risks and clinical is not None:
        counted = score_counts(margins, y, offsets, clinical.counted_at)
        scored = tuple(Groups(each.margins, np.ones(len(each.y)), each.y) for each in rows)
    return Unseen(
        strategy,
        model,
        seed,
        k,
        names,
        np.array([each.fold for each in rows]),
        tuple(each.served_by for each in rows),
        figures,
        pair_sums(ranked, y, offsets) if two else None,
        Sketched(names, sketches(placements(ranked, y, offsets), ids, patients)) if two else None,
        counted,
        scored,
        offsets,
    )


def _rows(run: LeftOut, model: str, k: Joins, section: UnseenSection, within: str | None) -> Iterator[JudgedRows]:
    federation, outcome = run.result.federation, run.result.outcome
    prior = estimated(outcome.validation_scores[model]) if k != 0 and model in outcome.validation_scores else None
    untrained = outcome.untrained.get(model)
    for name in run.fold.held:
        h = federation.hospitals.index(name)
        rows = federation.rows(h, "test")
        order, joins = _joining(federation, h, run.result.seed, section)
        last = max(joins.values())
        judged = np.sort(order[last:])
        if within is not None:
            judged = judged[np.isfinite(federation.scores[within][rows][judged])]
        margins, y = outcome.predictions[model][rows], federation.y[rows]
        changed: str | None = None
        ranked, out = margins[judged], margins[judged].astype(np.float64) if k != 0 else margins[judged]
        if k not in joins:
            out = np.full_like(out, np.nan, dtype=np.float64)
        elif k != 0 and section.joining != "recalibrate":
            after = _JOINING[section.joining](run, model, h, order[: joins[k]])
            said = np.full_like(margins, np.nan) if after is None else after.margins
            out = ranked = said[judged]
            changed = NOBODY if after is None else after.served_by
        elif k != 0 and prior is not None:
            joined = order[: joins[k]]
            shifts = fit(rows_of(margins[joined], y[joined], [0, len(joined)]), "eb", prior)
            out = shifts.intercept[0] + shifts.slope[0] * out
        nobody = np.isnan(margins).any() or (untrained is not None and bool(untrained[h]))
        if nobody:
            out, ranked = np.full_like(out, np.nan), np.full_like(ranked, np.nan)
        cluster = None if outcome.cluster is None else int(outcome.cluster[h])
        served = model if not cluster else f"{model} {cluster - 1}"
        yield JudgedRows(
            out,
            ranked if k in joins else np.full_like(ranked, np.nan),
            y[judged],
            federation.identities[rows][judged],
            h,
            name,
            run.fold.number,
            NOBODY if nobody else changed or served,
        )


def _joining(
    federation: Federation, h: int, seed: int, section: UnseenSection
) -> tuple[NDArray[np.int64], dict[Joins, int]]:
    """Return the order in which a hospital's rows would join, and the number of rows at each possible step.

    All rows of a patient join together.
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
