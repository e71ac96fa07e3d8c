"""Evaluates models at hospitals that took no part in training, with the same metrics as for a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.evaluation import ClinicalSection
from raysim.data.federation import Federation
from raysim.experiment.scores import MODEL, is_probability, margins_of
from raysim.experiment.unseen.rows import Joins, Judged, JudgedRows
from raysim.metrics.labels import CLASSIFICATION, TaskKind
from raysim.metrics.measures import RANKS
from raysim.metrics.score_counts import ScoreCounts, score_counts
from raysim.report.panel import Sketched
from raysim.statistics.clinical.calibration import Groups
from raysim.statistics.discrimination.auroc import PairSums, pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches
from raysim.strategies.base import Floats


@dataclass(frozen=True, eq=False)
class Unseen:
    """The results of one model and seed at all hospitals; each hospital was left out of training once."""

    strategy: str
    model: str
    seed: int
    k: Joins
    hospitals: tuple[str, ...]
    fold: NDArray[np.int64]
    """The number of the fold in which each hospital was left out, ``[H]`` for ``H`` hospitals."""
    served_by: tuple[str, ...]
    """The name of the model used for each hospital; ``nobody`` if there is none."""
    figures: Floats
    """Each hospital's metrics, ``[H, len(task.figures)]``. Without a usable model, all but the counts of rows are
    NaN."""
    pairs: PairSums | None
    """The data that each hospital sends for the variance of its AUROC; None unless the label has two classes."""
    sketched: Sketched | None
    """The data that each hospital sends for the covariance of AUROC between models. None unless the label has two
    classes."""
    scores: ScoreCounts | None
    """Histograms of each hospital's predicted probabilities; None if clinical metrics are not computed."""
    scored: tuple[Groups, ...] | None
    """The predicted log-odds and labels of each hospital's rows; None if clinical metrics are not computed."""
    prevalence: Floats
    """For each hospital, the share of events among the participants' training rows when its fold was left out,
    ``[H]``."""
    offsets: NDArray[np.int64]
    """Array ``[H + 1]``: the evaluated rows of hospital ``h`` are those from ``offsets[h]`` up to ``offsets[h +
    1]``."""


def measured(
    left_out: Sequence[Judged], task: TaskKind, clinical: ClinicalSection | None, federation: Federation
) -> list[Unseen]:
    """Evaluate every strategy, model and seed at left-out hospitals, for every number of labelled
    rows with which a model is adapted.

    Clinical scores, such as APACHE, are evaluated too. ``federation`` has the rows of all hospitals.
    """
    groups: dict[tuple[str, str, int, Joins], list[JudgedRows]] = {}
    for each in left_out:
        for (model, k), rows in each.rows.items():
            groups.setdefault((each.strategy, model, each.seed, k), []).extend(rows)
    models = [of_rows(*key, rows, task, clinical) for key, rows in groups.items()]
    return [*models, *_scores(left_out, task, clinical, federation)]


def on_rows_of(
    score: str, each: Unseen, left_out: Sequence[Judged], task: TaskKind, clinical: ClinicalSection | None
) -> Unseen:
    """Evaluate the model of ``each`` again, only on the rows with a value of the existing clinical score ``score``."""
    runs = [run for run in left_out if (run.strategy, run.seed) == (each.strategy, each.seed)]
    rows = [of.those(np.isfinite(of.scores[score])) for run in runs for of in run.rows[each.model, each.k]]
    return of_rows(each.strategy, each.model, each.seed, each.k, rows, task, clinical)


def _scores(
    left_out: Sequence[Judged], task: TaskKind, clinical: ClinicalSection | None, federation: Federation
) -> Iterator[Unseen]:
    """Evaluate each existing clinical score with each seed, on the rows with a value of this score."""
    runs: dict[int, dict[int, Judged]] = {}
    for each in left_out:
        runs.setdefault(each.seed, {}).setdefault(each.fold.number, each)
    for seed, of in runs.items():
        for name in federation.scores:
            probability, rows = is_probability(federation, name), []
            k = next(iter(next(iter(of.values())).rows))[1]
            for run in of.values():
                for judged in next(iter(run.rows.values())):
                    known = judged.those(np.isfinite(judged.scores[name]))
                    margins = margins_of(known.scores[name], probability)
                    rows.append(replace(known, margins=margins, ranked=margins, served_by=name))
            yield of_rows(name, MODEL, seed, k, rows, task, clinical, risks=probability)


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
    """Evaluate a model's predictions on ``rows``, which has the evaluated rows of each hospital.

    If ``risks`` is false, only the ranking of predictions is evaluated.
    """
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
        np.array([each.prevalence for each in rows]),
        offsets,
    )
