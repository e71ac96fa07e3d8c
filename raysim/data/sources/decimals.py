"""Numbers with a decimal comma, as numbers: recognised where nothing else is possible, else asked for."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.sources.columns import is_text

if TYPE_CHECKING:
    import pyarrow as pa

Mark = Literal[".", ","]

_COMMA = r"^\s*(?:[<>]=?|≤|≥)?\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*$"
_POINT = r"^\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*$"
_WHOLE = r"^\s*[+-]?\d+\s*$"
_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2},\d{3}\s*$"


def with_points(
    table: pa.Table, named: Mark | None, recognise: bool, as_text: Collection[str], field: str, where: str
) -> tuple[pa.Table, Mark]:
    """The table with a point for the comma of numbers, and the decimal mark that it had.

    - ``named``: the mark that the configuration names; None: it follows from the columns of text that are numbers for
      the most part.
    - ``recognise``: whether a comma in them can be a decimal mark without being named. It cannot where commas separate
      columns or nothing does, as it may separate thousands.
    - ``as_text``: columns that are no numbers. ``where``: the table in errors, which name ``field``.

    Raises ``DataError`` for commas that may be either, and for commas and points side by side.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if named == ".":
        return table, "."
    texts = [
        column.name
        for column in table.schema
        if is_text(column.type) and not pa.types.is_dictionary(column.type) and column.name not in as_text
    ]
    decimals = {name: commas for name in texts if (commas := _mostly(table.column(name), ",", _COMMA))}
    if not decimals:
        return table, named or "."
    first = next(iter(decimals))
    for name in decimals:
        if points := _matching(table.column(name), _POINT):
            raise DataError(
                f"{field}: column '{name}' of {where} has a comma in {counted(decimals[name], 'number')} and a point "
                f"in {points:,}; write one decimal mark"
            )
    if named is None:
        floats = [
            column.name
            for column in table.schema
            if pa.types.is_floating(column.type)
            or (column.name in texts and _mostly(table.column(column.name), ".", _POINT))
        ]
        thousands = all(_matching(table.column(name), _THOUSANDS) == count for name, count in decimals.items())
        why = (
            f", and column '{floats[0]}' numbers with a point"
            if floats
            else ", always with three digits behind it, as thousands have it"
            if thousands
            else ""
            if recognise
            else ", which separates columns too"
        )
        if why:
            raise DataError(
                f"{field}: column '{first}' of {where} has {counted(decimals[first], 'number')} with a comma{why}; "
                "say whether it is the decimal mark (data.decimal: ',') or part of a text (data.decimal: '.')"
            )
    for name in decimals:
        column = pc.cast(table.column(name), pa.string())
        written = pc.if_else(pc.match_substring_regex(column, _COMMA), pc.replace_substring(column, ",", "."), column)
        table = table.set_column(table.column_names.index(name), name, written)
    return table, ","


def _mostly(column: pa.ChunkedArray, mark: Mark, pattern: str) -> int:
    """How many numbers with this decimal mark a column of text has, if it is numbers for the most part; else 0."""
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring(column, mark)).as_py():  # which is far quicker
        return 0
    marked = _matching(column, pattern)
    numbers = sum(_matching(column, each) for each in (_COMMA, _POINT, _WHOLE)) if marked else 0
    return marked if 2 * numbers > len(column) - column.null_count else 0


def _matching(column: pa.ChunkedArray, pattern: str) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.match_substring_regex(column, pattern)).as_py() or 0
