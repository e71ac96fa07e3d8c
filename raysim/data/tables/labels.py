"""The label of a user's table: classes, or real numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.core.plain_yaml import scalar
from raysim.core.words import counted, some
from raysim.data.records import natural
from raysim.data.tables.columns import numbers, placed, plain_text
from raysim.data.tables.reading import is_texts, typed
from raysim.data.tables.spelling import check_twins, written

MOST_CLASSES = 1000

EVENT = re.compile(
    r"yes|y|true|died|dead|death|deceased|expired|positive|case|ja|j|oui|o|si|sí|s|sim|verstorben|gestorben|tot|"
    r"décédé|décédée|deces|décès|fallecido|readmitted",
    re.IGNORECASE,
)
"""The pattern of class names that suggest the event (the positive class), such as ``yes`` or ``died``."""

_ANSWERS = frozenset(("0", "1", "no", "yes", "n", "y", "false", "true", "f", "t", "nein", "ja", "non", "oui"))
_SINGLE = 3  # classes of one row that warnings name
_ENOUGH = 20  # fewest rows of a table for a warning about a class of one row


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of ``N`` rows.

    - ``y [N]``: indices into ``classes``, or real numbers if there are no classes.
    - ``described``: a text that names the classes, or the range of the numbers.
    - ``warnings``: warnings about a class that may wrongly be the event, and about classes with a single row.
    """

    y: NDArray[Any]
    classes: tuple[str, ...]
    described: str
    warnings: tuple[str, ...] = ()


def number_labels(table: pa.Table, name: str, rows: NDArray[np.int64] | None) -> Labels:
    """Read a label of real numbers from the column ``name``.

    ``rows [N]`` is the position of each row in the file; None: the rows are the whole file.
    """
    _check_filled(table, name, rows)
    values = numbers(table, name, "data.label", remedy="correct it or remove the row", rows=rows)
    if (empty := np.isnan(values)).any():
        raise DataError(
            f"data.label: column '{name}' holds nan in row {placed(int(empty.argmax()), rows)}; "
            "correct it or remove the row"
        )
    return Labels(values, (), f"a number, {values.min():.6g} to {values.max():.6g}, mean {values.mean():.6g}")


def _check_filled(table: pa.Table, name: str, rows: NDArray[np.int64] | None) -> None:
    column = table.column(name)
    if column.null_count:
        row = placed(pc.index(pc.is_null(column, nan_is_null=True), True).as_py(), rows)
        raise DataError(
            f"data.label: column '{name}' has no value in {counted(column.null_count, 'row')} (first: row "
            f"{row}); fill in values, or leave these rows out (data.unlabelled: drop)"
        )


def class_labels(table: pa.Table, name: str, positive: str | None, rows: NDArray[np.int64] | None) -> Labels:
    """Read classes from the column ``name``; ``positive`` names the event. ``rows`` is as in :func:`number_labels`."""
    _check_filled(table, name, rows)
    column = table.column(name)
    if is_texts(column.type):
        column, found = typed(column)
        if found is not None and found.kind == "mixed" and found.first is not None:
            raise DataError(
                f"data.label: column '{name}' holds numbers in {counted(found.numbers, 'row')} and other "
                f"marks in {counted(found.recorded - found.numbers, 'row')} (first: row "
                f"{placed(found.first - 1, rows)}): {found.examples}; correct these marks, or remove these rows"
            )
        table = pa.table({name: column})
    if pa.types.is_floating(column.type):
        values = column.to_numpy()
        for wrong, is_wrong in (("nan", np.isnan(values)), ("an infinite value", np.isinf(values))):
            if is_wrong.any():
                row = placed(int(is_wrong.argmax()), rows)
                raise DataError(f"data.label: column '{name}' holds {wrong} in row {row}; correct it or remove the row")
        if (values != np.round(values)).any():
            at = int((values != np.round(values)).argmax())
            raise DataError(
                f"data.label: column '{name}' holds {values[at]:g} in row {placed(at, rows)}; "
                "classes are text, whole numbers or true/false: name another column, bin its values, or set "
                "data.task: regression"
            )
    encoded = pc.dictionary_encode(plain_text(table, name, "data.label"))
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    labels = encoded.dictionary.to_pylist()
    if len(labels) > MOST_CLASSES:
        raise DataError(
            f"data.label: column '{name}' holds {len(labels):,} different values, more than {MOST_CLASSES:,} "
            "classes; name another column or group its values"
        )
    indices = encoded.indices.to_numpy()
    counts = dict(zip(labels, np.bincount(indices).tolist(), strict=True))
    check_twins("data.label", "classes", counts)
    if len(labels) > 2 and {each.strip().casefold() for each in labels} <= _ANSWERS:
        raise DataError(
            f"data.label: {written(labels, counts)} are two classes, each in several spellings; write each in one way"
        )
    classes = natural(labels)
    if positive is not None:
        if positive not in classes:
            raise DataError(f"data.positive: '{positive}' is not a class; {nearest(positive, classes)}")
        if len(classes) != 2:
            raise DataError(
                f"data.positive: '{positive}', but the label has {counted(len(classes), 'class', 'classes')} "
                f"({some(classes, 10)}); remove the key, or correct the label"
            )
        classes.sort(key=lambda each: each == positive)
    position = np.array([classes.index(each) for each in labels], np.int64)
    quoted = [f"'{each}'" if "," in each else each for each in classes[:10]]
    named = ", ".join(quoted) + (", ..." if len(classes) > 10 else "")
    y = position[indices]
    single = tuple(
        f"class '{classes[c]}' of the label has one row (row {placed(int((y == c).argmax()), rows)}): no model can "
        "learn it and be tested on it"
        for c in np.flatnonzero((np.bincount(y) == 1) & (len(y) >= _ENOUGH)).tolist()[:_SINGLE]
    )
    event = () if positive is not None else _event_doubted(name, classes)
    return Labels(y, tuple(classes), named, (*event, *single))


def event_of(classes: Sequence[str]) -> str | None:
    """Return the first of two classes if only its name suggests the event (the positive class), else None.

    >>> event_of(["died", "survived"]), event_of(["0", "1"]), event_of(["mild", "severe"])
    ('died', None, None)
    """
    if len(classes) != 2:
        return None
    first, last = (EVENT.fullmatch(name.strip()) is not None for name in classes)
    return classes[0] if first and not last else None


def _event_doubted(name: str, classes: Sequence[str]) -> tuple[str, ...]:
    if list(classes) == ["1", "2"]:
        doubt = f"the event of label '{name}' is '2', because it is the later of 1 and 2"
    elif (first := event_of(classes)) is not None:
        doubt = (
            f"the event of label '{name}' is '{classes[1]}', because it is the last class, but '{first}' is named "
            "like an event"
        )
    else:
        return ()
    return (f"{doubt}; name the intended event (data.positive: {scalar(classes[0])})",)
