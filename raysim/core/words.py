"""Numbers, names and values in sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import PurePath
from typing import Any


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun. ``plural`` is needed if the plural is not the noun with an s.

    >>> counted(1, "row"), counted(1841, "hospital"), counted(2, "class", "classes")
    ('1 row', '1,841 hospitals', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


MOST_DIGITS = 9
"""The largest number of decimals of a printed limit. A limit has so many only if it would otherwise be printed as 0."""


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """Return a number as text with ``digits`` decimals. A value that rounds to 0 has no sign.

    >>> number(0.0312, 2, sign=True), number(-0.001, 2, sign=True), number(float("nan"), 2)
    ('+0.03', '0.00', 'undefined')
    """
    if math.isnan(value):
        return "undefined"
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def ends(low: float, high: float, digits: int, *, sign: bool = False) -> tuple[str, str]:
    """Return the limits of an interval as text.

    With ``sign``, the interval is for a difference. Its limits have signs, except a limit that is printed as 0. If the
    interval excludes 0, a limit that would round to 0 gets more decimals.

    >>> ends(0.00009, 0.0041, 3, sign=True), ends(-0.0004, 0.0041, 3, sign=True)
    (('+0.0001', '+0.004'), ('0.000', '+0.004'))
    """
    excludes = sign and (low > 0 or high < 0)

    def end(value: float) -> str:
        more = digits
        while excludes and math.isfinite(value) and value and float(f"{value:.{more}f}") == 0 and more < MOST_DIGITS:
            more += 1
        return number(value, more, sign=sign)

    return end(low), end(high)


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Return names as a phrase such as "a, b and c". Names after the first ``most`` are only counted. If a name
    contains a comma, semicolons separate the names.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], 2), listed(["a"]), listed([])
    ('a, b and c', 'a, b and 1 more', 'a', '')
    >>> listed(["a", "b, lam 1", "c"])
    'a; b, lam 1; and c'
    """
    if most is not None and len(names) > most:
        return some(names, most)
    between, last = _between(names)
    return last.join(filter(None, [between.join(names[:-1]), *names[-1:]]))


def some(names: Sequence[str], most: int, between: str | None = None) -> str:
    """Return a text with the first ``most`` names and the number of the others. ``between`` separates the names (None:
    as in :func:`listed`).

    >>> some(["a", "b"], 2), some(["a", "b", "c"], 2), some(["a, lam 1", "b", "c"], 2)
    ('a, b', 'a, b and 1 more', 'a, lam 1; b; and 1 more')
    """
    usual, last = _between(names)
    return (usual if between is None else between).join(names[:most]) + (
        f"{last}{len(names) - most:,} more" if len(names) > most else ""
    )


def _between(names: Sequence[str]) -> tuple[str, str]:
    return ("; ", "; and ") if any(", " in name for name in names) else (", ", " and ")


def capitalised(text: str) -> str:
    """Return a text with a capital first letter and the rest unchanged.

    >>> capitalised("mean AUROC"), capitalised("")
    ('Mean AUROC', '')
    """
    return text[:1].upper() + text[1:]


def chance(p: float) -> str:
    """Return a p-value as text with two decimals, and never as 0.

    >>> chance(0.0312), chance(0.0099), chance(0.0), chance(float("nan"))
    ('p = 0.03', 'p < 0.01', 'p < 0.01', 'p undefined')
    """
    if math.isnan(p):
        return "p undefined"
    return f"p = {p:.2f}" if p >= 0.01 else "p < 0.01"


def as_yaml(value: Any) -> str:
    """Return a value of a configuration as in a YAML file, with texts in quotes.

    Nulls, truth values, texts, numbers, dates, paths, classes, lists and mappings are written out. For any other value,
    only the type is written, because the value could contain rows of patients.

    >>> as_yaml(None), as_yaml([1, True, "x"]), as_yaml({"mu": None}), as_yaml([object()])
    ('null', "[1, true, 'x']", '{mu: null}', '[an object]')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {as_yaml(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, str | int | float | date | type | PurePath):
        return repr(value)
    return of_type(value)


def is_unicode(text: str) -> bool:
    """Return whether a text can be written to a file; a text with half of a UTF-16 pair (a surrogate) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def of_type(value: Any) -> str:
    """Return the type of a value in words, without its content."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a nested mapping as texts, each with its dotted key, such as ``a.b``. Lists are written as
    JSON."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list | tuple) else str(value)
