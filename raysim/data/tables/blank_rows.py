"""Skip blank rows of a table: rows without any value, as spreadsheets export them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.words import counted
from raysim.data.tables.reading import is_texts

if TYPE_CHECKING:
    import pandas as pd


def without_blank(table: pa.Table, left_out: Sequence[int] = ()) -> tuple[pa.Table, NDArray[np.int64] | None]:
    """Return the rows of ``table`` that have a value, and their positions in the file, from 0. The positions are None
    if the file has no blank row.

    A cell that contains only blanks counts as empty. ``left_out`` are the positions in the file of blank rows that were
    already removed from ``table``.
    """
    blank = np.ones(table.num_rows, np.bool_)
    for column in sorted(table.columns, key=lambda column: is_texts(column.type)):  # numbers are read faster
        if not blank.any():
            break
        blank &= _empty(column)
    if not (blank.any() or left_out):
        return table, None
    rows = np.delete(np.arange(len(blank) + len(left_out)), list(left_out))
    return (table.take(np.flatnonzero(~blank)) if blank.any() else table), rows[~blank]


def without_blank_rows(frame: pd.DataFrame, name: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the rows of a data frame that have a value, with their index, and remarks on the blank rows. ``name`` is
    the frame's name in a remark.
    """
    blank = np.ones(len(frame), np.bool_)
    for k in range(frame.shape[1]):
        if not blank.any():
            return frame, ()
        cells = frame.iloc[:, k]
        blank &= cells.isna().to_numpy(np.bool_) if cells.dtype.kind in "biufmM" else cells.map(_is_blank).to_numpy()
    remark = blank_row_remark(np.flatnonzero(~blank), len(blank)) if blank.any() else ""
    return (frame[~blank], (f"{name} {remark}",)) if remark else (frame, ())


def blank_row_remark(rows: NDArray[np.int64] | None, several: int) -> str:
    """Return a remark on the blank rows of a table. ``several`` is the number of all rows, and ``rows`` are the
    positions of the rows that are not blank. If ``rows`` is None, no row is blank and the remark is empty.
    """
    if rows is None:
        return ""
    blank = np.setdiff1d(np.arange(several), rows)
    verb = "is" if len(blank) == 1 else "are"
    return f"has {counted(len(blank), 'blank row')} (first: row {blank[0] + 1}), which {verb} skipped"


def _is_blank(value: Any) -> bool:
    import pandas as pd

    return not value.strip() if isinstance(value, str) else pd.api.types.is_scalar(value) and bool(pd.isna(value))


def _empty(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    empty = pc.is_null(column, nan_is_null=True)
    if is_texts(column.type):
        empty = pc.or_(empty, pc.equal(pc.fill_null(pc.utf8_trim_whitespace(column), ""), ""))
    return np.asarray(empty.to_numpy())
