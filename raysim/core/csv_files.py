"""The writing and reading of all of raysim's CSV files.

Spreadsheets treat a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, which may run a program. Names of
hospitals and categories come from other people's data and may contain formulas. Texts that begin with one of these
characters and are not numbers are therefore written with a ``'`` before them; :func:`read_csv` removes the ``'``.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""Beginnings of texts that a spreadsheet could read as formulas, also in full-width characters."""

_WRITTEN = re.compile(r"'(?='*(?:[\t\r\n]|\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]))")


def cell(text: str) -> str:
    """Return the form in which a text is written to raysim's CSV files, so that no spreadsheet reads it as a formula.

    >>> cell("=1+1"), cell("'=1+1"), cell("-0.5"), cell("Saint Mary's")
    ("'=1+1", "''=1+1", '-0.5', "Saint Mary's")
    """
    return f"'{text}" if _FORMULA.match(text) and not is_number(text) else text


def text_of(cell: str) -> str:
    """Return the original text of a cell that :func:`cell` wrote."""
    return cell[1:] if _WRITTEN.match(cell) else cell


def write_csv(table: pd.DataFrame, path: Path, *, many_rows: bool = False) -> None:
    """Write a table without its index.

    With ``many_rows``, Arrow writes the table eight times as fast, with all texts in quotes.
    """
    texts: set[str] = set()
    safe = _changed(table, cell, texts)
    if not many_rows:
        # Python's writer does not quote a text because of a lone carriage return.
        returns = any("\r" in text for text in texts)
        safe.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)
        return
    _write_rows([safe], path)


def write_pieces(tables: Iterable[pd.DataFrame], path: Path) -> None:
    """Write tables into one file, one after another, in the format of :func:`write_csv` with ``many_rows``.

    Each table is written before the next one is computed.
    """
    _write_rows((_changed(table, cell) for table in tables), path)


def _write_rows(tables: Iterable[pd.DataFrame], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv

    with contextlib.ExitStack() as opened:
        writer = None
        for table in tables:
            rows = pa.Table.from_pandas(table, preserve_index=False)
            if writer is None:
                writer = opened.enter_context(pyarrow.csv.CSVWriter(path, rows.schema))
            writer.write_table(rows)


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Return a table that :func:`write_csv` wrote; ``options`` are options of ``pandas.read_csv``."""
    import pandas as pd

    table: pd.DataFrame = pd.read_csv(path, **options)
    return _changed(table, text_of)


def _changed(table: pd.DataFrame, change: Callable[[str], str], seen: set[str] | None = None) -> pd.DataFrame:
    """Return the table with ``change`` applied to all its texts, including column names.

    If ``seen`` is given, the original texts are added to it.
    """
    import pandas as pd

    names = [str(name) for name in table.columns]
    written = [change(name) for name in names]
    if seen is not None:
        seen.update(names)
    columns: dict[int, pd.Series[Any]] = {}
    for place, dtype in enumerate(table.dtypes):
        if dtype.kind in "biufmM":  # no texts
            continue
        # Each distinct text is changed once: names repeat over many rows.
        column = table.iloc[:, place]
        texts = {text: change(text) for text in column.unique() if isinstance(text, str)}
        if seen is not None:
            seen.update(texts)
        if any(text != after for text, after in texts.items()):
            columns[place] = column.astype(object).map(lambda value, texts=texts: texts.get(value, value))
    if not columns and names == written and table.columns.is_unique:
        return table
    whole = {name: columns.get(place, table.iloc[:, place]) for place, name in enumerate(written)}
    return pd.DataFrame(whole, index=table.index, copy=False)


def is_number(text: str) -> bool:
    """Return whether Python's ``float`` accepts a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True
