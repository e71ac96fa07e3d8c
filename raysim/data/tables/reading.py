"""The rules by which the texts of a table are read: which mean a missing value, and how a value beyond a limit is read.

Training, ``raysim predict`` and an exported ``prepare.py`` read a table in the same way, since they use the same rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from raysim.data.tables.kinds import MISSING, NUMBER, TRUE, Finding, find

if TYPE_CHECKING:
    import pyarrow as pa

RULES = ("half", "limit", "missing")
"""The rules for a value beyond a limit: half of the limit, the limit, or a missing value."""

KEPT_AS_TEXT = '="((?:[^"]|"")*)"'
"""The pattern of a formula by which spreadsheets keep a text, such as a number with leading zeros."""

EXACT = 2.0**53
"""The limit up to which every whole number is exact as a float."""


@dataclass(frozen=True)
class Reading:
    """The rules by which a table's feature columns are read.

    - ``na_values``: texts that mean a missing value, in addition to :data:`raysim.data.tables.kinds.MISSING`, in all
      columns or by column.
    - ``censored``: the rule for a value beyond a limit, one of :data:`RULES`, for ``<`` and for ``>``.
    - ``decimal``: the decimal mark, where it is a comma or was named; None: it is recognised.
    - ``separator``, ``encoding``: the form of the file, for reading another file without raysim.
    - ``units``: by column, the spellings of the unit behind its numbers.
    """

    na_values: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    censored: Mapping[str, str] = field(default_factory=dict)
    decimal: Literal[".", ","] | None = None
    separator: str = ","
    encoding: str = "utf-8"
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def marks(self, column: str) -> tuple[str, ...]:
        """Return a column's texts that mean a missing value: the configured ones, also with their comma as a point."""
        marks = self.na_values.get(column, ()) if isinstance(self.na_values, Mapping) else self.na_values
        return tuple(dict.fromkeys([*marks, *map(pointed, marks)])) if self.decimal == "," else marks

    def tree(self) -> dict[str, Any]:
        """Return JSON values that contain all rules needed to read another table in the same way."""
        na = self.na_values
        by_column = {name: list(marks) for name, marks in na.items()} if isinstance(na, Mapping) else list(na)
        form = {"decimal": self.decimal, "separator": self.separator, "encoding": self.encoding}
        units = {"units": {name: list(written) for name, written in self.units.items()}} if self.units else {}
        return {"missing": list(MISSING), "na_values": by_column, "censored": dict(self.censored), **form, **units}

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Reading:
        """Read the values of :meth:`tree`; a tree of an earlier version without limits or units has none."""
        na = tree["na_values"]
        marks = {name: tuple(each) for name, each in na.items()} if isinstance(na, Mapping) else tuple(na)
        censored = dict(tree.get("censored", {}))
        if unknown := [rule for rule in censored.values() if rule not in RULES]:
            raise ValueError(f"'{unknown[0]}' is not a rule for values beyond a limit")
        decimal = tree.get("decimal")
        if decimal not in (None, ".", ","):
            raise ValueError(f"'{decimal}' is not a decimal mark")
        units = {name: tuple(map(str, written)) for name, written in tree.get("units", {}).items()}
        form = str(tree.get("separator", ",")), str(tree.get("encoding", "utf-8"))
        return Reading(marks, censored, decimal, *form, units)


def pointed(text: str) -> str:
    """Replace the decimal comma of a number by a point; other texts are returned unchanged.

    >>> pointed("-99,9"), pointed("1,2,3")
    ('-99.9', '1,2,3')
    """
    return text.replace(",", ".") if re.fullmatch(r"[+-]?\d*,\d+", text) else text


def unquoted(text: str) -> str:
    """Return the text that a cell of a spreadsheet keeps as text by a formula; other texts are returned unchanged.

    >>> unquoted('="007"'), unquoted("=1+1")
    ('007', '=1+1')
    """
    kept = re.fullmatch(KEPT_AS_TEXT, text.strip(), re.DOTALL)
    return text if kept is None else kept[1].replace('""', '"')


