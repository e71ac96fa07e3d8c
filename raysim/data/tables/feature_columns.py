"""The feature columns of a user's table by kind: numbers as float32, texts as categories, with notes and warnings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.errors import DataError
from raysim.core.plain_yaml import scalar
from raysim.core.words import counted, some
from raysim.data.records import natural
from raysim.data.tables.columns import is_number, number_texts, numbers, placed, plain_text
from raysim.data.tables.kinds import Finding, dates_of, described
from raysim.data.tables.reading import is_texts, limited, typed, uncensored, with_zeros, without_unit
from raysim.data.tables.rules import Reading
from raysim.data.tables.spelling import twins, written

if TYPE_CHECKING:
    import pandas as pd

MOST_CATEGORIES = 100
"""Largest number of categories of a column that is not listed in ``data.categorical``; more are an error."""

MANY_CATEGORIES = 50
"""Largest number of categories without a warning, in a column that is not listed in ``data.categorical``."""

MANY_NUMBERS = 12
"""A column of numbers and other texts that is not listed in ``data.categorical`` is read as categories without a
warning if it has at most this many different numbers.
"""

FURTHER = "..."
"""The item for all unlisted columns: of numbers in ``data.numeric``, of categories in ``data.categorical``."""

_NAMED = 12


@dataclass(frozen=True)
class Wanted:
    """The names of the columns to use as numeric and as categorical features. If a list is None or contains ``...``,
    unlisted columns of its kind are also used.
    """

    numeric: Sequence[str] | None
    categorical: Sequence[str] | None

    def of(self, name: str) -> Literal["numeric", "categorical"] | None:
        """Return the kind under which the column ``name`` is listed; None if it is not listed."""
        if name in (self.numeric or ()):
            return "numeric"
        return "categorical" if name in (self.categorical or ()) else None

    def further(self, kind: Literal["numeric", "categorical"]) -> bool:
        """Whether unlisted columns of this kind are features."""
        listed = self.numeric if kind == "numeric" else self.categorical
        return listed is None or FURTHER in listed


@dataclass(frozen=True, eq=False)
class FeatureColumns:
    """The feature columns of a table, with notes and warnings about them."""

    frame: pd.DataFrame
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def feature_columns(
    table: pa.Table, names: Sequence[str], wanted: Wanted, reading: Reading, rows: NDArray[np.int64] | None
) -> FeatureColumns:
    """Read the columns ``names`` of a table as features, in the table's order of rows.

    ``rows [N]`` is the position of each row in the file; None: the rows are the whole file. Raises ``DataError`` for
    columns that are neither numbers nor categories, and for unlisted columns with too many categories.
    """
    import pandas as pd

    columns: dict[str, pd.Series[Any]] = {}
    notes: list[str] = []
    warnings: list[str] = []
    left: list[str] = []
    refused: dict[str, str] = {}
    for name in names:
        asked = wanted.of(name)
        column, found, taken = _typed(table, name, asked, reading)
        kind = asked or ("numeric" if is_number(column.type) else _kind_of_texts(column, found))
        mixed = found is not None and found.kind == "mixed"
        if not (asked or mixed or wanted.further("categorical" if kind == "categorical" else "numeric")):
            left.append(name)
        elif kind == "numeric" and (found is None or found.kind not in ("mixed", "date")):
            values = numbers(_alone(name, column), name, "data.numeric", rows=rows)
            columns[name] = pd.Series(values.astype(np.float32))
            notes += taken
            text = asked is None and is_texts(table.column(name).type)
            if text and not np.any(values % 1 > 0) and with_zeros(table.column(name)):
                warnings.append(
                    f"column '{name}' is read as numbers, some of them with leading zeros (007); list it in "
                    f"data.categorical ([{scalar(name)}, ...]) if they are codes"
                )
            if days := None if asked else dates_of(name, values):
                warnings.append(
                    f"column '{name}' is read as numbers, which are probably dates ({days}); drop it (data.drop) or "
                    f"convert it into days since admission; list it in data.numeric ([{scalar(name)}, ...]) if not"
                )
        elif kind == "categorical" and pa.types.is_temporal(column.type):
            refused[name] = (
                f"column '{name}' holds {column.type}, whose text may differ in other files; convert it to text to use "
                "it as a category, or drop it (data.drop)"
            )
        elif kind == "categorical":
            columns[name] = _category(column, name, asked is not None)
            warnings += _alike(name, columns[name])
            if asked is None:
                warnings += _doubts(name, found, len(columns[name].cat.categories))
        elif found is not None or pa.types.is_temporal(column.type):
            found = found or _dates(column)
            first = found.first if rows is None or found.first is None else int(rows[found.first - 1]) + 1
            refused[name] = described(name, found, first)
        else:
            refused[name] = (
                f"column '{name}' holds {column.type}, neither numbers nor text; drop it (data.drop) or convert it"
            )
    if refused:
        first_name, *others = refused
        more = f"; the same for {counted(len(others), 'more column')}: {_quoted(others)}" if others else ""
        raise DataError(f"data.path: {refused[first_name]}{more}")
    if left:
        notes.append(
            f"not used as features, because data.numeric or data.categorical lists other columns: {_quoted(left)}"
        )
    return FeatureColumns(pd.DataFrame(columns), tuple(notes), tuple(warnings))


def number_column(
    table: pa.Table, name: str, field: str, reading: Reading, rows: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Read the numbers ``[N]`` of a column that is not a feature, such as a clinical score, with NaN for empty values.

    ``rows`` is as in :func:`feature_columns`. Raises ``DataError`` that begins with ``field`` for texts that are not
    numbers.
    """
    alone = limited(table, name, reading)
    if is_texts(alone.column(name).type):
        _, found = typed(alone.column(name))
        if found is not None and found.first is not None and found.kind in ("mixed", "date"):
            raise DataError(f"{field}: {described(name, found, placed(found.first - 1, rows), categories=False)}")
    return numbers(alone, name, field, "correct it, or leave it empty", rows)


