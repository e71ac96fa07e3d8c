"""Reads a table of predictions that is to be evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from raysim.core.csv_files import text_of
from raysim.data.tables.columns import is_text, whole_names
from raysim.data.tables.reading import typed
from raysim.data.tables.table_file import check_table, read_table
from raysim.data.tables.text_form import Keys
from raysim.experiment.judging.table import GROUP, IN_FILE

if TYPE_CHECKING:
    import pyarrow as pa

FIELD = "predictions"
"""The name of the table in error messages."""

NAMES = ("hospital", "model", "strategy", "label", "role", "learner", "part")
"""Columns that are read as text without conversion: ``NA`` is not a missing value, and ``007`` is not the number 7."""

NUMBERS = ("probability", "margin")


def read(path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read the table of predictions at ``path``, in any file format that raysim reads data from.

    Also returns remarks on unusual properties of the file. Raises ``DataError`` if the table cannot be read.
    """
    check_table(path, FIELD)
    as_text, usual = (*NAMES, "row", "patient", "seed"), Keys(separator=",", decimal=".")
    found = read_table(path, as_text, FIELD, usual=usual, names=NAMES, numeric=NUMBERS)
    columns = {str(name): _column(str(name), found.table.column(name)) for name in found.table.column_names}
    frame = pd.DataFrame(columns)
    if found.rows is not None:
        frame.index = pd.Index(found.rows, name=IN_FILE)
    return frame, tuple(f"'{path}' {remark}." for remark in found.remarks)


def _column(name: str, column: pa.ChunkedArray) -> pd.Series[Any]:
    """Convert a column to pandas. Texts become numbers if all of them are numbers and the column is not in
    :data:`NAMES`."""
    if name == "hospital" and is_text(column.type):
        column = whole_names(column)
    elif name not in NAMES and is_text(column.type):
        column = typed(column)[0]
    values: pd.Series[Any] = column.to_pandas()
    if is_text(column.type):
        return values.map(text_of, na_action="ignore")
    counted = (
        name not in NUMBERS and not name.startswith(GROUP) and values.dtype.kind == "f" and (values % 1 == 0).all()
    )
    return values.astype("int64") if counted else values
