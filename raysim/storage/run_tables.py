"""The tables of a run: one row for each round, hospital, row of the source, or message that left a hospital."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.data.federation import PARTS, Federation
from raysim.data.raw_columns import slices
from raysim.engine.job import Outcome, Round
from raysim.engine.measuring.recalibrating import Recalibrated
from raysim.metrics.predictions import predictions
from raysim.metrics.segments import ranges
from raysim.statistics.discrimination.auroc import delong_of_sums
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.intervals import auroc_interval
from raysim.statistics.meta_analysis.between_hospitals import shrunken_auroc
from raysim.storage.detail_tables import clusters
from raysim.strategies.base import Floats

VIRTUAL = ("virtual_seconds", "asked", "staleness")
"""Columns that the table of rounds has only in runs with unreliable hospitals."""


def rounds_table(rounds: Iterable[Round]) -> pd.DataFrame:
    """Return one row per round: time, cohort, traffic, training loss, and ``<model>_<metric>`` for every model.

    Runs with early stopping also have the column ``validation_loss``. Runs with unreliable hospitals have the columns
    :data:`VIRTUAL`, explained in :class:`Round`.
    """
    return pd.DataFrame(
        {
            "round": row.round,
            "seconds": row.seconds,
            "cohort_size": row.cohort_size,
            "bytes_down": row.bytes_down,
            "bytes_up": row.bytes_up,
            "training_loss": math.nan if row.training_loss is None else row.training_loss,
        }
        | ({} if row.validation_loss is None else {"validation_loss": row.validation_loss})
        | ({} if row.virtual_seconds is None else {name: getattr(row, name) for name in VIRTUAL})
        | {f"{model}_{name}": value for model, metrics in row.metrics.items() for name, value in metrics.items()}
        for row in rounds
    )


def hospitals_table(federation: Federation, outcome: Outcome, part: str) -> pd.DataFrame:
    """Return ``hospitals.csv``: one row per hospital and model. Undefined values are empty.

    ``rounds`` is the number of all rounds. ``participated`` is the number of rounds in which the hospital sent an
    update or ran a client program. Both columns are absent under a privacy guarantee. ``cluster`` is empty if the
    hospital is in no cluster.
    """
    task, tables = federation.task, []
    took_part = outcome.participated(len(federation.hospitals))
    rounds = {} if took_part is None else {"participated": took_part, "rounds": outcome.rounds_run}
    for model, figures in outcome.figures.items():
        columns = dict(zip(task.figures, figures.T, strict=True))
        intervals = auroc_intervals(outcome, model)
        trained, stays = federation.sizes("train"), federation.totals
        if outcome.noisy_sizes is not None:  # the noisy numbers that they have released
            trained, stays = outcome.noisy_sizes, outcome.stays(federation, model)
        head = {
            "hospital": federation.hospitals,
            "n_train": trained,
            f"n_{part}": columns.pop("n").astype(np.int64),
            **{f"{name}_{part}": pd.array(columns.pop(name), dtype="Int64") for name in task.counts},
            "cluster": clusters(outcome),
            "model": model,
        }
        tail = {"n_total": stays, **rounds, "trained": _trained(outcome, model, len(federation.hospitals))}
        tables.append(pd.DataFrame(head | columns | intervals | tail))
    return pd.concat(tables, ignore_index=True)


def _trained(outcome: Outcome, model: str, hospitals: int) -> NDArray[Any]:
    """Return whether each hospital's model was trained: ``yes``, ``no``, or ``one class`` (all labels equal)."""
    trained = np.full(hospitals, "yes", dtype=object)
    for states, word in ((outcome.one_class, "one class"), (outcome.untrained, "no")):
        if model in states:
            trained[states[model]] = word
    return trained


def recalibration_table(federation: Federation, recalibrated: Recalibrated) -> pd.DataFrame:
    """Return the recalibration of the model at each hospital, one row per hospital."""
    return pd.DataFrame(
        {
            "hospital": federation.hospitals,
            "validation_rows": recalibrated.rows,
            "validation_events": recalibrated.events,
            "intercept": recalibrated.shifts.intercept,
            "slope": recalibrated.shifts.slope,
            "reason": recalibrated.shifts.reason,
        }
    )


