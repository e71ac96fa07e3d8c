"""Makes a federation of a source's records: hospitals in order, each split, features prepared, stored in the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core import mapped
from raysim.core.errors import DataError, nearest
from raysim.data import cache
from raysim.data.columns import columns_of, warnings_of
from raysim.data.declared import Declared, SumNoise
from raysim.data.federation import Coded, Federation, write
from raysim.data.fitted import slices
from raysim.data.folds import deal
from raysim.data.preprocessing import METHODS, prepare, prepare_declared
from raysim.data.records import Columned, natural
from raysim.data.split import Split, assign, groups

if TYPE_CHECKING:
    from raysim.data.records import Records, Source

STORED = 3
"""Raised where a stored federation gets a further file."""

_log = logging.getLogger("raysim.data")


def build(
    source: Source,
    split: Split,
    preprocessing: str = "standard",
    seed: int = 0,
    *,
    minimum: int | None = None,
    largest: int | None = None,
    ranges: Declared | None = None,
    noise: SumNoise | None = None,
    missing_flags: bool = True,
) -> Federation:
    """The federation of ``source``, from the cache where it has been built before.

    Hospitals come in natural order of their names, and their rows in the source's order within train, validation and
    test. ``seed`` is the run's, used where ``split`` has none of its own. Hospitals with fewer than ``minimum`` rows
    are left out, and so are all but the ``largest`` so many. ``ranges`` are what is declared of features, for
    ``declared`` preprocessing, and for ``standard`` with ``noise`` on means and deviations. ``missing_flags``: whether
    features say where values are missing. Raises ``DataError`` for data that cannot be federated and for a cache folder
    that cannot be written.
    """
    if preprocessing not in METHODS:
        raise DataError(f"data.preprocessing: '{preprocessing}' is not known; {nearest(preprocessing, METHODS)}")
    if preprocessing != "none" and getattr(source, "untouched", False):
        raise DataError(
            f"data.preprocessing: '{preprocessing}' would scale the ids that source {_name(source)} gives; use none"
        )
    source = _reserved(source, split)
    read = cache.source_key(source, source.files())
    drawn = split.model_dump(mode="json") | {"seed": split.effective_seed(seed), "fold": split.fold(seed)}
    declared = () if ranges is None else (dict(ranges), None if noise is None else [*noise.key, seed])
    flags = () if missing_flags else ("without flags",)
    key = cache.digest(STORED, read, drawn, preprocessing, minimum, largest, *declared, *flags)
    folder = cache.find("federations", key)
    if folder is None:
        cache.check()
        records = _records(source, read)

        def make(making: Path) -> None:
            name = _name(source)
            built = _build(
                records, split, preprocessing, seed, minimum, largest, name, ranges, noise, missing_flags, making
            )
            built["meta"]["fingerprint"] = fingerprint(built)
            write(making, **built)

        folder = cache.store("federations", key, make)
    return Federation.open(folder)


def _reserved(source: Source, split: Split) -> Source:
    """The source told which of its columns ``split`` names."""
    if split.column is None and split.by in (None, "row"):
        return source
    if isinstance(source, Columned):
        return source.reserve(split.by if split.by != "row" else None, split.column)
    columnless = f"but source {_name(source)} has no columns of that kind"
    if split.column is not None:
        raise DataError(f"data.split.column: '{split.column}', {columnless}; use fractions")
    if split.by != "patient":
        raise DataError(f"data.split.by: '{split.by}', {columnless}; use row, or patient where it knows patients")
    return source


def _records(source: Source, key: str) -> Records:
    """The source's records; where they come from files, they are kept for other splits and seeds."""
    folder = cache.find("records", key)
    if folder is not None:
        return cache.load_records(folder)
    records = source.read()
    for warning in records.warnings:
        _log.warning(warning)
    _check(records, _name(source))
    if any(True for _ in source.files()):
        cache.store("records", key, lambda making: cache.save_records(making, records))
    return records


def _check(records: Records, source: str) -> None:
    n = len(records.y)
    lengths = {"features": len(records.features), "silo": len(records.silo)}
    lengths |= {name: len(values) for name, values in records.patients.items()}
    lengths |= {name: len(v) for name, v in (("group", records.group), ("part", records.part)) if v is not None}
    for name, length in lengths.items():
        if length != n:
            raise DataError(f"data.source: {source} gives {length:,} rows of {name} for {n:,} labels; give as many")
    if n == 0:
        raise DataError(f"data.source: {source} gives no rows; check what it reads and leaves out")
    if not records.classes and not np.isfinite(records.y).all():
        row = int((~np.isfinite(records.y)).argmax()) + 1
        raise DataError(f"data.label: source {source} gives {records.y[row - 1]} in row {row}; give finite numbers")


