"""Find names that are probably one name in several spellings: ``north`` and ``north ``, ``dead`` and ``Dead``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.core.words import listed

TOTALS = frozenset(("total", "totals", "grand total", "sum", "all", "overall", "gesamt", "summe"))
"""The names, in lower case, of rows with a spreadsheet's totals."""

_LETTERS = frozenset("ynjostfmwvu01")  # letters of answers (yes, no; true, false) and sexes, in several languages
_ANSWERS = 6  # largest number of different answers
_CUT = re.compile(r"\d(?:[.,]\d+)?E\+\d{2,3}")  # rounded numbers as spreadsheets write them


def twins(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Group the names that differ only in blanks, case or the composition of accents.

    Single letters such as ``a`` and ``A`` differ, unless there are at most six names and all single letters are usual
    answers such as ``Y``, ``y`` and ``N``.

    >>> twins(["dead", "alive", "Dead", "dead "]), twins(["a", "A"]), twins(["ward  1", "ward 1"]), twins("FMm")
    ([('dead', 'Dead', 'dead ')], [], [('ward  1', 'ward 1')], [('M', 'm')])
    """
    alike: dict[str, list[str]] = {}
    plain = {name: " ".join(unicodedata.normalize("NFKC", name).split()) for name in names}
    answers = len(plain) <= _ANSWERS and not any(
        len(each) == 1 and each.casefold() not in _LETTERS for each in plain.values()
    )
    for name, each in plain.items():
        alike.setdefault(each.casefold() if len(each) > 1 or answers else each, []).append(name)
    return [tuple(group) for group in alike.values() if len(group) > 1]


def written(group: Iterable[str], rows: Mapping[str, int]) -> str:
    """List the names of a group, each with its number of rows: ``'dead' (500), 'dead ' (2)``."""
    return ", ".join(f"'{name}' ({rows[name]:,})" for name in sorted(group, key=lambda name: -rows[name]))


def check_twins(field: str, what: str, rows: Mapping[str, int]) -> None:
    """Raise ``DataError`` if two names are probably one name; ``rows`` is the number of rows of each name."""
    if groups := twins(rows):
        raise DataError(
            f"{field}: {written(groups[0], rows)} differ only in blanks or capitals and would be {len(groups[0])} "
            f"{what}; write them alike"
        )


def twin_warnings(field: str, rows: Mapping[str, int]) -> list[str]:
    """Return a warning for each set of names that are probably one name; ``rows`` has the number of rows of each
    name.
    """
    return [
        f"{field}: {written(group, rows)} differ only in blanks or capitals: each is a separate group; write them alike"
        for group in twins(rows)
    ]


def twin_columns(names: Iterable[str]) -> list[str]:
    """Return a warning for each set of column names that are probably one name."""
    return [
        f"columns {listed([repr(name) for name in group])} differ only in blanks or capitals: each is a separate "
        "column; drop all but one (data.drop), or merge them in the file"
        for group in twins(names)
    ]


def check_totals(field: str, names: NDArray[Any], rows: NDArray[np.int64] | None) -> None:
    """Raise ``DataError`` if a row seems to contain a spreadsheet's totals.

    ``names [N]`` is the name of each row's hospital or patient. ``rows [N]`` is the position of each row in the file;
    None: the rows are the whole file.
    """
    for name in set(names.tolist()):
        if name.strip(" :").casefold() in TOTALS and np.count_nonzero(at_name := names == name) == 1:
            at = int(at_name.argmax())
            row = (at if rows is None else int(rows[at])) + 1
            raise DataError(
                f"{field}: '{name}' has one row (row {row}), which looks like a line of totals; remove that row"
            )


def check_cut(field: str, name: str, values: NDArray[Any], rows: NDArray[np.int64] | None) -> None:
    """Raise ``DataError`` for numbers that a spreadsheet has shortened, such as 1.23E+10, so that different numbers may
    have become equal.

    ``values [N]`` are the values of the column ``name``; ``rows`` is as in :func:`check_totals`.
    """
    if cut := {each for each in set(values.tolist()) if _CUT.fullmatch(each)}:
        at = next(k for k, each in enumerate(values) if each in cut)
        raise DataError(
            f"{field}: column '{name}' holds '{values[at]}' in row {(at if rows is None else int(rows[at])) + 1}, a "
            "long number that a spreadsheet has rounded; export the column again as text, with all digits"
        )