def split_table(federation: Federation) -> pd.DataFrame:
    """Return one row per used row of the source, in the source's order: ``row`` (from 0), ``hospital`` and ``part``."""
    return pd.concat(split_pieces(federation), ignore_index=True)


def split_pieces(federation: Federation) -> Iterator[pd.DataFrame]:
    """Yield the table of :func:`split_table` in parts, to limit memory."""
    names, parts = np.array(federation.hospitals, dtype=object), np.array(PARTS, dtype=object)
    order, bounds = np.argsort(federation.source_rows, kind="stable"), federation.bounds
    for at in slices(len(order)):
        rows = order[at]
        home = np.searchsorted(bounds[:, 3], rows, side="right")  # the first hospital that ends after the row
        part = (rows >= bounds[home, 1]).astype(np.int64) + (rows >= bounds[home, 2])
        yield pd.DataFrame({"row": federation.source_rows[rows], "hospital": names[home], "part": parts[part]})


def predictions_table(federation: Federation, outcome: Outcome) -> pd.DataFrame:
    """Return the predictions of each model: ``row, hospital, part, model`` and the columns of :func:`predictions`.

    There is one row per model and row of :func:`split_table`.
    """
    order = np.argsort(federation.source_rows, kind="stable")
    split, blocks = split_table(federation), []
    for model, outputs in outcome.predictions.items():
        columns = predictions(outputs[order], federation.classes)
        blocks.append(split.assign(model=model, **columns))
    return pd.concat(blocks, ignore_index=True)


def judged_rows(federation: Federation, outcome: Outcome, part: str) -> pd.DataFrame:
    """Return the predictions of each model for the rows of ``part``, in the format that ``raysim judge`` reads.

    The label must have two classes. Columns: ``hospital, row, patient, label, model, margin, probability, train_rows,
    all_rows`` and ``group_<attribute>``.
    """
    sizes, k = federation.sizes(part), PARTS.index(part)
    index = ranges(federation.bounds[:, k], sizes)
    home = np.repeat(np.arange(len(sizes)), sizes)
    rows = {
        "hospital": np.array(federation.hospitals, dtype=object)[home],
        "row": federation.source_rows[index],
        "patient": federation.identities[index],
        "label": federation.y[index],
    }
    groups = {f"group_{name}": values[index] for name, values in federation.patients.items()}
    trained = {"train_rows": federation.sizes("train")[home], "all_rows": federation.totals[home]}
    blocks = []
    for model, outputs in outcome.predictions.items():
        margins = outputs[index]
        predicted = {"model": model, "margin": margins, **predictions(margins, federation.classes)}
        blocks.append(pd.DataFrame(rows | predicted | trained | groups))
    return pd.concat(blocks, ignore_index=True)


def auroc_intervals(outcome: Outcome, model: str) -> dict[str, Floats]:
    """Return columns by name: the 95 % interval of each hospital's AUROC, and a shrunken AUROC with its interval.

    ``auroc_low`` and ``auroc_high`` measure uncertainty due to the hospital's patients. ``auroc_shrunken`` is the AUROC
    shrunken towards the mean over hospitals, more strongly if it is less certain; NaN if undefined.
    """
    sums = outcome.pairs.get(model)
    if sums is None:
        return {}
    auroc, variance = delong_of_sums(sums)
    interval = auroc_interval(auroc, variance, sums.events, sums.non_events)
    shrunken = shrunken_auroc(common_curve(sums))
    return {
        "auroc_low": interval.low,
        "auroc_high": interval.high,
        "auroc_shrunken": shrunken[0],
        "auroc_shrunken_low": shrunken[1],
        "auroc_shrunken_high": shrunken[2],
    }


def egress_table(federation: Federation, outcome: Outcome) -> pd.DataFrame:
    """Return every message that left a hospital, one row each."""
    entries, names = outcome.ledger.entries, np.array(federation.hospitals, dtype=object)
    counts = [len(entry.hospitals) for entry in entries]
    return pd.DataFrame(
        {
            "round": np.repeat([entry.round for entry in entries], counts),
            "hospital": np.concatenate([names[entry.hospitals] for entry in entries]),
            "kind": np.repeat([entry.kind for entry in entries], counts),
            "bytes": np.concatenate([entry.sent for entry in entries]),
            "program": np.repeat([entry.program for entry in entries], counts),
        }
    )
