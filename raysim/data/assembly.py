"""Make a federation of a source's records: choose and order rows, divide them into parts, prepare features."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.core.words import counted, listed
from raysim.data import alone
from raysim.data.checks import leaks, quality
from raysim.data.checks.suspects import Leaks, Suspect
from raysim.data.columns import columns_of, warnings_of
from raysim.data.declared import Declared, SumNoise
from raysim.data.federation import Coded
from raysim.data.preprocessing import Prepared, prepare, prepare_declared
from raysim.data.raw_columns import RawColumns
from raysim.data.records import Records, natural
from raysim.data.split import Split, assign, deal, groups, used

Found = tuple[Leaks, tuple[Suspect, ...]]
"""The results of the data checks: the columns that may reveal the label, and all other findings."""


MOST_NAMED = 5
"""The largest number of columns that a warning names."""


@dataclass(frozen=True)
class Recipe:
    """The settings of :func:`raysim.data.build.build`."""

    split: Split
    preprocessing: str
    seed: int
    """The run's seed, which divides the rows if ``split`` has no seed, and selects the test fold if there are folds."""
    minimum: int | None
    """The smallest number of rows of an included hospital; None: no minimum."""
    largest: int | None
    """The number of hospitals to include, the largest first; None: all hospitals."""
    ranges: Declared | None
    """The declared ranges and categories of columns; None: preprocessing is fitted on training rows."""
    noise: SumNoise | None
    """The noise on the sums from which preprocessing computes means and standard deviations; None: no noise."""
    missing_flags: bool
    """Whether an added 0/1 feature flags the missing values of a column."""
    tabular: bool = True
    """Whether the table is checked for columns that reveal the label and for errors; False for pictures and tokens."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """The ``N`` included rows in the source's order, and their hospitals."""

    index: NDArray[np.int64]
    """The position of each row in the source, ``[N]``."""
    home: NDArray[np.int64]
    """The hospital of each row, ``[N]``: an index into ``names``."""
    names: tuple[str, ...]


def assemble(records: Records, recipe: Recipe, source: str, into: Path, checked: Found | None = None) -> dict[str, Any]:
    """Return the arguments of :func:`raysim.data.federation.write` for the federation of ``records``, except folder and
    fingerprint.

    Features are stored in the folder ``into``. ``checked`` are the findings of an earlier check of the same rows; with
    None the rows are checked here. ``source`` is the data source's name, for error messages.

    Raises ``DataError`` for records that cannot form a federation.
    """
    split, notes = recipe.split, list(records.notes)
    by, group = ("column", None) if split.column is not None else groups(split.by, records.group, source)
    rows = _Rows(np.arange(len(records.silo)), *_hospitals(records.silo))
    if recipe.minimum is not None or recipe.largest is not None:
        rows, note = _large(rows, recipe.minimum or 0, recipe.largest)
        notes.append(note)
    _check_labels(records, rows.index)
    part, whole = _with_unseen(split, rows, _parts(records, recipe, rows, by, group, source)), rows
    if split.used < 1:
        rows, part = _used(recipe, records, rows, part, by, group)
    counts = np.bincount(rows.home * 3 + part, minlength=3 * len(rows.names)).reshape(-1, 3)
    _check_parts(counts)

    inside = np.argsort(rows.home * 3 + part, kind="stable")
    stops = np.cumsum(counts).reshape(-1, 3)
    bounds = np.column_stack([stops[:, 2] - counts.sum(1), stops])
    order = rows.index[inside]
    people = _people(split, records.group, order, source)
    prepared = _prepared(records, recipe, order, part[inside] == 0, bounds, people, into)
    columns = columns_of(records.features if len(rows.index) == len(records.y) else records.features.iloc[rows.index])
    suspect = warnings_of(columns)
    if len(rows.names) == 1:
        suspect = (
            *suspect,
            f"all rows are of one hospital ('{rows.names[0]}'): there is nothing to federate; see data.silo",
        )
    if checked is None:
        unlike = [column.name for column in columns if column.remark in ("row number", "identifier")]
        checked = _checked(records, whole, unlike) if recipe.tabular else (Leaks(), ())
    attributes = sorted({attribute for name in rows.names for attribute in records.attributes.get(name, {})})
    return {
        "X": prepared.X,
        "y": records.y[order].astype(np.int64 if records.classes else np.float64),
        "observed": prepared.observed,
        "bounds": bounds.astype(np.int64),
        "source_rows": order if records.row is None else records.row[order],
        "preprocessing": dataclasses.replace(
            prepared.preprocessing,
            hospital=records.hospital_column,
            label=records.label_column,
            classes=tuple(records.classes),
            reading=records.reading,
        ),
        "people": people,
        "patients": {name: _plain(values, order) for name, values in records.patients.items()},
        "scores": {name: values[order] for name, values in records.scores.items()},
        "meta": {
            "hospitals": rows.names,
            "features": prepared.names,
            "classes": records.classes,
            "attributes": {a: [records.attributes.get(name, {}).get(a, "") for name in rows.names] for a in attributes},
            "notes": [*notes, split.described(by, recipe.seed), prepared.note],
            "warnings": [*records.warnings, *suspect, *_left_out(prepared.left_out)],
            "columns": [dataclasses.asdict(column) for column in columns],
            "leaks": dataclasses.asdict(checked[0]),
            "quality": [dataclasses.asdict(suspect) for suspect in checked[1]],
            "preprocessing_scalars": prepared.scalars,
            "preprocessing_noise": "" if recipe.noise is None else recipe.noise.named,
        },
    }


