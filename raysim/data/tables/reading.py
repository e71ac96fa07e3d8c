"""Apply the rules for texts of a table that mean missing values, numbers with a unit, or values beyond a limit.

Training, ``raysim predict`` and an exported ``prepare.py`` use the same rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from raysim.data.tables.kinds import Finding, find
from raysim.data.tables.rules import MISSING, NUMBER, TRUE, Reading, unquoted

EXACT = 2.0**53
"""The number up to which every whole number is exact as a float64."""


def unquoted_table(table: pa.Table) -> pa.Table:
    """Apply :func:`raysim.data.tables.rules.unquoted` to all texts and column names."""
    columns = {unquoted(name): _unquoted(table.column(k)) for k, name in enumerate(table.column_names)}
    if len(columns) < table.num_columns:  # the caller reports columns of one name
        return table.rename_columns([unquoted(name) for name in table.column_names])
    return pa.table(columns)


def _unquoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
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
    """Replace texts that mean a missing value by nulls in all text columns. In the columns ``names``, only empty texts
    are replaced.
    """
    return pa.table(
        {name: filled(table.column(name), ("",) if name in names else MISSING) for name in table.column_names}
    )


def filled(column: pa.ChunkedArray, marks: Sequence[str] = MISSING) -> pa.ChunkedArray:
    """Replace the texts ``marks``, with or without blanks around them, by nulls.

    If all texts that are not empty begin with a space, leading blanks are removed.
    """
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
    if not len(column) or not (column[0].as_py() or " ").startswith(" "):  # this check is far quicker
        return column
    spaced = pc.or_(pc.starts_with(column, " "), pc.equal(column, ""))
    return pc.utf8_ltrim_whitespace(column) if pc.all(spaced).as_py() else column


def unmarked(column: pa.ChunkedArray, marks: tuple[str, ...]) -> tuple[pa.ChunkedArray, set[str]]:
    """Replace ``marks`` (values that mean a missing value) by nulls in a column, and return the marks that occur.

    A text must equal a mark. A number also matches other spellings of the mark (``-999.0`` for ``-999``), unless the
    mark has leading zeros: ``00`` is not 0.
    """
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
        # Cast to float64, a float32 or decimal -99.9 differs from the mark; its text is the same.
        inexact = column.type == pa.float32() or pa.types.is_decimal(column.type)
        numbers = pc.cast(pc.cast(column, pa.string()) if inexact else column, pa.float64(), safe=False)
    valued = pc.is_in(numbers, value_set=values)
    wrong = valued if alike is None else pc.or_(alike, valued)
    if not pc.any(wrong).as_py():
        return column, set()
    written = set(pc.unique(column.filter(wrong)).to_pylist()) if is_texts(column.type) else set()
    by_value = set(pc.unique(numbers.filter(wrong)).to_pylist())
    return _nulled(column, wrong), {mark for mark in marks if mark in written or numbered.get(mark) in by_value}


def without_unit(column: pa.ChunkedArray, units: Sequence[str], comma: bool) -> tuple[pa.ChunkedArray, int]:
    """Remove the ``units`` after numbers or values such as ``<0.3`` in a column of texts, and count the values with a
    unit.

    ``comma`` says whether numbers have a decimal comma. If so, points before three digits separate thousands, as in
    numbers without a unit. If the column has a decimal comma or such a thousands separator, numbers with any other
    point keep their unit.
    """
    grouped = r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:,[0-9]+)?"
    number = rf"(?:(?:<=?|>=?|≤|≥)\s*)?(?:{NUMBER}|[+-]?[0-9]+,[0-9]+{f'|{grouped}' * comma})"
    alike = "|".join(map(re.escape, units))
    bare = pc.struct_field(pc.extract_regex(column, rf"^\s*(?P<number>{number})\s*(?:{alike})\s*$"), 0)
    if comma:
        whole = pc.match_substring_regex(bare, rf"^(?:[<>≤≥]=?\s*)?{grouped}$")
        plain = pc.if_else(whole, pc.replace_substring(bare, ".", ""), bare)
        if pc.any(pc.or_(whole, pc.match_substring(bare, ","))).as_py():  # other points would be decimal marks, too
            plain = pc.if_else(pc.match_substring(plain, "."), pa.scalar(None, plain.type), plain)
        bare = pc.replace_substring(plain, ",", ".")
    return pc.if_else(pc.is_valid(bare), bare, column), len(column) - bare.null_count


def uncensored(column: pa.ChunkedArray, rules: Mapping[str, str]) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Replace texts for values beyond a limit, such as ``<0.3``, by numbers or nulls.

    ``rules`` says for each sign, ``<`` and ``>``, whether the value becomes ``half`` the limit, the ``limit`` or
    ``missing``. Returns the column, and the number of replaced texts with each sign.
    """
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
    """Return a table of the column ``name`` alone, without units, and with numbers or nulls for values such as
    ``<0.3``.
    """
    column = table.column(name)
    if is_texts(column.type):
        if units := reading.units.get(name):
            column, _ = without_unit(column, units, reading.decimal == ",")
        column, _ = uncensored(column, reading.censored)
    return pa.table({name: column})


def typed(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Finding | None]:
    """Convert texts that are all numbers or all truth values; return other texts unchanged, with a finding on them."""
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
    return bool(pc.any(pc.match_substring_regex(column, r"^\s*[+-]?0[0-9]")).as_py())


def is_texts(type: pa.DataType) -> bool:
    """Whether ``type`` is a type of texts, other than Arrow's dictionary type."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def cast(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column converted to ``type``; None if any value cannot be converted."""
    try:
        return pc.cast(column, type)
    except pa.ArrowInvalid:
        return None


def _is_counted(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _by_value(mark: str) -> bool:
    return re.fullmatch(NUMBER, mark) is not None and re.match("[+-]?0[0-9]", mark) is None


def _nulled(column: pa.ChunkedArray, wrong: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.fill_null(wrong, False), pa.scalar(None, column.type), column)