def unquoted_table(table: pa.Table) -> pa.Table:
    """Apply :func:`unquoted` to all texts and column names."""
    import pyarrow as pa

    columns = {unquoted(name): _unquoted(table.column(k)) for k, name in enumerate(table.column_names)}
    if len(columns) < table.num_columns:  # the caller reports columns of one name
        return table.rename_columns([unquoted(name) for name in table.column_names])
    return pa.table(columns)


def _unquoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        plain = pc.cast(column, column.type.value_type)
        changed = _unquoted(plain)
        return column if changed is plain else pc.dictionary_encode(changed)
    if not is_texts(column.type) or not pc.any(pc.match_substring(column, '="')).as_py():
        return column
    encoded = pc.dictionary_encode(column).combine_chunks()
    texts = pa.array([unquoted(text) for text in encoded.dictionary.to_pylist()], column.type)
    return pa.chunked_array([texts.take(encoded.indices)], column.type)


def filled_table(table: pa.Table, names: Collection[str] = ()) -> pa.Table:
    """Replace texts that mean a missing value by nulls in text columns; in the columns ``names`` only empty ones."""
    import pyarrow as pa

    return pa.table(
        {name: filled(table.column(name), ("",) if name in names else MISSING) for name in table.column_names}
    )


def filled(column: pa.ChunkedArray, marks: Sequence[str] = MISSING) -> pa.ChunkedArray:
    """Replace texts of ``marks`` by nulls, with or without blanks around them.

    Where all texts begin with a blank, as some programs write them, this blank is removed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string_view(column.type):
        column = pc.cast(column, pa.string())
    if pa.types.is_dictionary(column.type) and is_texts(column.type.value_type):
        return pc.dictionary_encode(filled(pc.cast(column, column.type.value_type), marks))
    if not is_texts(column.type):
        return column
    column = _unspaced(column)
    missing = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(marks, column.type))
    return _nulled(column, missing) if pc.any(missing).as_py() else column


def _unspaced(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Remove the blank that some programs write before each text of a column."""
    import pyarrow.compute as pc

    if not len(column) or not (column[0].as_py() or " ").startswith(" "):  # this check is far quicker
        return column
    spaced = pc.or_(pc.starts_with(column, " "), pc.equal(column, ""))
    return pc.utf8_ltrim_whitespace(column) if pc.all(spaced).as_py() else column


