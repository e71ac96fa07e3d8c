"""Fitted preprocessing: plain numbers and names that convert a source's columns to features.

The same code prepares the rows of a federation and, from a run's ``preprocessing.json``, new rows. A missing number is
replaced by a fixed value; the method ``raw`` keeps it, and the method ``none`` refuses it. A category that was neither
declared nor found in training rows is 0 in all 0/1 features of its column.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core import mapped
from raysim.core.arrays import Floats
from raysim.core.errors import DataError
from raysim.data.raw_columns import RawColumns, refuse_missing, slices
from raysim.data.tables.rules import NUMBER, Reading, canonical_number, whole_name

FORMAT = 1

RAW = "raw"
"""The name of the preprocessing method for trees: numbers and missing values are unchanged, and a category becomes its
position among the column's categories.
"""

_SHORTEST = re.compile(r"(?!-0$)-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?(?:e[+-]?[0-9]+)?")
"""The pattern of a number in its shortest form, in which numbers become categories."""

MISSING = -1
"""The position, among a column's categories, that stands for a missing value."""


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: its feature is ``(value - mean) / scale``, with ``fill`` in place of a missing value.

    - ``scale``: infinite if all training rows have the same value; the feature is then always 0.
    - ``flagged``: whether an added 0/1 feature flags missing values.
    - ``limits``: the declared least and greatest value, if the column is declared and not scaled; else None.
    """

    name: str
    mean: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    flagged: bool = False
    limits: tuple[float, float] | None = None

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the column's features, without the feature that flags missing values."""
        return (self.name,)


@dataclass(frozen=True)
class Categorical:
    """A column of texts: a 0/1 feature for each of its ``categories``, which were found in training rows or declared.

    - ``flagged``: whether an added 0/1 feature flags missing values.
    - ``coded``: whether the column has a single feature, the position of the category in ``categories``, instead of 0/1
      features. The position is NaN for a missing value or another category.
    """

    name: str
    categories: tuple[str, ...] = ()
    flagged: bool = False
    coded: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the column's features, without the feature that flags missing values."""
        return (self.name,) if self.coded else tuple(f"{self.name}={category}" for category in self.categories)

    @cached_property
    def compared_as(self) -> Literal["truth", "number", "digits", "text"]:
        """How texts are compared with the categories: as truth values if all categories are truth values, as numbers if
        all are numbers, else as texts.

        Numbers are compared as float64, because other programs may have stored float64. If two categories are equal as
        float64, all their digits are compared (``digits``).
        """
        if set(self.categories) <= {"True", "False"}:
            return "truth"
        if not all(map(_SHORTEST.fullmatch, self.categories)):
            return "text"
        return "number" if len(set(map(float, self.categories))) == len(self.categories) else "digits"

    def positions(self, written: Sequence[str]) -> NDArray[np.int64]:
        """Return the position of each of the texts ``written [c]`` among the categories, ``[c]``. A text that is not a
        category has the position ``len(categories)``.

        A text may differ from its category. ``1.0`` may stand for ``1``, even if other categories are not numbers,
        because programs write whole numbers as floats; see :attr:`compared_as`. A text may lack the blanks at the
        beginning of its category, because blanks are removed from a column whose texts all begin with blanks.
        """
        value, others = _COMPARED[self.compared_as], len(self.categories)
        bare = [category.lstrip() for category in self.categories]
        at: dict[Any, int] = {}
        for form in ([whole_name(text) for text in bare], bare):
            same = Counter(form)
            at |= {value(text): position for position, text in enumerate(form) if same[text] == 1}
        at |= {value(category): position for position, category in enumerate(self.categories)}
        return np.array([at.get(value(text), at.get(value(whole_name(text)), others)) for text in written], np.int64)