def _left_out(columns: Sequence[str]) -> list[str]:
    if not columns:
        return []
    named = listed([f"'{name}'" for name in columns], MOST_NAMED)
    verb = "has" if len(columns) == 1 else "have"
    return [f"left out as features: {named}, which {verb} no value in training rows"]


def _check_labels(records: Records, rows: NDArray[np.int64]) -> None:
    y = records.y[rows]
    if len(present := np.unique(y)) < 2:
        one = f"are of one class ('{records.classes[present[0]]}')" if records.classes else f"have label {present[0]:g}"
        which = "one class" if records.classes else "one label"
        raise DataError(
            f"data: all {len(y):,} rows {one}; check the label, because no model can be learned from {which}"
        )


def _checked(records: Records, rows: _Rows, unlike: Sequence[str]) -> Found:
    table, label = RawColumns.of(records.features), records.y[rows.index]
    group = None if records.group is None else records.group[rows.index]
    at = (table, rows.index, rows.home, rows.names, label, records.classes)
    with ThreadPoolExecutor(1) as thread:  # both checks mostly sort columns, and numpy sorts without Python's lock
        leaking = thread.submit(leaks.check, *at)
        suspects = quality.check(*at, group, unlike)
        return leaking.result(), suspects


def _parts(
    records: Records, recipe: Recipe, rows: _Rows, by: str, group: NDArray[np.int64] | None, source: str
) -> NDArray[np.int8]:
    split, seed = recipe.split, recipe.split.effective_seed(recipe.seed)
    if seed is None:
        if records.part is None:
            raise DataError(
                f"data.split.column: source {source} did not read '{split.column}'; replace the key by train, "
                "validation and test"
            )
        return records.part[rows.index]
    if split.independent:
        return alone.parts(split, records, rows.index, by, recipe.seed)
    undivided = None if group is None else group[rows.index]
    if split.folds is None:
        return assign(split, rows.home, rows.names, undivided, seed)
    fold = deal(split.folds, rows.home, rows.names, undivided, records.y[rows.index], seed)
    return np.where(fold == split.fold(recipe.seed), 2, 0).astype(np.int8)


def _with_unseen(split: Split, rows: _Rows, part: NDArray[np.int8]) -> NDArray[np.int8]:
    """Move all rows of the hospitals ``split.unseen`` to the test part, and return each row's part, ``[N]``.

    With ``split.trained_on: all``, the test rows of the other hospitals become training rows.
    """
    if not split.unseen:
        return part
    for name in split.unseen:
        if name not in rows.names:
            raise DataError(f"data.split.unseen: '{name}' is not a hospital; {nearest(name, rows.names)}")
    if split.trained_on == "all":
        part = np.where(part == 2, np.int8(0), part)
    return np.where(np.isin(np.array(rows.names, dtype=object), split.unseen)[rows.home], np.int8(2), part)


def _used(
    recipe: Recipe, records: Records, rows: _Rows, part: NDArray[np.int8], by: str, group: NDArray[np.int64] | None
) -> tuple[_Rows, NDArray[np.int8]]:
    split = recipe.split
    if split.independent:
        mask = (part != 0) | alone.used(split, records, rows.index, by, recipe.seed)
    else:
        seed = split.effective_seed(recipe.seed)
        undivided = None if group is None else group[rows.index]
        mask = used(split, rows.home, rows.names, part, undivided, recipe.seed if seed is None else seed)
    return _Rows(rows.index[mask], rows.home[mask], rows.names), part[mask]


def _check_parts(counts: NDArray[np.int64]) -> None:
    for k, missing in ((0, "train"), (2, "test")):
        if not counts[:, k].any():
            raise DataError(
                f"data.split: no hospital has a row to {missing} on (largest hospital: "
                f"{counted(counts.sum(1).max(), 'row')}); use other fractions, or larger hospitals"
            )


