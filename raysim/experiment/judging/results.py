"""Converts predictions to the results of a comparison, evaluated by the same code as a run's models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.config.sections.evaluation import EvaluationSection
from raysim.data.build import fingerprint
from raysim.data.federation import Federation, write
from raysim.engine.job import Outcome, Result, Round
from raysim.engine.measuring.evaluation import Evaluation
from raysim.engine.measuring.measurement import Measured
from raysim.engine.measuring.scoring import PartRows
from raysim.engine.measuring.served_model import ServedModel
from raysim.experiment.judging.table import GROUP, Predictions
from raysim.metrics.measures import RANKS
from raysim.traffic.ledger import Ledger
from raysim.training.base import Layout

_ORDER = {*RANKS, "mean_unweighted", "worst_decile", "p10", "gini", "std", "size_bias", "size_bias_abs"}
"""Metrics of a federation that depend only on how a model ranks each hospital's rows."""


@dataclass(eq=False)
class _Nothing:
    """An empty record of traffic."""

    ledger: Ledger


def results_of(
    predictions: Predictions, section: EvaluationSection, rows_in: Path, folder_of: Callable[[str, int], Path]
) -> list[Result]:
    """Return a table of predictions as results of a comparison: a :class:`Result` for each model and seed.

    The evaluated rows are written to the folder ``rows_in``, which must exist as long as the results.
    ``folder_of(model, seed)`` is the folder for the result's files.
    """
    results = []
    hospitals = tuple(predictions.frame["hospital"].unique())
    first = int(predictions.frame["seed"].min())
    for seed, rows in predictions.frame.groupby("seed", sort=True):
        federation = _federation(rows, predictions, hospitals, rows_in / f"seed-{seed}")
        order = {identity: k for k, identity in enumerate(federation.source_rows.tolist())}
        all_rows = _all_rows(rows, hospitals)
        for model in predictions.models:
            theirs = rows[rows["model"] == model]
            if theirs.empty:
                continue
            served = dict(_margins(theirs, order))
            outcome = outcome_of(
                federation, served, section, int(str(seed)), tests_groups=seed == first, all_rows=all_rows
            )
            if model in predictions.decisions:
                only_ranks(outcome, federation)
            role = predictions.roles.get(model, "")
            folder = folder_of(model, int(str(seed)))
            learner = predictions.learners.get(model, "")
            results.append(
                Result(
                    model,
                    bool(role),
                    int(str(seed)),
                    federation,
                    outcome,
                    folder,
                    alone=role == "alone",
                    learner=learner,
                )
            )
    return sorted(results, key=lambda each: predictions.models.index(each.label))


def _all_rows(rows: pd.DataFrame, hospitals: tuple[str, ...]) -> NDArray[np.int64] | None:
    """Return each hospital's total number of rows; None if unknown."""
    if "all_rows" not in rows or rows["all_rows"].isna().any():
        return None
    known: NDArray[np.int64] = rows.groupby("hospital")["all_rows"].first().reindex(list(hospitals)).to_numpy()
    return None if np.isnan(known.astype(float)).any() else known.astype(np.int64)


def _margins(rows: pd.DataFrame, order: Mapping[int, int]) -> Iterator[tuple[str, NDArray[np.floating[Any]]]]:
    """Yield, for each model, the name and the outputs before the sigmoid, in the order of the federation's rows."""
    for served, theirs in rows.groupby("served", sort=False):
        values = theirs["margin"].to_numpy()
        margins = np.full_like(values, np.nan, shape=len(order))
        margins[[order[identity] for identity in theirs["identity"].tolist()]] = values
        yield str(served), margins


def _federation(rows: pd.DataFrame, predictions: Predictions, hospitals: tuple[str, ...], folder: Path) -> Federation:
    """Make a federation of the test rows of one seed, without features."""
    each = rows.drop_duplicates("identity")
    home = pd.Categorical(each["hospital"], categories=list(hospitals)).codes
    each = each.iloc[np.argsort(home, kind="stable")]
    counts = np.bincount(home, minlength=len(hospitals))
    ends = np.cumsum(counts)
    bounds = np.stack([ends - counts] * 3 + [ends], axis=1).astype(np.int64)
    identities, people = each["identity"].to_numpy(np.int64), each["person"].to_numpy(np.int64)
    nothing = np.empty((len(each), 0), dtype=np.float32)
    built: dict[str, Any] = {
        "X": nothing,
        "y": each["event"].to_numpy(np.int64),
        "observed": nothing.astype(np.bool_),
        "bounds": bounds,
        "patients": {name: _attribute(each[GROUP + name]) for name in predictions.groups},
        "meta": {
            "hospitals": list(hospitals),
            "features": [],
            "classes": [f"not {predictions.event}", predictions.event],
            "attributes": {},
            "notes": [],
            "preprocessing_scalars": 0,
        },
    }
    built["meta"]["fingerprint"] = fingerprint(built)
    folder.mkdir(parents=True)
    write(folder, **built, source_rows=identities, people=people)
    return Federation.open(folder)


def _attribute(values: pd.Series) -> NDArray[Any]:
    """Return a patient attribute as numbers, such as ages, or as texts."""
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(np.float64)
    return values.fillna("").astype(str).to_numpy(str)


def outcome_of(
    federation: Federation,
    served: Mapping[str, NDArray[np.floating[Any]]],
    section: EvaluationSection,
    seed: int,
    *,
    tests_groups: bool,
    all_rows: NDArray[np.int64] | None = None,
) -> Outcome:
    """Make the outcome of a run from predictions, as if the run's models had made them.

    ``served`` has each model's outputs for all test rows. ``all_rows [N]`` has each hospital's total number of rows,
    with or without predictions; None if unknown.
    """
    everyone, ledger = np.arange(len(federation.hospitals)), Ledger()
    evaluation = Evaluation(
        federation, section, everyone, 0, _Nothing(ledger), tests_groups=tests_groups, all_rows=all_rows
    )
    serve = {name: np.zeros_like(everyone) for name in served}
    rows, result, asked = PartRows.of(federation, everyone.tolist(), "test"), Measured(), evaluation.at_the_end(serve)
    for name, margins in served.items():
        lost = np.array([np.isnan(part).any() for part in np.split(margins, rows.offsets[1:-1])])
        model = ServedModel(name, everyone, rows, margins, margins, lost)
        model.enter(replace(asked, part="test"), seed, result)
    row = Round(0, float("nan"), 0, 0, 0)
    figures = evaluation.enter(row, [result])
    return Outcome(
        **vars(evaluation.gathered),
        rounds=[row],
        figures=figures,
        metrics=row.metrics,
        serve=serve,
        models=np.zeros((1, 0)),
        cluster=None,
        own_models={},
        layout=Layout((), ()),
        ledger=ledger,
        seconds=float("nan"),
        all_rows=all_rows,
    )


def only_ranks(outcome: Outcome, federation: Federation) -> None:
    """Set the metrics of ``outcome`` that need probabilities to NaN, and remove its ``scores``."""
    task = federation.task
    columns = [i for i, name in enumerate(task.figures) if name not in ("n", *task.counts, *RANKS)]
    outcome.scores.clear()
    for model, figures in outcome.figures.items():
        figures[:, columns] = np.nan
        for name in outcome.metrics[model]:
            if name not in _ORDER and name not in ("undefined", "hospitals"):
                outcome.metrics[model][name] = float("nan")