@dataclass(frozen=True)
class Preprocessing:
    """A preprocessing that was fitted on training rows or follows from declared ranges.

    - ``method``: one of the methods in :mod:`raysim.data.preprocessing`.
    - ``columns``: the columns that become features, in the source's order.
    - ``hospital``, ``label``: the names of the columns that contain the hospital and the label.
    - ``classes``: the classes of the label; of two classes, the second is the event. Empty for a real-valued label.
    - ``reading``: the rules by which the source's columns were read.
    """

    method: str
    columns: tuple[Numeric | Categorical, ...]
    hospital: str = "hospital"
    label: str = "label"
    classes: tuple[str, ...] = ()
    reading: Reading = field(default_factory=Reading)

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the features other than flags of missing values, ``[D]``."""
        return self.features[: sum(len(column.values) for column in self.columns)]

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """The names of the columns whose missing values are flagged by a feature, in the source's order."""
        return tuple(column.name for column in self.columns if column.flagged)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of all features, ``[F]``, with the flags of missing values last.

        A number is appended to a name that another feature already has.
        """
        values = (name for column in self.columns for name in column.values)
        return _distinct([*values, *(f"{name}_missing" for name in self.flags)])

    @property
    def levels(self) -> tuple[int, ...]:
        """The number of categories of each feature, ``[F]``; 0 for a feature whose values are not positions of
        categories.
        """
        each = [
            len(c.categories) if isinstance(c, Categorical) and c.coded else 0 for c in self.columns for _ in c.values
        ]
        return (*each, *[0] * len(self.flags))

    @property
    def limits(self) -> tuple[tuple[float, float] | None, ...]:
        """The declared least and greatest value of each feature, ``[F]``; None for a feature without limits."""
        each = [c.limits if isinstance(c, Numeric) else None for c in self.columns for _ in c.values]
        return (*each, *[None] * len(self.flags))

    @property
    def scaling(self) -> tuple[Floats, Floats]:
        """The mean to subtract and the scale to divide by for the features other than flags of missing values, each
        ``[D]``. Features of categorical columns have the mean 0 and the scale 1.
        """
        each = [(c.mean, c.scale) if isinstance(c, Numeric) else (0.0, 1.0) for c in self.columns for _ in c.values]
        mean, scale = np.array(each).reshape(-1, 2).T
        return mean, scale

    def transform(
        self, table: RawColumns, order: NDArray[np.int64] | None = None, into: Path | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the features ``X [n, F]`` of the rows ``order`` (None: all), and a mask of recorded values,
        ``[n, D]``.

        With a folder ``into``, the two arrays are memory-mapped files there, ``X.npy`` and ``observed.npy``. Raises
        ``DataError`` for values that are not finite float32 numbers and, with the method ``none``, for missing values.
        """
        rows = np.arange(table.rows) if order is None else order
        if self.method == "none":
            refuse_missing(table, rows)
        scaling = self._scaling(table)
        lookups = [self._lookup(table, name) for name in table.categorical]
        n, D = len(rows), len(self.values)
        X = mapped.zeros((n, D + len(self.flags)), np.float32, into and into / "X.npy")
        observed = mapped.zeros((n, D), np.bool_, into and into / "observed.npy")
        for at in slices(n):
            self._fill(table, rows[at], X[at], observed[at], scaling, lookups)
            usable = np.isfinite(X[at]) | (np.isnan(X[at]) if self.method == RAW else False)
            if not (finite := usable.all(axis=0)).all():
                raise DataError(
                    f"data: feature '{self.features[int(np.argmin(finite))]}' holds an infinite value or one beyond "
                    "float32; correct it or leave it empty"
                )
            mapped.release(X)
            mapped.release(observed)
        return X, observed

    def _fill(
        self,
        table: RawColumns,
        rows: NDArray[np.int64],
        X: NDArray[np.float32],
        observed: NDArray[np.bool_],
        scaling: Floats,
        lookups: Sequence[NDArray[np.int64]],
    ) -> None:
        numbers = [self._first[name] for name in table.numeric]
        values = table.values[rows]
        missing = np.isnan(values)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses infinite values and names the column
            X[:, numbers] = scaled(values, *scaling)
        observed[:, numbers] = ~missing
        absent = dict(zip(table.numeric, missing.T, strict=True))
        for name, codes, lookup in zip(table.categorical, table.codes, lookups, strict=True):
            column = self._by_name[name]
            written = codes[rows]
            absent[name] = written < 0
            if isinstance(column, Categorical) and column.coded:
                position = np.where(written < 0, MISSING, lookup[written])
                known = (position >= 0) & (position < len(column.categories))
                X[:, self._first[name]] = np.where(known, position, np.nan)
                observed[:, self._first[name]] = written >= 0
            elif width := len(column.values):
                at = slice(self._first[name], self._first[name] + width)
                X[:, at] = np.where(written < 0, MISSING, lookup[written])[:, None] == np.arange(width)
                observed[:, at] = (written >= 0)[:, None]
        for k, name in enumerate(self.flags, start=len(self.values)):
            X[:, k] = absent[name]

    def _scaling(self, table: RawColumns) -> Floats:
        columns = [self._by_name[name] for name in table.numeric]
        numbers = [(column.mean, column.scale, column.fill) for column in columns if isinstance(column, Numeric)]
        return np.array(numbers).reshape(-1, 3).T

    def _lookup(self, table: RawColumns, name: str) -> NDArray[np.int64]:
        """Return, for each category of the column ``name`` in ``table``, its position among the fitted categories.

        The result has one more element at the end, so that the code -1 of missing values is a valid index.
        """
        column = self._by_name[name]
        written = table.categories[table.categorical.index(name)]
        positions = column.positions(written) if isinstance(column, Categorical) else np.empty(0, np.int64)
        return np.append(positions, MISSING)

    @cached_property
    def _by_name(self) -> Mapping[str, Numeric | Categorical]:
        return {column.name: column for column in self.columns}

    @cached_property
    def _first(self) -> Mapping[str, int]:
        first, at = {}, 0
        for column in self.columns:
            first[column.name] = at
            at += len(column.values)
        return first

    def tree(self) -> dict[str, Any]:
        """Return the preprocessing as JSON values for ``preprocessing.json``, with null for an infinite ``scale`` or a
        NaN ``fill``.
        """
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            if isinstance(column, Numeric):
                scale = column.scale if math.isfinite(column.scale) else None
                fill = None if math.isnan(column.fill) else column.fill
                scaling = {"mean": column.mean, "scale": scale, "fill": fill}
                limits = {} if column.limits is None else {"limits": list(column.limits)}
                columns.append({"name": column.name, "kind": "numeric", **scaling, "flagged": column.flagged, **limits})
            else:
                named = {"categories": list(column.categories), "compared_as": column.compared_as}
                coded = {"coded": True} if column.coded else {}
                columns.append(
                    {"name": column.name, "kind": "categorical", **named, "flagged": column.flagged, **coded}
                )
        return {
            "format": FORMAT,
            "method": self.method,
            "hospital": self.hospital,
            "label": self.label,
            "classes": list(self.classes),
            **self.reading.tree(),
            "columns": columns,
            "features": list(self.features),
        }

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Preprocessing:
        """Read a preprocessing from the result of :meth:`tree`. Raises ``KeyError``, ``TypeError`` or ``ValueError``
        if ``tree`` is malformed.
        """
        if tree["format"] != FORMAT:
            raise ValueError(f"its format is {tree['format']}, and this version reads {FORMAT}")
        columns: list[Numeric | Categorical] = []
        for described in tree["columns"]:
            name, flagged = described["name"], bool(described["flagged"])
            if described["kind"] == "numeric":
                scale = math.inf if described["scale"] is None else float(described["scale"])
                if not scale > 0:
                    raise ValueError(f"the scale of column '{name}' is {scale:g}, not a number above 0")
                unfilled = tree["method"] == RAW and described["fill"] is None
                for part in ("mean",) if unfilled else ("mean", "fill"):
                    if not math.isfinite(float(described[part])):
                        raise ValueError(f"the {part} of column '{name}' is {described[part]}, not a finite number")
                fill = math.nan if unfilled else float(described["fill"])
                low_high = described.get("limits")
                limits = None if low_high is None else (float(low_high[0]), float(low_high[1]))
                columns.append(Numeric(name, float(described["mean"]), scale, fill, flagged, limits))
            else:
                coded = bool(described.get("coded", False))
                columns.append(Categorical(name, tuple(described["categories"]), flagged, coded))
        return Preprocessing(
            method=tree["method"],
            columns=tuple(columns),
            hospital=tree["hospital"],
            label=tree["label"],
            classes=tuple(tree["classes"]),
            reading=Reading.of(tree),
        )


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Append a number to each name that occurred before.

    >>> _distinct(["a", "b", "a", "a (2)", "a"])
    ('a', 'b', 'a (3)', 'a (2)', 'a (4)')
    """
    if len(taken := set(names)) == len(names):
        return tuple(names)
    apart, met = [], set[str]()
    for name in names:
        own, k = name, 2
        while own in met or (own != name and own in taken):
            own, k = f"{name} ({k})", k + 1
        met.add(own)
        apart.append(own)
    return tuple(apart)


def scaled(values: NDArray[Any], mean: Floats, scale: Floats, fill: Floats) -> Floats:
    """Compute ``(value - mean) / scale`` for each entry of ``values [n, D]``, with ``fill`` in place of NaN. The other
    arguments have the shape ``[D]``.
    """
    return np.asarray((np.where(np.isnan(values), fill, values) - mean) / scale)


def _number(text: str) -> float | None:
    return float(text.strip()) if re.fullmatch(NUMBER, text.strip()) else None


def _exact(text: str) -> str | None:
    return canonical_number(text.strip()) if re.fullmatch(NUMBER, text.strip()) else None


def _truth(text: str) -> bool | None:
    true_false = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    return true_false.get(text.strip().lower())


_COMPARED: dict[str, Callable[[str], Any]] = {"truth": _truth, "number": _number, "digits": _exact, "text": str}
"""For each value of :attr:`Categorical.compared_as`, the function that converts texts before they are compared. The
function returns None for a text that it cannot convert.
"""