def _prepared(
    records: Records,
    recipe: Recipe,
    order: NDArray[np.int64],
    train: NDArray[np.bool_],
    bounds: NDArray[np.int64],
    people: NDArray[np.int64] | Literal["rows"] | None,
    into: Path,
) -> Prepared:
    flags = recipe.missing_flags
    if recipe.ranges is None:
        trained = int(np.count_nonzero(bounds[:, 1] > bounds[:, 0]))
        return prepare(records.features, order, train, recipe.preprocessing, trained, into, flags=flags)
    rows = [np.arange(first, last) for first, last in bounds[:, :2].tolist()]
    units = _units(people, recipe.noise, len(order))
    return prepare_declared(
        records.features,
        order,
        recipe.preprocessing,
        recipe.ranges,
        recipe.noise,
        rows,
        units,
        recipe.seed,
        into,
        flags=flags,
    )


def _units(people: NDArray[np.int64] | Literal["rows"] | None, noise: SumNoise | None, rows: int) -> NDArray[np.int64]:
    """Return the privacy unit of each row, ``[N]``: the patient if ``noise`` protects patients, else the row."""
    if noise is None or noise.unit == "example" or isinstance(people, str):
        return np.arange(rows)
    if people is None:
        raise DataError(
            "privacy.unit: patient, but data.split.by divides rows by a column that is not the patient; leave "
            "data.split.by out, or set privacy.unit: example"
        )
    return people


def _people(
    split: Split, group: NDArray[Any] | None, order: NDArray[np.int64], source: str
) -> NDArray[np.int64] | Literal["rows"] | None:
    """Return an integer that identifies the patient of each row, ``[N]``.

    Return ``"rows"`` if the source does not identify patients, and None if ``split.by`` names a column.
    """
    if split.by not in (None, "row", "patient"):
        return None
    _, codes = groups("patient", group, source) if group is not None else ("row", None)
    return "rows" if codes is None else codes[order]


def _hospitals(silo: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each row's hospital as an index, ``[N]``, and the names of the hospitals in natural order."""
    import pandas as pd

    codes, labels = pd.factorize(silo)
    if (codes < 0).any():
        raise DataError(f"data.silo: {int((codes < 0).sum()):,} rows name no hospital; fill it in or remove the rows")
    names = natural(str(name) for name in labels)
    position = {name: h for h, name in enumerate(names)}
    new = np.array([position[str(name)] for name in labels], np.int64)
    return new[codes], tuple(names)


def _large(rows: _Rows, minimum: int, largest: int | None) -> tuple[_Rows, str]:
    """Keep the hospitals with at least ``minimum`` rows; with ``largest``, keep only this number of them, the largest
    ones.

    Return the rows of the kept hospitals, and a note on the other hospitals.
    """
    home, names = rows.home, rows.names
    sizes = np.bincount(home, minlength=len(names))
    enough = np.flatnonzero(sizes >= minimum)
    if not len(enough):
        raise DataError(
            f"data.minimum: {minimum} rows are more than any hospital has (the largest: {sizes.max()}); lower it"
        )
    if largest is not None and largest > len(enough):
        those = counted(len(enough), "hospital") + (f" with at least {counted(minimum, 'row')}" if minimum else "")
        raise DataError(f"data.largest: {largest}, but there are {those}; lower it")
    keep = np.zeros(len(names), np.bool_)
    keep[enough[np.argsort(-sizes[enough], kind="stable")[:largest]]] = True
    selected = np.flatnonzero(keep[home])
    renumbered = np.cumsum(keep) - 1
    remaining = tuple(name for name, stays in zip(names, keep, strict=True) if stays)
    small, others = len(names) - len(enough), len(enough) - (largest or 0)
    gone = [f"{counted(small, 'hospital')} with fewer than {counted(minimum, 'row')}"] if minimum else []
    gone += [f"{counted(others, 'hospital')} not among the {largest:,} largest"] if largest else []
    return _Rows(rows.index[selected], renumbered[home[selected]], remaining), f"left out: {', '.join(gone)}"


def _plain(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any] | Coded:
    """Return ``values`` in the order ``order``; Python objects become texts, which numpy stores without pickling."""
    if values.dtype.kind != "O":
        return values[order] if values.dtype.kind in "fiub" else values[order].astype(str)
    import pandas as pd

    if pd.api.types.infer_dtype(values, skipna=False) != "string":
        return values[order].astype(str)
    codes, texts = pd.factorize(values[order])
    return Coded(codes.astype(np.min_scalar_type(len(texts))), texts.astype(str))
