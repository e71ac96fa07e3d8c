"""Convert numbers with a decimal comma, or with thousands separators, to plain numbers.

The decimal mark is recognised if only one mark is possible. Else the usual mark is assumed or, if none is usual, an
error asks for the mark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raysim.core.errors import DataError
from raysim.core.words import counted, some
from raysim.data.tables.columns import is_number, is_text
from raysim.data.tables.kinds import SPACES, find
from raysim.data.tables.reading import cast

Mark = Literal[".", ","]

_BEYOND = r"^\s*(?:[<>]=?|≤|≥)?\s*[+-]?"  # a sign of a limit and a plus or minus before a number, if any
_POWER = r"(?:[eE][+-]?[0-9]+)?\s*$"
_HEAD = "[1-9][0-9]{0,2}"  # digits before the first thousands separator
_SPACED = rf"(?:['’][0-9]{{3}})+|(?:[{SPACES}][0-9]{{3}})+"  # thousands separators that cannot be decimal marks
_POINTS, _COMMAS = r"(?:\.[0-9]{3})+", r"(?:,[0-9]{3})+"
_COMMA = rf"{_BEYOND}(?:[0-9]*|{_HEAD}(?:{_SPACED}|{_POINTS})),[0-9]+{_POWER}"
_POINT = rf"{_BEYOND}(?:[0-9]*|{_HEAD}(?:{_SPACED}|{_COMMAS}))\.[0-9]+{_POWER}"
_ONE_COMMA = rf"{_BEYOND}{_HEAD},[0-9]{{3}}\s*$"
_GROUPED: dict[Mark, str] = {
    ".": rf"{_BEYOND}{_HEAD}(?:{_SPACED}|{_COMMAS})(?:\.[0-9]+)?\s*$",
    ",": rf"{_BEYOND}{_HEAD}(?:{_SPACED}|{_POINTS})(?:,[0-9]+)?\s*$",
}
_TELLING = rf"{_BEYOND}{_HEAD}(?:(?:{_SPACED})(?:\.[0-9]+)?|{_COMMAS}\.[0-9]+|,[0-9]{{3}}{_COMMAS})\s*$"
_POINTS_ALONE = rf"{_BEYOND}{_HEAD}{_POINTS}\s*$"
_NAMED = 6  # columns that a remark names


class Expected(NamedTuple):
    """What is known about a table's decimal mark before the numbers are read."""

    named: Mark | None
    """The configured mark; None: the mark is recognised from the text columns that are mostly numbers."""
    usual: Mark | None
    """The mark to assume if both marks are possible; None: an error asks for the mark."""
    in_doubt: Mark | None = None
    """The mark if no number has a comma, and every point may be a thousands separator (``1.234``); None: a point."""
    recognise: bool = False
    """Whether decimal commas can be recognised in columns that are not listed as numeric."""


def with_points(
    table: pa.Table, expected: Expected, as_text: Collection[str], numeric: Collection[str], field: str, where: str
) -> tuple[pa.Table, Mark, str]:
    """Return the table with plain numbers, the decimal mark of ``table``, and a remark on its thousands separators
    (empty if there were none).

    - ``as_text``: columns that are never numbers.
    - ``numeric``: columns that are numbers, whatever other texts they contain.
    - ``where``: the table's name in errors, which begin with ``field``.

    Raises ``DataError`` if no mark is usual and commas may be decimal marks or thousands separators, or if one column
    has both decimal commas and decimal points.
    """
    texts = {
        column.name: pc.cast(table.column(column.name), pa.string())
        for column in table.schema
        if is_text(column.type)
        and column.name not in as_text
        and (column.name in numeric or not pa.types.is_dictionary(column.type))
    }
    odd = {name: _with_minus(column) for name, column in texts.items() if cast(column, pa.float64()) is None}
    mark = expected.named or _mark(table, texts, odd, expected, as_text, numeric, field, where)
    grouped = []
    for name, column in (texts | odd if mark == "," else odd).items():
        sure = mark == "," or expected.named == "." or _count(column, _GROUPED["."]) > _count(column, _ONE_COMMA)
        groups = _count(column, _GROUPED[mark] if sure else _TELLING)
        commas = _count(column, _COMMA) if mark == "," else 0
        if not (groups or commas) or not (name in numeric or _is_number(column, groups + commas)):
            continue
        if mark == "," and (points := _count(column, _POINT)) > (alone := _count(column, _POINTS_ALONE)):
            both = f"a comma in {counted(commas, 'number')} and a point in {points:,}"
            if not commas:
                both = f"marks between the thousands of {counted(groups, 'number')}"
                both += f" and a decimal point in {points - alone:,}"
            raise DataError(f"{field}: column '{name}' of {where} has {both}; write one decimal mark")
        if groups:
            grouped.append(f"'{name}'")
        odd[name] = _plain(column, mark)
    for name, column in odd.items():
        table = table.set_column(table.column_names.index(name), name, column)
    remark = f"has marks between the thousands of {some(grouped, _NAMED)}, which are left out" if grouped else ""
    return table, mark, remark


