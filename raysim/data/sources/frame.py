"""A pandas data frame as data: the frame is stored in the cache as a Parquet file, which the source ``table`` reads.

The configuration of a run on a data frame can therefore be stored and read by other processes. The index of the data
frame is not stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from raysim.core.errors import ConfigError, DataError
from raysim.core.words import as_yaml, is_unicode
from raysim.data import cache
from raysim.data.tables.columns import plain_text, widened

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "table"
"""The name of the source that reads a stored data frame."""

FILE = "frame.parquet"

_WRITTEN = (str, int, float, Decimal, np.number, np.bool_)
"""The types of values that may be mixed in one column; each value of such a column is stored as text."""


def data_section(frame: pd.DataFrame, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration section ``data`` for a data frame: the given ``keys`` (``silo``, ``label``, ``split``,
    ...) and the path of the stored frame.

    Raises ``ConfigError`` if ``keys`` names a file or another source, and ``DataError`` for an unusable frame.
    """
    if keys.get("path") is not None:
        raise ConfigError(f"data.path: {as_yaml(keys['path'])} cannot be combined with a data frame; keep one of them")
    source = keys.get("source", SOURCE)
    if not isinstance(source, str) or source != SOURCE:
        raise ConfigError(f"data.source: {as_yaml(source)} cannot be combined with a data frame; remove the key")
    for key, name in keys.items():
        check_index(frame, name, f"data.{key}")
    return {**keys, "source": SOURCE, "path": str(stored(frame))}


def check_index(frame: pd.DataFrame, name: Any, field: str) -> None:
    """Raise ``DataError`` if ``name`` is not a column of the data frame but an index, which is not stored."""
    named = isinstance(name, str) and name in getattr(getattr(frame, "index", None), "names", ())
    if named and name not in frame.columns:
        raise DataError(f"{field}: '{name}' is the data frame's index; make it a column: frame.reset_index()")


def stored(frame: pd.DataFrame) -> Path:
    """Store the frame's columns as a Parquet file in the cache and return its path; equal frames share a file.

    Raises ``DataError`` for columns that a Parquet file cannot contain, and if the cache cannot be written.
    """
    table, written = arrow_table(frame, "data"), pa.BufferOutputStream()
    parquet.write_table(table, written)
    content = written.getvalue()
    key = hashlib.blake2b(content, digest_size=16).hexdigest()
    folder = cache.find("frames", key)
    if folder is None:
        cache.check()
        folder = cache.store("frames", key, lambda making: _write(making / FILE, content))
    return folder / FILE


def arrow_table(frame: pd.DataFrame, field: str, columns: Collection[str] | None = None) -> pa.Table:
    """Return the data frame as an Arrow table, with categories in Arrow's dictionary type. ``columns`` are the names of
    the columns to include (None: all).

    Raises ``DataError`` naming ``field`` if ``frame`` is not a data frame, has several columns of one name, or contains
    values without an Arrow type.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"{field}: a {type(frame).__name__} is not a pandas data frame; make one, or name a file (data.path)"
        )
    if isinstance(frame.columns, pd.MultiIndex):
        raise DataError(f"{field}: the data frame's columns have several levels; give each column one name")
    for name in map(str, frame.columns):
        if not is_unicode(name):
            raise DataError(
                f"{field}: the data frame has a column {name!a}, whose name cannot be written to a file; rename it"
            )
    named = frame.set_axis([str(name) for name in frame.columns], axis="columns")
    if columns is not None:
        named = named.loc[:, named.columns.isin(list(columns))]
    repeated = named.columns[named.columns.duplicated()]
    if len(repeated):
        raise DataError(f"{field}: the data frame has two columns named '{repeated[0]}'; rename one")
    return pa.table({name: _array(named[name], name, field) for name in named.columns})


def _array(values: pd.Series[Any], name: str, field: str) -> pa.Array | pa.ChunkedArray:
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # their messages contain values of patients
        kinds = {type(value) for value in values.dropna()}
        if not all(issubclass(kind, _WRITTEN) for kind in kinds):
            names = ", ".join(sorted({kind.__name__ for kind in kinds})[:6])
            raise DataError(
                f"{field}: column '{name}' of the data frame contains values that no file can store (of type {names}); "
                "convert it, or drop it from the frame"
            ) from None
        array = None  # for example numbers with a text among them
    if array is None or isinstance(array.type, pa.BaseExtensionType):  # such as periods, which Arrow stores as integers
        # A CSV file would also contain texts.
        written = [None if missing else str(value) for value, missing in zip(values, values.isna(), strict=True)]
        if odd := [row for row, text in enumerate(written) if text is not None and not is_unicode(text)]:
            raise DataError(
                f"{field}: column '{name}' of the data frame holds an invalid Unicode character (a surrogate) in "
                f"row {odd[0] + 1}; "
                "read the text again in its encoding"
            ) from None
        array = pa.array(written)
    if pa.types.is_dictionary(array.type):  # the categories become texts, the column stays categorical
        return plain_text(pa.table({name: array}), name, field).dictionary_encode()
    return widened(array)


def _write(path: Path, content: Any) -> None:
    with path.open("wb") as file:
        file.write(content)
