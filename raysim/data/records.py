"""The rows that a data source returns, one row per stay, before split and preprocessing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # a run with a cached federation does not need pandas
    import pandas as pd


from raysim.data.tables.rules import Reading


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """The ``N`` rows of a data source, one for each stay or other case to predict, in any order.

    - ``features [N, *]``: float32 columns (NaN: not recorded) and pandas categorical columns.
    - ``y [N]``: class indices into ``classes``, or finite numbers in the label's unit if ``classes`` is empty.
    - ``silo [N]``: the name of the row's hospital, as text.
    - ``group [N]``: the group of each row, usually its patient. A split by groups never divides a group. None: no
      groups.
    - ``part [N]``: 0 train, 1 validation, 2 test. None: the source does not divide its rows.
    - ``patients``: known attributes of patients, each ``[N]``: ``sex`` and ``ethnicity`` as text, ``age`` in years
      (NaN: unknown).
    - ``scores``: values of existing clinical scores, each ``[N]``, NaN for rows without a value; they are not features.
    - ``attributes``: attributes of hospitals, ``{hospital: {attribute: text}}``.
    - ``notes``: notes on the data for ``raysim describe``, one line each.
    - ``warnings``: warnings about the rows.
    - ``row [N]``: the position of each row in the user's file or data frame, from 0. None: all rows were read, in the
      order of the file or data frame.
    - ``reading``: the rules by which the source's columns were read.
    - ``hospital_column``, ``label_column``: the names of the columns of ``silo`` and ``y`` in the source.
    """

    features: pd.DataFrame
    y: NDArray[Any]
    classes: tuple[str, ...]
    silo: NDArray[Any]
    group: NDArray[Any] | None = None
    part: NDArray[np.int8] | None = None
    patients: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    row: NDArray[np.int64] | None = None
    reading: Reading = field(default_factory=Reading)
    hospital_column: str = "hospital"
    label_column: str = "label"


class Source(Protocol):
    """A data source: a frozen pydantic model whose fields are keys of the configuration's section ``data``, such as
    ``path``.
    """

    def files(self) -> Iterator[Path]:
        """Return the files whose content decides what :meth:`read` returns (none for generated data).

        Raises ``DataError`` if the path or a needed file does not exist.
        """

    def read(self) -> Records:
        """Read or generate the rows. Raises ``DataError`` that names the configuration key, the value and a
        correction.
        """


@runtime_checkable
class Naming(Protocol):
    """A source that describes its label (an optional addition to :class:`Source`)."""

    @property
    def predicts(self) -> str:
        """The meaning of the label, as a phrase for reports, such as ``death in hospital``."""


@runtime_checkable
class Columned(Protocol):
    """A source with named columns, to which ``data.split`` may refer (an optional addition to :class:`Source`)."""

    def reserve(self, by: str | None, column: str | None) -> Source:
        """Return this source, changed to read ``Records.group`` from the column ``by`` and ``Records.part`` from
        ``column``. An argument that is None changes nothing.

        ``by="patient"`` means the source's own patients. The two columns are not features.
        """


@runtime_checkable
class Scored(Protocol):
    """A source that has existing clinical scores of its rows (an optional addition to :class:`Source`)."""

    def with_scores(self, names: tuple[str, ...]) -> Source:
        """Return this source, changed to read the scores ``names`` into ``Records.scores``; scores are not features.

        Raises ``DataError`` for an unknown name.
        """


def natural(names: Iterable[str]) -> list[str]:
    """Sort names in natural order: numbers inside texts are compared by value.

    >>> natural(["10", "9", "-1"]), natural(["ward 10", "ward 9", "Ward 1"])
    (['-1', '9', '10'], ['Ward 1', 'ward 9', 'ward 10'])
    """
    listed = list(names)
    try:
        values = {name: float(name) for name in listed}
    except ValueError:
        pass
    else:
        if all(map(math.isfinite, values.values())):
            return sorted(listed, key=lambda name: (values[name], name))
    if (numbered := _numbered(listed)) is not None:
        return numbered
    return sorted(listed, key=lambda name: ([_piece(piece) for piece in re.split(r"([0-9]+)", name)], name))


def _numbered(names: list[str]) -> list[str] | None:
    """Sort at least two names that consist of a common text and a whole number, such as ``hospital_12``, by number.
    Return None for other names.
    """
    if len(names) < 2:
        return None
    low, high = min(names), max(names)
    same = next((i for i, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    common = low[:same].rstrip("0123456789")
    numbers = [name[len(common) :] for name in names]
    if not common or not all(map(str.isdecimal, numbers)) or not all(map(str.isascii, numbers)):
        return None
    return [name for _, name in sorted(zip(map(int, numbers), names, strict=True))]


def _piece(text: str) -> tuple[int, int, str]:
    # Text before digits alphabetically, regardless of case; ties are broken by the name itself.
    return (1, int(text), "") if text.isdecimal() else (0, 0, text.casefold())