def unmarked(column: pa.ChunkedArray, marks: tuple[str, ...]) -> tuple[pa.ChunkedArray, set[str]]:
    """Replace ``marks`` by nulls in a column of texts or numbers; also return which of these occur in it.

    Texts must equal a mark exactly. A mark that is a number also matches its value (``-999`` matches ``-999.0``),
    unless it has leading zeros: ``00`` is not 0.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type) and marks:
        inner, found = unmarked(pc.cast(column, column.type.value_type), marks)
        return (pc.dictionary_encode(inner) if found else column), found
    if not marks or not (is_texts(column.type) or _is_counted(column.type)):
        return column, set()
    numbered = {mark: float(mark) for mark in marks if _by_value(mark)}
    values, alike = pa.array(list(numbered.values()), pa.float64()), None
    if is_texts(column.type):
        alike = pc.is_in(column, value_set=pa.array(marks, column.type))
        trimmed = pc.utf8_trim_whitespace(column)
        plain = pc.match_substring_regex(trimmed, f"^(?:{NUMBER})$") if numbered else False
        numbers = pc.cast(pc.if_else(plain, trimmed, pa.scalar(None, trimmed.type)), pa.float64())
    else:
        numbers = pc.cast(column, pa.float64(), safe=False)
    valued = pc.is_in(numbers, value_set=values)
    wrong = valued if alike is None else pc.or_(alike, valued)
    if not pc.any(wrong).as_py():
        return column, set()
    written = set(pc.unique(column.filter(wrong)).to_pylist()) if is_texts(column.type) else set()
    by_value = set(pc.unique(numbers.filter(wrong)).to_pylist())
    return _nulled(column, wrong), {mark for mark in marks if mark in written or numbered.get(mark) in by_value}


def without_unit(column: pa.ChunkedArray, units: Sequence[str], comma: bool) -> tuple[pa.ChunkedArray, int]:
    """Remove the ``units`` behind numbers and limits in a column of texts; also return how many values had a unit.

    ``comma``: whether the numbers have a decimal comma.
    """
    import pyarrow.compute as pc

    number = rf"(?:(?:<=?|>=?|≤|≥)\s*)?(?:{NUMBER}|[+-]?[0-9]+,[0-9]+)"
    alike = "|".join(map(re.escape, units))
    bare = pc.struct_field(pc.extract_regex(column, rf"^\s*(?P<number>{number})\s*(?:{alike})\s*$"), 0)
    if comma:
        bare = pc.replace_substring(bare, ",", ".")
    return pc.if_else(pc.is_valid(bare), bare, column), len(column) - bare.null_count


def uncensored(column: pa.ChunkedArray, rules: Mapping[str, str]) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Replace values beyond a limit in a column of texts by numbers or nulls; also return their number by sign."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = {}
    for sign, rule in rules.items():
        signs = "<=?|≤" if sign == "<" else ">=?|≥"
        limit = pc.struct_field(pc.extract_regex(column, rf"^\s*(?:{signs})\s*(?P<limit>{NUMBER})\s*$"), 0)
        if not (count := len(column) - limit.null_count):
            continue
        counts[sign] = count
        number = pc.cast(limit, pa.float64())
        taken = {"half": pc.multiply(number, 0.5), "limit": number, "missing": pa.scalar(None, pa.float64())}[rule]
        column = pc.if_else(pc.is_valid(limit), pc.cast(taken, column.type), column)
    return column, counts


def limited(table: pa.Table, name: str, reading: Reading) -> pa.Table:
    """Return the column ``name`` alone, with numbers for values with a unit and values beyond a limit."""
    import pyarrow as pa

    column = table.column(name)
    if is_texts(column.type):
        if units := reading.units.get(name):
            column, _ = without_unit(column, units, reading.decimal == ",")
        column, _ = uncensored(column, reading.censored)
    return pa.table({name: column})


def typed(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Finding | None]:
    """Convert texts to numbers or truth values where all are such; otherwise also return the finding."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = cast(column, pa.float64())
    if numbers is None:
        trimmed = pc.utf8_trim_whitespace(column)
        numbers = cast(trimmed, pa.float64())
    else:
        trimmed = column
    if numbers is not None:
        ends = pc.min_max(numbers)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        large = most is not None and EXACT <= max(-least, most) < math.inf
        exact = cast(trimmed, pa.int64()) if large else None
        return (numbers if exact is None else exact), None
    found = find(column)
    if found.kind != "truth":
        return column, found
    true = pc.is_in(trimmed, value_set=pa.array(TRUE, trimmed.type))
    return _nulled(true, pc.is_null(trimmed)), None


def with_zeros(column: pa.ChunkedArray) -> bool:
    """Whether a column of texts has numbers with leading zeros, as codes have."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(column, r"^\s*[+-]?0[0-9]")).as_py())


def is_texts(type: pa.DataType) -> bool:
    """Whether a column contains texts and is not a dictionary."""
    import pyarrow as pa

    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def cast(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray | None:
    """Convert the column to another type; None where a value cannot be converted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(column, type)
    except pa.ArrowInvalid:
        return None


def _is_counted(type: pa.DataType) -> bool:
    """Whether a column contains numbers other than truth values."""
    import pyarrow as pa

    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _by_value(mark: str) -> bool:
    return re.fullmatch(NUMBER, mark) is not None and re.match("[+-]?0[0-9]", mark) is None and "n" not in mark.lower()


def _nulled(column: pa.ChunkedArray, wrong: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.fill_null(wrong, False), pa.scalar(None, column.type), column)
