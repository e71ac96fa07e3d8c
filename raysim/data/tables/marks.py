"""Replace the configured marks of missing values in a user's table by nulls."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from raysim.core.errors import DataError
from raysim.core.words import as_yaml, counted
from raysim.data.tables.reading import unmarked
from raysim.data.tables.rules import Reading, pointed


def without_marks(
    table: pa.Table, reading: Reading, protected: Mapping[str, str], skipped: Collection[str]
) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the table with nulls for the texts and numbers that the configuration declares as missing values (marks),
    and a warning for each mark that does not occur.

    Marks that are declared for all columns are not replaced in the columns ``skipped``. They raise ``DataError`` in the
    columns of ``protected``, which maps columns to their roles.
    """
    by_column = isinstance(reading.na_values, Mapping)
    columns, met = {}, set[tuple[str, str]]()
    for name in table.column_names:
        column = table.column(name)
        if by_column or name not in skipped:
            column, found = unmarked(column, reading.marks(name))
            if found and name in protected and not by_column:
                n = counted(column.null_count - table.column(name).null_count, "row")
                raise DataError(
                    f"data.na_values: '{min(found)}' also occurs in the {protected[name]} '{name}', in {n}; name the "
                    f"columns to which it applies (na_values: {{column: [{as_yaml(min(found))}]}})"
                )
            met |= {(name, mark) for mark in found}
        columns[name] = column
    return pa.table(columns), tuple(_idle(reading.na_values, met))


def _idle(na_values: tuple[str, ...] | Mapping[str, tuple[str, ...]], met: Collection[tuple[str, str]]) -> list[str]:
    if isinstance(na_values, Mapping):
        return [
            f"data.na_values: '{mark}' occurs in no row of column '{name}'"
            for name, marks in na_values.items()
            for mark in marks
            if not {(name, mark), (name, pointed(mark))} & {*met}
        ]
    marks = {mark for _, mark in met}
    return [f"data.na_values: '{mark}' occurs in no row" for mark in na_values if not {mark, pointed(mark)} & marks]