def _mark(
    table: pa.Table,
    texts: Mapping[str, pa.ChunkedArray],
    odd: Mapping[str, pa.ChunkedArray],
    expected: Expected,
    as_text: Collection[str],
    numeric: Collection[str],
    field: str,
    where: str,
) -> Mark:
    decimals = {}
    for name, column in odd.items():
        commas, between = _count(column, _COMMA), _count(column, _ONE_COMMA)
        grouped = between == commas and _count(column, _TELLING)  # the same column contains numbers such as 1,234.5
        if commas and not grouped and (name in numeric or _is_number(column, commas)):
            decimals[name] = commas, between
    if not decimals:
        if expected.in_doubt != ",":
            return "."
        points = sum(_count(column, _POINT) for column in texts.values())
        grouped = points == sum(_count(column, _POINTS_ALONE) for column in texts.values())
        return "," if points and grouped else "."
    floats = [
        column.name
        for column in table.schema
        if (is_number(column.type) and column.name not in as_text and _has_fractions(table[column.name]))
        or (column.name in texts and column.name not in decimals and _has_points(texts[column.name]))
    ]
    thousands = all(commas == between for commas, between in decimals.values())
    numbers = not thousands and decimals.keys() <= set(numeric)
    why = (
        f", and column '{floats[0]}' has numbers with a point"
        if floats
        else ", always with three digits after it, as between thousands"
        if thousands
        else ""
        if expected.recognise or numbers
        else ", which separates columns too"
    )
    if not why:
        return ","
    if expected.usual is not None:
        return expected.usual
    first, (commas, _) = next(iter(decimals.items()))
    other = "stands between thousands" if thousands else "part of a text"
    raise DataError(
        f"{field}: column '{first}' of {where} has {counted(commas, 'number')} with a comma{why}; set whether it is "
        f"the decimal mark (data.decimal: ',') or {other} (data.decimal: '.')"
    )


def _with_minus(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(column, r"^(\s*(?:[<>]=?|≤|≥)?\s*)−([0-9.,])", r"\1-\2")


def _plain(column: pa.ChunkedArray, mark: Mark) -> pa.ChunkedArray:
    other = "." if mark == "," else ","
    plain = pc.replace_substring_regex(column, rf"[{other}'’{SPACES}]([0-9]{{3}})", r"\1")
    made = pc.if_else(pc.match_substring_regex(column, _GROUPED[mark]), plain, column)
    if mark == ".":
        return made
    return pc.if_else(pc.match_substring_regex(column, _COMMA), pc.replace_substring(made, ",", "."), made)


def _is_number(column: pa.ChunkedArray, count: int) -> bool:
    return 2 * count > len(column) - column.null_count or find(column).kind in ("mixed", "number")


def _has_points(column: pa.ChunkedArray) -> bool:
    if not _count(column, _POINT) or find(column).kind != "number":
        return False
    return _has_fractions(pc.utf8_trim_whitespace(column))


def _has_fractions(column: pa.ChunkedArray) -> bool:
    """Whether some number is not whole. A number such as 2.0 is whole: many programs write 2 as 2.0 if other rows of
    the column have no value.
    """
    column = pc.cast(column, pa.float64(), safe=False)
    return bool(pc.any(pc.and_(pc.is_finite(column), pc.not_equal(pc.floor(column), column))).as_py())


def _count(column: pa.ChunkedArray, pattern: str) -> int:
    return pc.sum(pc.match_substring_regex(column, pattern)).as_py() or 0