def _build(
    records: Records,
    split: Split,
    preprocessing: str,
    seed: int,
    minimum: int | None,
    largest: int | None,
    source: str,
    ranges: Declared | None,
    noise: SumNoise | None,
    missing_flags: bool,
    into: Path | None = None,
) -> dict[str, Any]:
    """What :func:`raysim.data.federation.write` takes, the fingerprint apart; features lie in the folder ``into``."""
    by, group = ("column", None) if split.column is not None else groups(split.by, records.group, source)
    home, names = _hospitals(records.silo)
    kept, notes = np.arange(len(home)), list(records.notes)
    if minimum is not None or largest is not None:
        kept, home, names, note = _large(home, names, minimum or 0, largest)
        notes.append(note)
    y = records.y[kept]
    if len(present := np.unique(y)) < 2:
        one = f"are of one class ('{records.classes[present[0]]}')" if records.classes else f"have label {present[0]:g}"
        which = "one class" if records.classes else "one label"
        raise DataError(f"data: all {len(y):,} rows {one}; check the label, nothing can be learned from {which}")
    drawn = split.effective_seed(seed)
    if drawn is not None:
        undivided = None if group is None else group[kept]
        if split.folds is None:
            part = assign(split, home, names, undivided, drawn)
        else:
            fold = deal(split.folds, home, names, undivided, y, drawn)
            part = np.where(fold == split.fold(seed), 2, 0).astype(np.int8)
    elif records.part is not None:
        part = records.part[kept]
    else:
        raise DataError(f"data.split.column: source {source} did not read '{split.column}'; use fractions")
    counts = np.bincount(home * 3 + part, minlength=3 * len(names)).reshape(-1, 3)
    for k, missing in ((0, "train"), (2, "test")):
        if not counts[:, k].any():
            raise DataError(
                f"data.split: no hospital has a row to {missing} on (largest hospital: {counts.sum(1).max()} rows); "
                "use other fractions, or larger hospitals"
            )

    inside = np.argsort(home * 3 + part, kind="stable")
    stops = np.cumsum(counts).reshape(-1, 3)
    bounds = np.column_stack([stops[:, 2] - counts.sum(1), stops])
    order = kept[inside]
    people = _people(split, records.group, order, source)
    trained = int(np.count_nonzero(counts[:, 0]))
    prepared = (
        prepare(records.features, order, part[inside] == 0, preprocessing, trained, into, flags=missing_flags)
        if ranges is None
        else prepare_declared(
            records.features,
            order,
            ranges,
            noise,
            [np.arange(first, last) for first, last in bounds[:, :2].tolist()],
            _units(people, noise, len(order)),
            seed,
            into,
            flags=missing_flags,
        )
    )
    columns = columns_of(records.features if len(kept) == len(records.y) else records.features.iloc[kept])
    suspect = warnings_of(columns)
    if len(names) == 1:
        suspect = (
            *suspect,
            f"all rows are of one hospital ('{names[0]}'): there is nothing to federate; see data.silo",
        )
    for warning in suspect:
        _log.warning(warning)
    attributes = sorted({attribute for name in names for attribute in records.attributes.get(name, {})})
    fitted = replace(
        prepared.preprocessing,
        hospital=records.hospital_column,
        label=records.label_column,
        classes=tuple(records.classes),
        na_values=records.na_values,
    )
    return {
        "X": prepared.X,
        "y": records.y[order].astype(np.int64 if records.classes else np.float64),
        "observed": prepared.observed,
        "bounds": bounds.astype(np.int64),
        "source_rows": order if records.row is None else records.row[order],
        "preprocessing": fitted,
        "people": people,
        "patients": {name: _plain(values, order) for name, values in records.patients.items()},
        "meta": {
            "hospitals": names,
            "features": prepared.names,
            "classes": records.classes,
            "attributes": {a: [records.attributes.get(name, {}).get(a, "") for name in names] for a in attributes},
            "notes": [*notes, split.described(by, seed), prepared.note],
            "warnings": [*records.warnings, *suspect],
            "columns": [dataclasses.asdict(column) for column in columns],
            "preprocessing_scalars": prepared.scalars,
            "preprocessing_noise": "" if noise is None else noise.named,
        },
    }


