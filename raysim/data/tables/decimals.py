"""Numbers with a decimal comma, as numbers: recognised where nothing else is possible, else asked for."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.tables.columns import is_text
from raysim.data.tables.kinds import find

if TYPE_CHECKING:
    import pyarrow as pa

Mark = Literal[".", ","]

_BEYOND = r"^\s*(?:[<>]=?|≤|≥)?\s*"  # a limit, where a number begins with it
_COMMA = rf"{_BEYOND}[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*$"
_POINT = rf"{_BEYOND}[+-]?\d*\.\d+(?:[eE][+-]?\d+)?\s*$"
_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2},\d{3}\s*$"


def with_points(
    table: pa.Table,
    named: Mark | None,
    recognise: bool,
    as_text: Collection[str],
    field: str,
    where: str,
    usual: Mark | None = None,
    numeric: Collection[str] = (),
) -> tuple[pa.Table, Mark]:
    """The table with a point for the comma of numbers, and the decimal mark that it had.

    - ``named``: the mark that the configuration names; None: it follows from the columns of text that are numbers for
      the most part.
    - ``recognise``: whether a comma in them can be a decimal mark without being named. It cannot where commas separate
      columns or nothing does, as it may separate thousands.
    - ``as_text``: columns that are no numbers. ``where``: the table in errors, which name ``field``.
    - ``usual``: the mark that decides in doubt. ``numeric``: columns that are numbers, whatever else stands in them.

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
    decimals = {
        name: commas
        for name in texts
        if (commas := _matching(table.column(name), ",", _COMMA))
        and (name in numeric or _mostly(commas, table.column(name)) or find(table.column(name)).kind == "mixed")
    }
    if not decimals:
        return table, named or "."
    first = next(iter(decimals))
    for name in decimals:
        if points := _matching(table.column(name), ".", _POINT):
            raise DataError(
                f"{field}: column '{name}' of {where} has a comma in {counted(decimals[name], 'number')} and a point "
                f"in {points:,}; write one decimal mark"
            )
    if named is None:
        floats = [
            column.name
            for column in table.schema
            if pa.types.is_floating(column.type) or (column.name in texts and _has_points(table.column(column.name)))
        ]
        thousands = all(_matching(table.column(name), ",", _THOUSANDS) == count for name, count in decimals.items())
        why = (
            f", and column '{floats[0]}' numbers with a point"
            if floats
            else ", always with three digits behind it, as thousands have it"
            if thousands
            else ""
            if recognise
            else ", which separates columns too"
        )
        if why and usual == ".":
            return table, "."
        if why and usual is None:
            raise DataError(
                f"{field}: column '{first}' of {where} has {counted(decimals[first], 'number')} with a comma{why}; "
                "say whether it is the decimal mark (data.decimal: ',') or part of a text (data.decimal: '.')"
            )
    for name in decimals:
        column = pc.cast(table.column(name), pa.string())
        written = pc.if_else(pc.match_substring_regex(column, _COMMA), pc.replace_substring(column, ",", "."), column)
        table = table.set_column(table.column_names.index(name), name, written)
    return table, ","


def _mostly(count: int, column: pa.ChunkedArray) -> bool:
    """Whether ``count`` are most of a column's values, which makes it numbers without a closer look."""
    return bool(2 * count > len(column) - column.null_count)


def _has_points(column: pa.ChunkedArray) -> bool:
    """Whether a column of texts is numbers, some with a point."""
    return _matching(column, ".", _POINT) > 0 and find(column).kind == "number"


def _matching(column: pa.ChunkedArray, mark: Mark, pattern: str) -> int:
    """How many texts have a decimal ``mark`` and match the ``pattern``."""
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring(column, mark)).as_py():  # which is far quicker
        return 0
    return pc.sum(pc.match_substring_regex(column, pattern)).as_py() or 0
