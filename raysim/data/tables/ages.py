"""Ages of patients, in years."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.data.tables.columns import placed

OLDEST = 130
"""The largest age of a patient, in years."""

_IN_YEAR = {"years": 1.0, "months": 12.0, "days": 365.25}
_OTHER = re.compile(r"month|monat|mois|mes(es)?$|mnth|day|tage|jours?$|d[ií]as", re.IGNORECASE)


def in_years(
    ages: NDArray[np.float64], name: str, unit: str | None, rows: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Convert the ages ``[N]`` in the column ``name`` to years.

    ``unit`` is the unit of ``ages``; None means years. ``rows [N]`` is the position of each row in the file; None: the
    rows are the whole file. Raises ``DataError`` for ages below 0 or above :data:`OLDEST` and, without ``unit``, for a
    column whose name suggests months or days.
    """
    if unit is None and _OTHER.search(name):
        raise DataError(
            f"data.age: the name of column '{name}' suggests another unit than years; set it (data.age_unit: months)"
        )
    years = ages / _IN_YEAR[unit or "years"]
    wrong = (years < 0) | (years > OLDEST)
    if wrong.any():
        at = int(wrong.argmax())
        what = "less than 0" if years[at] < 0 else f"more than {OLDEST} years"
        raise DataError(
            f"data.age: column '{name}' holds {ages[at]:g} in row {placed(at, rows)}, {what}; set its unit "
            f"(data.age_unit: months, or days), or mark the value as missing (data.na_values)"
        )
    return years