def _units(people: NDArray[np.int64] | Literal["rows"] | None, noise: SumNoise | None, rows: int) -> NDArray[np.int64]:
    """Whose each row is, ``[N]``, as far as ``noise`` hides them."""
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
    """The patient of each row; None where ``split.by`` has put another column in their place."""
    if split.by not in (None, "row", "patient"):
        return None
    _, codes = groups("patient", group, source) if group is not None else ("row", None)
    return "rows" if codes is None else codes[order]


def fingerprint(built: dict[str, Any]) -> str:
    """A digest of all that a run computes with: of rows and names, and not of the code or the places they came from.

    So a run goes on after modules have moved, and is refused where the data have become others. Numbers count in single
    precision: the last bits of a double are others on another processor, where a run may go on too.
    """
    summed = hashlib.blake2b(digest_size=16)
    arrays = {name: built[name] for name in ("X", "y", "observed", "bounds")} | built["patients"]
    names = ("hospitals", "features", "classes", "attributes", "preprocessing_scalars")
    described = {name: (str(array[:0].dtype), (len(array), *array[:0].shape[1:])) for name, array in arrays.items()}
    summed.update(json.dumps([described, {name: built["meta"][name] for name in names}]).encode())
    for array in arrays.values():
        for rows in slices(len(array)):
            piece = array[rows]
            summed.update(np.ascontiguousarray(piece, np.float32 if piece.dtype.kind == "f" else None).data)
            if not isinstance(array, Coded):
                mapped.release(array)
    return summed.hexdigest()


def _hospitals(silo: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The hospital of each row, ``[N]``, and their names in natural order, ``[H]``."""
    import pandas as pd

    codes, labels = pd.factorize(silo)
    if (codes < 0).any():
        raise DataError(f"data.silo: {int((codes < 0).sum()):,} rows name no hospital; fill them or remove the rows")
    names = natural(str(name) for name in labels)
    position = {name: h for h, name in enumerate(names)}
    new = np.array([position[str(name)] for name in labels], np.int64)
    return new[codes], tuple(names)


def _large(
    home: NDArray[np.int64], names: tuple[str, ...], minimum: int, largest: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...], str]:
    """Rows of the hospitals kept, their hospitals (renumbered) and names, and a note.

    Kept are the ``largest`` so many (None: all) of those with at least ``minimum`` rows; of two equally large ones the
    first.
    """
    sizes = np.bincount(home, minlength=len(names))
    enough = np.flatnonzero(sizes >= minimum)
    if not len(enough):
        raise DataError(
            f"data.minimum: {minimum} rows are more than any hospital has (the largest: {sizes.max()}); lower it"
        )
    if largest is not None and largest > len(enough):
        those = f"{len(enough)} hospitals" + (f" with at least {minimum} rows" if minimum else "")
        raise DataError(f"data.largest: {largest}, but there are {those}; lower it")
    keep = np.zeros(len(names), np.bool_)
    keep[enough[np.argsort(-sizes[enough], kind="stable")[:largest]]] = True
    kept = np.flatnonzero(keep[home])
    renumbered = np.cumsum(keep) - 1
    remaining = tuple(name for name, stays in zip(names, keep, strict=True) if stays)
    gone = [f"{len(names) - len(enough):,} hospitals with fewer than {minimum} rows"] if minimum else []
    gone += [f"{len(enough) - largest:,} hospitals that are not among the {largest} largest"] if largest else []
    return kept, renumbered[home[kept]], remaining, f"left out: {', '.join(gone)}"


def _plain(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any] | Coded:
    """Values in their new order, objects as texts: these would be pickled."""
    if values.dtype.kind != "O":
        return values[order] if values.dtype.kind in "fiub" else values[order].astype(str)
    import pandas as pd

    if pd.api.types.infer_dtype(values, skipna=False) != "string":
        return values[order].astype(str)
    codes, texts = pd.factorize(values[order])
    return Coded(codes.astype(np.min_scalar_type(len(texts))), texts.astype(str))


def _name(source: Source) -> str:
    return type(source).__name__.lower()