def _quoted(names: Sequence[str]) -> str:
    return some([f"'{name}'" for name in names], _NAMED)


def _typed(
    table: pa.Table, name: str, asked: Literal["numeric", "categorical"] | None, reading: Reading
) -> tuple[pa.ChunkedArray, Finding | None, list[str]]:
    """Return the column ``name``, with texts converted to numbers or truth values if possible; a :class:`Finding`; and
    notes for the user.

    The finding describes texts that were not converted. It is None if all texts were converted, or if the column's type
    or the configuration makes the column categorical.
    """
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = plain_text(table, name, "data.categorical")
        if asked != "numeric":
            return column, None, []
    if not is_texts(column.type):
        return column, None, []
    if asked == "categorical":
        made, found = typed(column)
        if found is None and not with_zeros(column):
            column = made if pa.types.is_boolean(made.type) else number_texts(column, made, name, "data.categorical")
        return column, None, []
    notes, count = [], 0
    if units := reading.units.get(name):
        column, count = without_unit(column, units, reading.decimal == ",")
        notes = [f"column '{name}': {counted(count, 'value')} with a unit ({', '.join(units)}) taken as numbers"]
    made, found = typed(column)
    counts: dict[str, int] = {}
    if found is not None and (asked == "numeric" or found.kind == "mixed"):
        column, counts = uncensored(column, reading.censored)
    if counts:
        beyond = {"<": "below", ">": "above"}
        taken = {"half": "half of it", "limit": "the limit", "missing": "missing"}
        notes += [
            f"column '{name}': {counted(n, 'value')} {beyond[sign]} a limit taken as {taken[reading.censored[sign]]}"
            for sign, n in counts.items()
        ]
        made, found = typed(column)
    if (count or counts) and asked is None and found is not None and found.kind == "category":
        # As categories, the changed texts would not be those of new rows.
        found = replace(found, kind="mixed")
    return made, found, notes


def _dates(column: pa.ChunkedArray) -> Finding:
    recorded = len(column) - column.null_count
    return Finding(
        "date", len(column), recorded, forms={"date": recorded}, first=pc.index(pc.is_valid(column), True).as_py() + 1
    )


def _kind_of_texts(column: pa.ChunkedArray, found: Finding | None) -> Literal["numeric", "categorical"] | None:
    if pa.types.is_null(column.type):
        return "numeric"
    return "categorical" if is_texts(column.type) and (found is None or found.kind == "category") else None


def _category(column: pa.ChunkedArray, name: str, listed: bool) -> pd.Series[Any]:
    import pandas as pd

    values = plain_text(_alone(name, column), name, "data.categorical").to_pandas()
    categories = values.dropna().unique().tolist()
    if len(categories) > MOST_CATEGORIES and not listed:
        raise DataError(
            f"data.categorical: text column '{name}' holds {len(categories):,} different values, more than "
            f"{MOST_CATEGORIES}: drop it (data.drop), list it in data.numeric if it is meant as numbers, or in "
            f"data.categorical ([{scalar(name)}, ...]) to keep it anyway"
        )
    return pd.Series(pd.Categorical(values, categories=natural(categories)))


def _alike(name: str, values: pd.Series[Any]) -> list[str]:
    groups = twins(values.cat.categories)
    if not groups:
        return []
    rows = {str(category): int(n) for category, n in values.value_counts().items()}
    more = f", and {counted(len(groups) - 1, 'more group')} of such" if len(groups) > 1 else ""
    return [
        f"categories {written(groups[0], rows)} of column '{name}' differ only in blanks or "
        f"capitals{more}: each is a separate feature; write them alike"
    ]


def _doubts(name: str, found: Finding | None, categories: int) -> list[str]:
    """Return warnings about a column that is read as categories, but is not listed in ``data.categorical``.

    ``found`` is None if the column's type is categorical.
    """
    found = found or Finding("category", 0, categories=categories)
    doubts = []
    if found.different > MANY_NUMBERS:
        doubts.append(
            f"column '{name}' holds numbers in {counted(found.numbers, 'row')} and texts in "
            f"{found.recorded - found.numbers:,}, each a category"
        )
    written = [mark for mark in found.marks if re.match(r"[\W_]*\d", mark)]
    if found.different <= MANY_NUMBERS < len(written) and 2 * len(written) > found.categories:
        doubts.append(
            f"column '{name}' has {len(written):,} categories that begin with a digit, such as '{written[0]}', and may "
            "be numbers that are written in another way"
        )
    elif found.categories > MANY_CATEGORIES:
        doubts.append(f"column '{name}' has {found.categories:,} categories, each a separate feature")
    return [f"{doubt}; list it in data.categorical ([{scalar(name)}, ...]) if this is intended" for doubt in doubts]


def _alone(name: str, column: pa.ChunkedArray) -> pa.Table:
    return pa.table({name: column})
