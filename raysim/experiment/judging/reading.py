"""Reads a table of predictions that is to be evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from raysim.core.csv_files import text_of
from raysim.data.tables.columns import is_text
from raysim.data.tables.reading import EXACT, typed, with_zeros
from raysim.data.tables.table_file import check_table, read_table
from raysim.data.tables.text_form import Keys
from raysim.experiment.judging.table import AGE, GROUP, IN_FILE

FIELD = "predictions"
"""The name of the table in error messages."""

NAMES = ("hospital", "model", "strategy", "label", "role", "learner", "part")
"""Columns that are read as text without conversion: ``NA`` is not a missing value, and ``007`` is not the number 7."""

NUMBERS = ("probability", "margin")

IDENTIFIERS = ("row", "patient", "seed")
"""Columns that identify rows. If a number in such a column has leading zeros, or would be rounded as a float64, the
column stays text, so that different identifiers stay different."""


def read(path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read the table of predictions at ``path``, in any file format that raysim reads data from.

    Also returns remarks on unusual properties of the file. Raises ``DataError`` if the table cannot be read.
    """
    check_table(path, FIELD)
    as_text, usual = (*NAMES, *IDENTIFIERS), Keys(separator=",", decimal=".")
    found = read_table(path, as_text, FIELD, usual=usual, names=NAMES, numeric=NUMBERS)
    columns = {str(name): _column(str(name), found.table.column(name)) for name in found.table.column_names}
    frame = pd.DataFrame(columns)
    if found.rows is not None:
        frame.index = pd.Index(found.rows, name=IN_FILE)
    return frame, tuple(f"'{path}' {remark}." for remark in found.remarks)


def _column(name: str, column: pa.ChunkedArray) -> pd.Series[Any]:
    """Convert a column to pandas. Texts become numbers if all of them are numbers, unless the column is in
    :data:`NAMES` or has names of groups."""
    named = name in NAMES or (name.startswith(GROUP) and name != AGE)
    if not named and is_text(column.type):
        made = typed(column)[0]
        largest = (pc.max(pc.abs(made)).as_py() or 0.0) if pa.types.is_floating(made.type) else 0.0
        merged = name in IDENTIFIERS and (largest >= EXACT or with_zeros(column))
        column = column if merged else made
    values: pd.Series[Any] = column.to_pandas()
    if is_text(column.type):
        return values.map(text_of, na_action="ignore")
    counted = (
        name not in (*NUMBERS, AGE)
        and values.dtype.kind == "f"
        and (values % 1 == 0).all()
        and values.abs().max() < EXACT
    )
    return values.astype("int64") if counted else values
