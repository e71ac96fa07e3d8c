"""The section on accuracy at hospitals, with AD and SDAD: mean and deviation of ``1 - accuracy``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from raysim.core.words import capitalised
from raysim.metrics.declared import ADDED, SCORES
from raysim.report import svg, tables
from raysim.report.figures import models as figures
from raysim.report.figures.forest import equal_sentences
from raysim.report.naming import Key
from raysim.report.pages.contents import Cell, Row, body_rows, columns, difference_columns, difference_rows
from raysim.report.pages.section import Material, Section, Values, included
from raysim.report.pages.sentences import worst_served
from raysim.report.tables import KEYS

COLUMNS = (
    *(("accuracy", "Accuracy", True), ("ad", "AD", False), ("sdad", "SDAD", False)),
    *((each.name, capitalised(each.unit.partition(",")[0]), each.larger) for each in SCORES if each.name in ADDED),
)
"""The columns of the accuracy table: metric, heading, and whether larger is better (None: neither)."""


def accuracy_rows(per_seed: pd.DataFrame, names: Sequence[str]) -> list[Row]:
    """Return the rows of the accuracy table: means and standard deviations over seeds; empty without accuracy.

    ``names`` are the display names of models, in the order in which they first appear in ``per_seed``.
    """
    if not {figure for figure, *_ in COLUMNS} <= set(per_seed):
        return []
    groups = per_seed.assign(model=per_seed.get("model", "global")).groupby(KEYS, sort=False)
    rated = ~groups["yardstick"].first().to_numpy(bool) if "yardstick" in per_seed else np.ones(len(names), dtype=bool)
    cells = []
    for figure, _, larger in COLUMNS:
        means, stds = (
            np.round(column.to_numpy(np.float64), 3) for column in (groups[figure].mean(), groups[figure].std())
        )
        candidates = means[rated & np.isfinite(means)]
        rankable = larger is not None and len(candidates) and len(means) > 1
        top = (candidates.max() if larger else candidates.min()) if rankable else None
        cells.append(
            [
                Cell(
                    f"{mean:.3f}" if np.isfinite(mean) else "undefined",
                    f"{std:.3f}" if np.isfinite(std) else "",
                    bool(among and mean == top),
                )
                for mean, std, among in zip(means, stds, rated, strict=True)
            ]
        )
    return [Row(name, line) for name, *line in zip(names, *cells, strict=True)]


def local_accuracy(hospitals: pd.DataFrame) -> pd.DataFrame:
    """Return each hospital's accuracy under each model, averaged over seeds, for hospitals with test rows.

    The columns are ``strategy, model, hospital, accuracy``. There are no rows if accuracy was not measured.
    """
    if "accuracy" not in hospitals:
        return pd.DataFrame(columns=[*KEYS, "hospital", "accuracy"])
    tested = hospitals[(hospitals["n_test"] > 0) & hospitals["accuracy"].notna()]
    return tested.groupby([*KEYS, "hospital"], sort=False)["accuracy"].mean().reset_index()


def values(material: Material) -> Values:
    """Return the section's tables and figures; of several models with equal results, only one is included."""
    table, names, part = material.table, list(material.distinct.values()), material.part
    made = {"columns": [heading for _, heading, *_ in columns(table)], "body": body_rows(table, names)}
    if not material.compared:
        return {
            **made,
            "worst": worst_served(material.hospitals, part),
            "accuracy_figures": _plots(material, list(material.distinct)[-1:]),
        }
    differences = pd.DataFrame() if material.differences is None else material.differences
    return {
        **made,
        "difference_columns": [heading for _, heading, _ in difference_columns(table)],
        "differences": difference_rows(table, names, differences),
        "accuracy_columns": [heading for _, heading, _ in COLUMNS],
        "accuracy": accuracy_rows(_rows_of(material.per_seed, material.distinct), names),
        "equal": [] if material.evidence is None else equal_sentences(material.evidence),
        "accuracy_figures": [
            *(figures.trade_offs(table, material.distinct, material.looks) if not tables.few(table) else []),
            *_plots(material, [key for key in (material.best, material.alone) if key is not None]),
            *_local(material),
        ],
    }


def _plots(material: Material, first: Sequence[Key]) -> list[svg.Figure]:
    names, looks = material.distinct, material.looks
    hospitals = material.hospitals if material.one_by_one else None
    rounds = None if material.rounds is None else _rows_of(material.rounds, names)
    return [
        *figures.curves(rounds, names, looks),
        *figures.by_size(hospitals, material.table, names, looks, material.numbers, first),
    ]


def _local(material: Material) -> list[svg.Figure]:
    hospitals, against = material.hospitals, material.against
    if hospitals is None or against is None or "accuracy" not in hospitals:
        return []
    names = {**material.distinct, against: material.titles[against]}
    away = figures.from_reference(local_accuracy(hospitals), "accuracy", "accuracy", against, names, material.looks)
    return [replace(figure, more=True) for figure in away]


def _rows_of(frame: pd.DataFrame, keys: figures.Names) -> pd.DataFrame:
    if "model" not in frame:
        return frame[frame["strategy"].isin({label for label, _ in keys})].reset_index(drop=True)
    inside = [(str(a), str(b)) in keys for a, b in frame[KEYS].to_numpy()]
    return frame[inside].reset_index(drop=True)


SECTION = Section(
    "figures",
    "Accuracy",
    {"run": included("accuracy_run"), "comparison": included("accuracy_comparison")},
    values,
    place=30,
)
