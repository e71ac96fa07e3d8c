"""Prepares a table's rows as features of an exported model.

This file needs pandas and, in its folder, preprocessing.json.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import warnings
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|Inf|INF|infinity|Infinity|INFINITY)"
AS_FLOAT = r"-?(?:0|[1-9][0-9]*)\.0|-?[1-9](?:\.[0-9]+)?e\+[0-9]{2}"
LARGEST = 3.4028234663852886e38  # the largest float32
TRUTH = {"true": "1", "True": "1", "TRUE": "1", "false": "0", "False": "0", "FALSE": "0"}
BEYOND = r"(?:[<>]=?|≤|≥)?\s*[+-]?[1-9][0-9]{0,2}"  # the digits before the first thousands separator
SPACES = " \u00a0\u2009\u202f"
SPACED = rf"(?:['’][0-9]{{3}})+|(?:[{SPACES}][0-9]{{3}})+"
GROUPED = {
    ".": rf"{BEYOND}(?:{SPACED}|(?:,[0-9]{{3}})+)(?:\.[0-9]+)?",
    ",": rf"{BEYOND}(?:{SPACED}|(?:\.[0-9]{{3}})+)(?:,[0-9]+)?",
    None: rf"{BEYOND}(?:(?:{SPACED})(?:\.[0-9]+)?|(?:,[0-9]{{3}})+\.[0-9]+|(?:,[0-9]{{3}}){{2,}})",
}
"""Patterns of numbers with thousands separators, by decimal mark. None stands for an unspecified mark: it is taken as a
point, but ``1,234`` does not match, because its comma may be a decimal mark."""
SHARES = {"half": 0.5, "limit": 1.0, "missing": float("nan")}


def columns() -> list[dict[str, Any]]:
    """Return a description of each column that a table needs, in the order of the features."""
    described: list[dict[str, Any]] = _described()["columns"]
    return described


def features(rows: pd.DataFrame) -> Any:
    """Return the features of ``rows`` as a float32 array: values, then flags of missing values.

    For trees, a missing value stays NaN, and a category is given by its index.

    Raises ``ValueError``, which names the column, if a column is missing, or has dates or times as Python objects,
    numbers too large for float32, or texts instead of numbers. Missing values also raise it if training had
    preprocessing ``none``.
    """
    described, values, flags = _described(), [], []
    absent = [column["name"] for column in columns() if column["name"] not in rows]
    if absent:
        raise ValueError(
            f"there is no column {absent[0]!r}; add it (columns of a CSV file must be separated by "
            f"{described['separator']!r})"
        )
    for column in columns():
        marks = described["na_values"]
        marks = marks.get(column["name"], []) if isinstance(marks, dict) else marks
        if any(isinstance(value, date | time | timedelta) for value in rows[column["name"]].dropna().head(1)):
            raise ValueError(f"column {column['name']!r} holds dates or times, but training had none; convert them")
        comma = described["decimal"] == "," and column["kind"] == "numeric"
        given = _recorded(rows[column["name"]], described["missing"], marks, comma)
        if column["kind"] == "numeric":
            number = _each(given, partial(_number, name=column["name"], described=described)).astype("float64")
            if (number.abs() > LARGEST).any():
                raise ValueError(f"column {column['name']!r} holds a number too large for float32; correct it")
            number = number.astype("float32").astype("float64")
            given, number = number, number if column["fill"] is None else number.fillna(column["fill"])
            varied = column["scale"] is not None
            values.append((number - column["mean"]) / column["scale"] if varied else number * 0)
        else:
            found = _found(given, column)
            values += [_position(given, found)] if column.get("coded") else found
        if described["method"] == "none" and given.isna().any():
            raise ValueError(f"column {column['name']!r} lacks a value; fill it in, as training had no missing values")
        if column["flagged"]:
            flags.append(given.isna())
    return pd.concat([*values, *flags], axis=1).to_numpy("float32")


def _found(given: pd.Series, column: dict[str, Any]) -> list[pd.Series]:
    """Return for each category of a column which of the ``given`` values belong to it."""
    value = partial(_value, compared_as=column["compared_as"])
    values, whole = _each(given, value), _each(given, lambda text: value(_whole(text)))
    bare = [category.lstrip() for category in column["categories"]]  # _recorded removes blanks if all texts have some
    names = [_whole(text) for text in bare]
    return [
        (values == value(category))
        | ((values == value(text)) & (bare.count(text) == 1))
        | ((whole == value(name)) & (names.count(name) == 1))
        for category, text, name in zip(column["categories"], bare, names, strict=True)
    ]


def _whole(text: str) -> str:
    """Return a whole number without the '.0' or exponent of a float; other texts are unchanged."""
    return f"{(Decimal(text) + 0).normalize():f}" if re.fullmatch(AS_FLOAT, text) else text


def _value(text: str, compared_as: str) -> Any:
    """Convert a text to the form ``compared_as``, such as a number; None if this is impossible."""
    if compared_as == "truth":
        return {"true": 1, "1": 1, "1.0": 1, "false": 0, "0": 0, "0.0": 0}.get(text.strip().lower())
    if compared_as == "text":
        return text
    if not _is_number(text):
        return None
    try:
        return float(text.strip()) if compared_as == "number" else Decimal(text.strip())
    except InvalidOperation:  # its exponent is too large for any category
        return None


def _position(given: pd.Series, found: list[pd.Series]) -> pd.Series:
    """Return the index of each value's category, from 0; NaN for an unknown category.

    ``found`` says for each category which values belong to it.
    """
    position = pd.Series(float("nan"), index=given.index)
    for number, category in enumerate(found):
        position = position.mask(category, number)
    return position


def read(path: str) -> pd.DataFrame:
    """Read a file in the format of the training file; all values are texts, and blank rows are skipped.

    The index is each row's position below the header, from 0. Raises ``ValueError``, which names the line, if a line
    has too many or too few fields.
    """
    described = _described()
    encoding = "utf-8-sig" if described["encoding"] == "utf-8" else described["encoding"]
    rows, blank = {}, []
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt", encoding=encoding, newline="") as file:
        lines = csv.reader(file, delimiter=described["separator"])
        names = [_unquoted(name.strip()) for name in next((line for line in lines if "".join(line).strip()), [])]
        for row, line in enumerate(lines):
            cells = [_unquoted(cell) for cell in line]
            if not any(cell.strip() for cell in cells):
                blank.append(row)
            elif len(cells) != len(names):
                raise ValueError(
                    f"line {lines.line_num} has {len(cells)} fields, but the first line has {len(names)}; correct it"
                )
            else:
                rows[row] = cells
    if blank:
        warnings.warn(f"{len(blank)} blank rows are skipped (first: row {blank[0] + 1})", stacklevel=2)
    return pd.DataFrame.from_dict(rows, orient="index", columns=names, dtype=str)


def _unquoted(text: str) -> str:
    """Return the text inside a spreadsheet formula such as ``="007"``, or the unchanged text."""
    match = re.fullmatch('="((?:[^"]|"")*)"', text.strip(), re.DOTALL)
    return text if match is None else match[1].replace('""', '"')


def _described() -> dict[str, Any]:
    described: dict[str, Any] = json.loads(Path(__file__).with_name("preprocessing.json").read_text())
    return described


def _recorded(given: pd.Series, missing: list[str], marks: list[str], comma: bool) -> pd.Series:
    """Return the texts of a column, with None for missing values.

    ``missing`` and ``marks`` are the texts for missing values; numbers among ``marks`` are compared by value.
    ``comma`` says whether numbers have a decimal comma.
    """
    marks = [*marks, *(mark.replace(",", ".") for mark in marks if comma)]
    by_value = [float(mark) for mark in marks if re.fullmatch(NUMBER, mark) and not re.match("[+-]?0[0-9]", mark)]

    # Some programs write a blank before each text.
    spaced = all(isinstance(value, str) and value[:1] in ("", " ") for value in given.dropna().unique())

    def text(value: Any) -> str | None:
        text = _unquoted(value.lstrip() if spaced else str(value))
        absent = text.strip() in missing or text in marks
        number = text.replace(",", ".") if comma else text
        return None if absent or (_is_number(number) and float(number.strip()) in by_value) else text

    return _each(given, text)


def _each(given: pd.Series, convert: Callable[[Any], Any]) -> pd.Series:
    if (kind := str(given.dtype)) in ("float16", "float32", "Float32", "float[pyarrow]"):
        single = given.astype("float16" if kind == "float16" else "float32")
        given = single.astype("string")  # the shortest text: as a float64, 0.1 has further digits
    given = given.map(str, na_action="ignore") if given.dtype == object else given.astype(object)
    codes, different = pd.factorize(given)
    converted = pd.Series([*(convert(value) for value in different), None], dtype=object)
    return converted.iloc[codes].set_axis(given.index)


def _number(text: str, name: str, described: dict[str, Any]) -> float:
    censored, written = described["censored"], TRUTH.get(text.strip(), text.strip())
    written = re.sub(r"^((?:[<>]=?|≤|≥)?\s*)−([0-9.,])", r"\1-\2", written)  # the typographic minus sign
    if units := "|".join(map(re.escape, described.get("units", {}).get(name, []))):
        amount = rf"{NUMBER}|[+-]?[0-9]+,[0-9]+|[+-]?[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}})+(?:,[0-9]+)?"
        bare = re.fullmatch(rf"((?:[<>≤≥]=?\s*)?(?:{amount}))\s*(?:{units})", written)
        written = bare[1] if bare else written
    if re.fullmatch(GROUPED[described["decimal"]], written):
        between = "." if described["decimal"] == "," else ","
        written = re.sub(rf"[{between}'’{SPACES}]([0-9]{{3}})", r"\1", written)
    if described["decimal"] == "," and "." not in written:
        written = written.replace(",", ".")
    beyond = re.fullmatch(rf"([<>≤≥])=?\s*({NUMBER})", written)
    rule = censored.get({"≤": "<", "≥": ">"}.get(beyond[1], beyond[1])) if beyond else None
    if beyond and rule:
        return SHARES[rule] * float(beyond[2])
    if not _is_number(written):
        raise ValueError(f"column {name!r} holds {text!r}, not a number; correct it, or leave it empty")
    return float(written)


def _is_number(text: str) -> bool:
    return re.fullmatch(NUMBER, text.strip()) is not None
