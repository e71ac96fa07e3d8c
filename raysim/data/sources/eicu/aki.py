"""Acute kidney injury as a task of the ``eicu`` source: which stays have it, when it begins, and which stays are left
out.

KDIGO (*Clinical Practice Guideline for Acute Kidney Injury*, 2012), stage 1 or more, requires one of:

- creatinine of at least 1.5 times the lowest value of the seven days before;
- creatinine at least 0.3 mg/dl above the lowest value of the 48 hours before;
- urine below 0.5 ml/kg/h over six hours.

``docs/eicu.md`` describes all measurements and exclusions; the query is ``sql/aki.sql``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.sources.eicu.features import DOMAINS, FLAGS
from raysim.data.sources.eicu.rows import counts
from raysim.data.sources.eicu.tables import sql

if TYPE_CHECKING:
    import duckdb

AHEAD = 48
"""The task predicts whether kidney injury begins within this number of hours after the prediction time."""

LEAST_FILTRATION = 15
"""Stays with a lower glomerular filtration rate at admission, in ml/min/1.73 m², are left out: their kidneys have
failed.
"""

_BOTH = ("lab", "intakeOutput")


def check_tables(tables: Collection[str], folder: Path) -> None:
    """Raise ``DataError`` if ``tables`` has neither ``lab`` (creatinine) nor ``intakeOutput`` (urine)."""
    if not any(table in tables for table in _BOTH):
        raise DataError(
            f"data.task: aki needs lab.csv(.gz) or intakeOutput.csv(.gz), and {folder} has neither: add one, or use "
            "another task"
        )


def label(connection: duckdb.DuckDBPyConnection, tables: Collection[str]) -> tuple[list[str], list[str]]:
    """Write labels into the table ``stays``, mark the stays that are left out, and return notes and warnings.

    A label says whether kidney injury begins in the :data:`AHEAD` hours after the prediction time, before the stay
    ends.
    """
    connection.execute(f"SET VARIABLE ahead = {AHEAD * 60}")
    connection.execute(f"CREATE TEMP TABLE kidneys AS {sql('aki')}")
    if "lab" in tables:
        unmeasured = "WHEN creatinine_values < 2 THEN 'with fewer than two creatinine values'"
    else:
        unmeasured = "WHEN urine_spans = 0 THEN 'without urine over six hours'"
    connection.execute(
        "UPDATE stays SET label = CAST(coalesce(began > getvariable('minutes'), false) AS INTEGER), left_out = CASE "
        f"{unmeasured} WHEN egfr < {LEAST_FILTRATION} THEN 'with eGFR below {LEAST_FILTRATION} at admission' "
        "WHEN began <= getvariable('minutes') THEN 'with AKI by the prediction time' END "
        "FROM kidneys WHERE stays.stay = kidneys.stay"
    )
    return _notes(connection, tables), _missed(tables)


def _notes(connection: duckdb.DuckDBPyConnection, tables: Collection[str]) -> list[str]:
    creatinine, urine, both, ended, weightless = counts(
        connection,
        "SELECT count(*) FILTER (by_creatinine > getvariable('minutes')), "
        "count(*) FILTER (by_urine > getvariable('minutes')), "
        "count(*) FILTER (by_creatinine > getvariable('minutes') AND by_urine > getvariable('minutes')), "
        "count(*) FILTER (ended < getvariable('minutes') + getvariable('ahead')), "
        "count(*) FILTER (weight IS NULL) "
        "FROM stays JOIN kidneys USING (stay) WHERE left_out IS NULL",
    )
    notes = [
        f"AKI within {AHEAD} hours: {creatinine:,} by creatinine, {urine:,} by urine, {both:,} of them by both",
        f"ended within these {AHEAD} hours, and were followed until then: {counted(ended, 'stay')}",
    ]
    return (
        [*notes, f"urine not judged, without a weight: {counted(weightless, 'stay')}"]
        if "intakeOutput" in tables
        else notes
    )


def _missed(tables: Collection[str]) -> list[str]:
    if "lab" not in tables:
        return [
            "lacks lab: AKI is labelled by urine alone; stays are left out if urine was not charted over six hours, "
            f"and not for fewer than two creatinine values or an eGFR below {LEAST_FILTRATION}"
        ]
    if "intakeOutput" not in tables:
        return ["lacks intakeOutput: AKI is labelled by creatinine alone"]
    return []


def by_kind(columns: Mapping[str, NDArray[np.float32]]) -> pd.DataFrame:
    """Return measured features as numbers, and sex and flags as categories, because clustering treats numbers and
    categories differently.
    """
    flags = {feature for domain in FLAGS for feature in DOMAINS[domain]}
    values_of: dict[str, Any] = {}
    for name, values in columns.items():
        words = ["female", "male"] if name == "sex" else ["no", "yes"] if name in flags else None
        codes = np.where(np.isnan(values), -1, values).astype(np.int8)
        values_of[name] = values if words is None else pd.Categorical.from_codes(codes, pd.Index(words))
    return pd.DataFrame(values_of)
