"""APACHE scores and APACHE's own predictions of death in hospital, for comparison; they are never features.

A prediction of -1 means that APACHE made no prediction. The table of predictions also contains the outcome, so only the
columns of the scores are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.data.sources.eicu.features import TABLES
from raysim.data.sources.eicu.rows import fetch
from raysim.data.sources.eicu.tables import database, find_tables

_TABLE = "apachePatientResult"
_SCHEMA = {
    "patient": TABLES["patient"],
    _TABLE: ("patientunitstayid", "apacheversion", "apachescore", "predictedhospitalmortality"),
}

SCORES = {
    "apache_iv": ("predictedhospitalmortality", "IV"),
    "apache_iva": ("predictedhospitalmortality", "IVa"),
    "apachescore": ("apachescore", "IVa"),
}
"""For each score, its column and its version of APACHE; only rows of this version are read."""


def check_names(names: tuple[str, ...]) -> None:
    """Raise ``DataError`` if one of ``names`` is not a score of the eICU database."""
    for name in names:
        if name not in SCORES:
            raise DataError(f"data.scores: '{name}' is not a score of source eicu; {nearest(name, SCORES)}")


def table_of(folder: Path) -> Path:
    """Return the file with the scores. Raises ``DataError`` if the folder has no such file."""
    tables = find_tables(folder, _SCHEMA)
    if _TABLE not in tables:
        raise DataError(f"data.scores: need {_TABLE}.csv(.gz), which {folder} lacks; add it, or leave scores out")
    return tables[_TABLE]


def scores(folder: Path, names: tuple[str, ...], stays: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Read the values of each score in ``names``, in the order of ``stays [N]``; NaN for stays without a value."""
    found = {}
    with database({_TABLE: table_of(folder)}, _SCHEMA) as connection:
        for name in names:
            column, version = SCORES[name]
            rows = fetch(
                connection,
                f"SELECT stay_id(patientunitstayid) AS stay, max(number({column})) AS score FROM {_TABLE} "
                f"WHERE apacheversion = '{version}' AND number({column}) >= 0 GROUP BY ALL HAVING stay IS NOT NULL",
            )
            by_stay = dict(zip(np.asarray(rows["stay"]).tolist(), np.asarray(rows["score"]).tolist(), strict=True))
            found[name] = np.array([by_stay.get(stay, np.nan) for stay in np.asarray(stays).tolist()], np.float64)
    return found
