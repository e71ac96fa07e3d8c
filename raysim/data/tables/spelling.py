"""Names that are probably one name, written in several ways: ``north`` and ``north ``, ``dead`` and ``Dead``."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError

TOTALS = frozenset(("total", "totals", "grand total", "sum", "all", "overall", "gesamt", "summe"))
"""What the line of totals of a spreadsheet is called, in lower case."""


def twins(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The names that differ in blanks, case or how an accent is composed alone, in groups; single letters are codes.

    >>> twins(["dead", "alive", "Dead", "dead "]), twins(["a", "A"]), twins(["ward  1", "ward 1"])
    ([('dead', 'Dead', 'dead ')], [], [('ward  1', 'ward 1')])
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        plain = " ".join(unicodedata.normalize("NFKC", name).split())
        alike.setdefault(plain.casefold() if len(plain) > 1 else plain, []).append(name)
    return [tuple(group) for group in alike.values() if len(group) > 1]


def written(group: Iterable[str], rows: Mapping[str, int]) -> str:
    """The names of a group with their rows: ``'dead' (500), 'dead ' (2)``."""
    return ", ".join(f"'{name}' ({rows[name]:,})" for name in sorted(group, key=lambda name: -rows[name]))


def check_twins(field: str, what: str, rows: Mapping[str, int]) -> None:
    """Raise ``DataError`` where two names are one, written in two ways; ``rows``: how many rows have each name."""
    if groups := twins(rows):
        raise DataError(
            f"{field}: {written(groups[0], rows)} differ in blanks or capitals alone and would be {len(groups[0])} "
            f"{what}; write them alike"
        )


def check_totals(field: str, names: NDArray[Any], rows: NDArray[np.int64] | None) -> None:
    """Raise ``DataError`` where one of the rows looks like the line of totals of a spreadsheet.

    ``names [N]``: the hospital or patient of each row; ``rows [N]``: the position of each row in the file, None: all.
    """
    for name in set(names.tolist()):
        if name.strip(" :").casefold() in TOTALS and np.count_nonzero(at_name := names == name) == 1:
            at = int(at_name.argmax())
            row = (at if rows is None else int(rows[at])) + 1
            raise DataError(
                f"{field}: '{name}' has one row (row {row}), which looks like a line of totals; remove that row"
            )
