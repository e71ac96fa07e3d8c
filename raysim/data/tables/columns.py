"""Read columns of an Arrow table as numbers or texts, or raise an error that names the first bad row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.tables.reading import typed
from raysim.data.tables.rules import AS_FLOAT, canonical_number, whole_name


def numbers(
    table: pa.Table,
    name: str,
    field: str,
    remedy: str = "correct it, leave it empty, or make the column categorical",
    rows: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Read the column ``name`` as float64 ``[N]``, with NaN for empty values. Raises ``DataError`` naming ``field`` for
    a value that is not a finite float32 number.

    ``remedy`` is the advice in the error message if a text is among the numbers. ``rows [N]`` is the position of each
    row in the file; None: the rows are the whole file.
    """
    column = table.column(name)
    if is_text(column.type):
        column, found = typed(plain_text(table, name, field))
        if found is not None and found.first is not None:
            first, text = placed(found.first - 1, rows), column[found.first - 1].as_py()
            raise DataError(f"{field}: column '{name}' holds '{text}' in row {first}, not a number; {remedy}")
    if not (is_number(column.type) or is_text(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{field}: column '{name}' holds {column.type}, not numbers; convert it or drop it")
    # Whole numbers beyond 2**53 are rounded, as in a CSV.
    values = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    infinite = np.isinf(values) | (np.abs(values) > np.finfo(np.float32).max)
    if infinite.any():
        at = int(infinite.argmax())
        raise DataError(
            f"{field}: column '{name}' holds {values[at]:g} in row {placed(at, rows)}, not a finite float32 number; "
            "correct it or leave it empty"
        )
    return values


def texts(
    table: pa.Table,
    name: str,
    field: str,
    unknown: str | None = None,
    remedy: str = "fill in values or remove the rows",
    rows: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Read the column ``name`` as texts ``[N]``, with ``unknown`` for empty values.

    If ``unknown`` is None, an empty value raises ``DataError`` that names ``field`` and contains the advice ``remedy``.

    ``rows [N]`` is the position of each row in the file; None: the rows are the whole file.
    """
    column = whole_names(plain_text(table, name, field))
    if column.null_count and unknown is None:
        row = placed(pc.index(pc.is_null(column), True).as_py(), rows)
        raise DataError(
            f"{field}: column '{name}' has no value in {counted(column.null_count, 'row')} (first: row {row}); {remedy}"
        )
    # One object for each text, not for each row: a hospital's name may occur in many rows.
    encoded = pc.dictionary_encode(column).combine_chunks()
    different = np.array([*encoded.dictionary.to_pylist(), unknown], object)
    return np.asarray(different[encoded.indices.fill_null(-1).to_numpy()])


def whole_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Apply :func:`raysim.data.tables.rules.whole_name` to all texts of a column."""
    found = pc.any(pc.match_substring_regex(column, f"^(?:{AS_FLOAT})$")).as_py()
    return _mapped(column, whole_name) if found else column


def placed(at: int, rows: NDArray[np.int64] | None) -> int:
    """Return the number of a row in the file, from 1, given its position ``at`` in the table, from 0. ``rows`` is as in
    :func:`numbers`.
    """
    return (at if rows is None else int(rows[at])) + 1


def plain_text(table: pa.Table, name: str, field: str) -> pa.ChunkedArray:
    """Return the column ``name`` as text: numbers in canonical form (``1.5`` for ``1.50``), truth values as True or
    False, and NaN as null.

    Raises ``DataError`` for infinite numbers, lists, records, and bytes that are not UTF-8.
    """
    column = table.column(name)
    try:
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        if pa.types.is_boolean(column.type):
            return pc.if_else(column, "True", "False")
        if pa.types.is_floating(column.type):
            return _of_floats(column, name, field)
        if isinstance(column.type, pa.BaseExtensionType):  # a cast would give the integers of periods, for example
            raise pa.ArrowTypeError(str(column.type))
        written = pc.cast(column, pa.string())
        return canonical(written) if pa.types.is_decimal(column.type) else written
    except pa.ArrowException:
        kind = table.schema.field(name).type
        raise DataError(f"{field}: column '{name}' holds {kind}, which is not text; convert it") from None


def widened(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert numbers of half precision to float64, as if read from a CSV file; other columns are unchanged."""
    if not pa.types.is_float16(column.type):
        return column
    different, at = np.unique(pc.cast(column, pa.float32()).to_numpy(zero_copy_only=False), return_inverse=True)
    return pa.array(different.astype(np.float16).astype(str).astype(np.float64)[at], from_pandas=True)


def number_texts(column: pa.ChunkedArray, numbers: pa.ChunkedArray, name: str, field: str) -> pa.ChunkedArray:
    """Return ``column``, whose texts are all numbers, in canonical form. ``numbers`` has the parsed values.

    Raises ``DataError`` for infinite numbers.
    """
    if pa.types.is_floating(numbers.type):
        _refuse_infinite(numbers, name, field)
    return canonical(pc.utf8_trim_whitespace(column))


def canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ``column``, whose texts are all numbers, in the form of :func:`canonical_number`."""
    return _mapped(column, canonical_number)


def _mapped(column: pa.ChunkedArray, changed: Callable[[str], str]) -> pa.ChunkedArray:
    encoded = pc.dictionary_encode(column).combine_chunks()
    texts = pa.array([changed(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([texts.take(encoded.indices)], pa.string())


def _of_floats(column: pa.ChunkedArray, name: str, field: str) -> pa.ChunkedArray:
    column = pc.if_else(pc.is_nan(column), None, column)
    _refuse_infinite(column, name, field)
    small = pc.and_(pc.equal(column, pc.round(column)), pc.less(pc.abs(column), 2.0**24))
    if pc.all(pc.fill_null(small, True)).as_py():
        return pc.cast(pc.cast(column, pa.int64()), pa.string())  # the same texts, far quicker
    # With an exponent a text is read as a float64, whatever its digits.
    written = pc.cast(column, pa.string())
    return canonical(
        pc.if_else(pc.match_substring(written, "e"), written, pc.binary_join_element_wise(written, "e0", ""))
    )


def _refuse_infinite(column: pa.ChunkedArray, name: str, field: str) -> None:
    row = pc.index(pc.is_inf(column), True).as_py()
    if row >= 0:
        raise DataError(f"{field}: column '{name}' holds an infinite value in row {row + 1}; correct it")


def is_text(type: pa.DataType) -> bool:
    """Whether a column of this type contains texts, also in Arrow's dictionary type."""
    inner = type.value_type if pa.types.is_dictionary(type) else type
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))


def is_number(type: pa.DataType) -> bool:
    """Whether a column of this type contains numbers or truth values."""
    tests: Sequence[Any] = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(type) for test in tests)
