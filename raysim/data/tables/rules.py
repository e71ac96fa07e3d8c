"""The rules by which a table's texts are read, in the form that runs and caches store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""The texts that mean a missing value in every column of every table, with or without blanks around them."""

TRUE, FALSE = ("1", "1.0", "True", "TRUE", "true"), ("0", "0.0", "False", "FALSE", "false")
"""The texts that are read as true, and those that are read as false, in a column of truth values."""

NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|Inf|INF|infinity|Infinity|INFINITY)"
"""The pattern of a number, without blanks before or after it."""

AS_FLOAT = r"-?(?:0|[1-9][0-9]*)\.0|-?[1-9](?:\.[0-9]+)?e\+[0-9]{2}"
"""The pattern of a whole number that a program has written as a float, such as ``12.0`` or ``1.2e+15``."""

RULES = ("half", "limit", "missing")
"""The rules for a value beyond a limit, such as ``<0.3``: read it as half of the limit, as the limit, or as missing."""

FORMULA_OF_TEXT = '="((?:[^"]|"")*)"'
"""The pattern of a spreadsheet's formula for a text, such as ``="007"``, which preserves leading zeros."""

_DIGITS = 22


@dataclass(frozen=True)
class Reading:
    """The rules by which a table's feature columns are read.

    - ``na_values``: texts that mean a missing value, in addition to :data:`MISSING`; for all columns, or by column.
    - ``censored``: the rule for values beyond a limit such as ``<0.3``, by sign (``<``, ``>``); one of :data:`RULES`.
    - ``decimal``: the decimal mark. None if the mark was not configured, and numbers had neither decimal commas nor
      thousands separators.
    - ``separator``, ``encoding``: the form of the file, which is also assumed for files of new rows.
    - ``units``: by column, the spellings of the unit that follows its numbers.
    """

    na_values: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    censored: Mapping[str, str] = field(default_factory=dict)
    decimal: Literal[".", ","] | None = None
    separator: str = ","
    encoding: str = "utf-8"
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def marks(self, column: str) -> tuple[str, ...]:
        """Return the configured texts that mean a missing value in ``column``. If numbers have a decimal comma, the
        spellings with a point are included.
        """
        marks = self.na_values.get(column, ()) if isinstance(self.na_values, Mapping) else self.na_values
        return tuple(dict.fromkeys([*marks, *map(pointed, marks)])) if self.decimal == "," else marks

    def tree(self) -> dict[str, Any]:
        """Return the rules as JSON values."""
        na = self.na_values
        by_column = {name: list(marks) for name, marks in na.items()} if isinstance(na, Mapping) else list(na)
        form = {"decimal": self.decimal, "separator": self.separator, "encoding": self.encoding}
        units = {"units": {name: list(written) for name, written in self.units.items()}} if self.units else {}
        return {"missing": list(MISSING), "na_values": by_column, "censored": dict(self.censored), **form, **units}

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Reading:
        """Restore the rules from a result of :meth:`tree`, also from an earlier version of raysim."""
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
    """Replace the decimal comma of a number by a point; leave other texts unchanged.

    >>> pointed("-99,9"), pointed("1,2,3")
    ('-99.9', '1,2,3')
    """
    return text.replace(",", ".") if re.fullmatch(r"[+-]?\d*,\d+", text) else text


def unquoted(text: str) -> str:
    """Return the text of a spreadsheet's formula such as ``="007"``; other texts are returned unchanged.

    >>> unquoted('="007"'), unquoted("=1+1")
    ('007', '=1+1')
    """
    match = re.fullmatch(FORMULA_OF_TEXT, text.strip(), re.DOTALL)
    return text if match is None else match[1].replace('""', '"')


def whole_name(text: str) -> str:
    """Return the name of a hospital or patient without '.0' or an exponent that a program added to a whole number.

    >>> whole_name("12.0"), whole_name("1e+15"), whole_name("2.5"), whole_name("007")
    ('12', '1000000000000000', '2.5', '007')
    """
    return canonical_number(text) if re.fullmatch(AS_FLOAT, text) else text


def canonical_number(text: str) -> str:
    """Return the canonical text of a number: no plus sign, no superfluous zeros, no minus before 0.

    All digits are kept, except that whole numbers with an exponent are read as float64, because programs write float64
    numbers in this form. In the result, only magnitudes of at least 1e22, or between 0 and 1e-7, have an exponent.

    >>> [canonical_number(each) for each in ("1.50", "-0.0", "+1e16", "9007199254740993.0", "1E-30")]
    ['1.5', '0', '10000000000000000', '9007199254740993', '1e-30']
    """
    if "e" in text.lower() and (whole := float(text)).is_integer() and abs(whole) < 10.0**_DIGITS:
        return str(int(whole))
    try:
        number = Decimal(text)
    except InvalidOperation:  # its exponent is too large for any number
        return text
    if not number:
        return "0"
    if -8 < number.adjusted() < _DIGITS:
        plain = f"{number:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    point = "." if len(digits) > 1 else ""
    return f"{'-' if number < 0 else ''}{digits[0]}{point}{digits[1:]}e{number.adjusted():+d}"
