"""Load a source's federation from the cache, or make it of the source's records and store it in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from raysim.core import mapped, memory
from raysim.core.errors import DataError, RaysimError, nearest
from raysim.core.words import of_type
from raysim.data import cache
from raysim.data.assembly import Found, Recipe, assemble
from raysim.data.checks.suspects import Leaks, suspects_of
from raysim.data.declared import Declared, SumNoise
from raysim.data.federation import Coded, Federation, write
from raysim.data.fitted import RAW
from raysim.data.preprocessing import METHODS
from raysim.data.raw_columns import slices
from raysim.data.records import Columned, Records, Scored, Source
from raysim.data.split import Split

STORED = 6
"""The version of the layout of stored federations; increase it when the layout changes."""

_checked: dict[tuple[str, int | None, int | None], Found] = {}
"""The results of earlier data checks, by the cache key of the records, ``minimum`` and ``largest``."""


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
    scores: tuple[str, ...] = (),
    shelf: tuple[str, str] | None = None,
) -> Federation:
    """Build the federation of the data source ``source``, or load it from the cache if it has been built before.

    Hospitals are in natural order of their names. A hospital's training rows come first, then its validation rows, then
    its test rows. Each part is in the source's order.

    - ``split``: the division of rows into training, validation and test.
    - ``preprocessing``: the method that prepares features, one of ``METHODS``.
    - ``seed``: the run's seed, used where ``split`` has no seed.
    - ``minimum``: the smallest number of rows of an included hospital (None: no minimum).
    - ``largest``: the number of hospitals to include, the largest first (None: all with at least ``minimum`` rows).
    - ``ranges``: declared ranges and categories of columns; needed by ``declared`` preprocessing, and by ``standard``
      with ``noise``.
    - ``noise``: the noise that hospitals add to the sums from which means and standard deviations are computed.
    - ``missing_flags``: whether an added 0/1 feature flags the missing values of a column.
    - ``scores``: columns with existing clinical scores, such as APACHE, which are not features.
    - ``shelf``: the kind and the key of a cache entry that one experiment uses alone and then removes. None: all runs
      that build the same federation share the entry.

    Raises ``DataError`` for data that cannot form a federation and for a cache folder that cannot be written.
    """
    if preprocessing not in METHODS:
        raise DataError(f"data.preprocessing: '{preprocessing}' is not known; {nearest(preprocessing, METHODS)}")
    if preprocessing not in ("none", RAW) and getattr(source, "untouched", False):
        raise DataError(
            f"data.preprocessing: '{preprocessing}' would scale the token ids of source {_name(source)}; set it to none"
        )
    source = _reserved(_with_scores(source, scores), split)
    read = _key(source)
    if scores:
        read = cache.digest(read, scores)
    division = split.model_dump(mode="json") | {"seed": split.effective_seed(seed), "fold": split.fold(seed)}
    division["independent"] = bool(split.independent)
    declared = () if ranges is None else (dict(ranges), None if noise is None else [*noise.key, seed])
    flags = () if missing_flags else ("without flags",)
    key = cache.digest(STORED, read, division, preprocessing, minimum, largest, *declared, *flags)
    kind, key = shelf or ("federations", key)
    folder = cache.find(kind, key)
    if folder is None:
        cache.check()
        tabular = getattr(source, "tabular", True)
        recipe = Recipe(split, preprocessing, seed, minimum, largest, ranges, noise, missing_flags, tabular)
        folder = _stored(source, read, recipe, kind, key)
    return Federation.open(folder)


def _stored(source: Source, read: str, recipe: Recipe, kind: str, key: str) -> Path:
    records = _records(source, read)

    def make(making: Path) -> None:
        rows = read, recipe.minimum, recipe.largest
        built = assemble(records, recipe, _name(source), making, _checked.get(rows))
        _checked[rows] = Leaks.of(built["meta"]["leaks"]), suspects_of(built["meta"]["quality"])
        built["meta"]["fingerprint"] = fingerprint(built)
        write(making, **built)

    return cache.store(kind, key, make)


def _reserved(source: Source, split: Split) -> Source:
    """Return ``source``, configured to read the columns that ``split`` names."""
    if split.column is None and split.by in (None, "row"):
        return source
    if isinstance(source, Columned):
        return source.reserve(split.by if split.by != "row" else None, split.column)
    columnless = f"but source {_name(source)} has no columns that data.split can name"
    if split.column is not None:
        raise DataError(
            f"data.split.column: '{split.column}', {columnless}; replace the key by train, validation and test"
        )
    if split.by != "patient":
        raise DataError(f"data.split.by: '{split.by}', {columnless}; use row, or patient if the source has patients")
    return source


def read(source: Source, split: Split) -> Records:
    """Return the records of ``source``, with the columns that ``split`` names, from the cache if possible."""
    source = _reserved(source, split)
    return _records(source, _key(source))


def _with_scores(source: Source, scores: tuple[str, ...]) -> Source:
    if not scores:
        return source
    if not isinstance(source, Scored):
        raise DataError(f"data.scores: '{scores[0]}', but source {_name(source)} has no scores; use source table")
    return source.with_scores(scores)


@contextlib.contextmanager
def _of_author(source: Source) -> Iterator[None]:
    """A context that raises a ``DataError`` with the source's name if a file is missing, or if the code of another
    package's source fails.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(
            f"data: file '{error.filename}' of source {_name(source)} does not exist; correct it"
        ) from error
    except (RaysimError, OSError, MemoryError):
        raise
    except Exception as error:  # whatever the source raises
        module = type(source).__module__
        if module.startswith("raysim."):
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DataError(f"data.source: {_name(source)} cannot be read ({reason}); mend {module}") from error


def _key(source: Source) -> str:
    with _of_author(source):
        return cache.source_key(source, source.files())


def _records(source: Source, key: str) -> Records:
    folder = cache.find("records", key)
    if folder is not None:
        return cache.load_records(folder)
    with _of_author(source):
        records = source.read()
    memory.give_back()  # the file's content is not needed any more
    _check(records, _name(source))
    if any(True for _ in source.files()):
        cache.store("records", key, lambda making: cache.save_records(making, records))
    return records


def _check_types(records: Records, source: str) -> None:
    """Raise ``DataError`` if an array of a source has another type, or values outside its range."""
    arrays = {"y": records.y, "silo": records.silo, "group": records.group, "part": records.part}
    for name, values in arrays.items():
        if values is not None and not isinstance(values, np.ndarray):
            raise DataError(f"data.source: {source} gives {of_type(values)} for {name}; give a numpy array")
    columns = getattr(records.features, "columns", None)
    if columns is None:
        raise DataError(f"data.source: {source} gives {of_type(records.features)} for features; give a data frame")
    if not columns.is_unique:
        raise DataError(f"data.source: {source} gives two features one name; give each feature its own name")
    if records.classes and records.y.dtype.kind not in "biu":
        raise DataError(
            f"data.source: {source} gives labels of type {records.y.dtype}; give indices of classes (int64)"
        )
    limits = [("y", records.y, len(records.classes))] if records.classes else []
    limits += [("part", records.part, 3)] if records.part is not None else []
    for name, values, count in limits:
        if len(values) and not (int(values.min()) >= 0 and int(values.max()) < count):
            raise DataError(f"data.source: {source} gives a value of {name} that is not 0 to {count - 1}; correct it")


def _check(records: Records, source: str) -> None:
    if not isinstance(records, Records):
        raise DataError(f"data.source: {source} returns {of_type(records)}; return raysim.data.records.Records")
    _check_types(records, source)
    n = len(records.y)
    lengths = {"features": len(records.features), "silo": len(records.silo)}
    lengths |= {name: len(values) for name, values in records.patients.items()}
    lengths |= {name: len(v) for name, v in (("group", records.group), ("part", records.part)) if v is not None}
    for name, length in lengths.items():
        if length != n:
            raise DataError(
                f"data.source: {source} gives {length:,} rows of {name} for {n:,} labels; give the same number of both"
            )
    if n == 0:
        raise DataError(f"data.source: {source} gives no rows; check what it reads and leaves out")
    large = ~(np.abs(records.y) <= np.finfo(np.float32).max)  # squares of larger numbers are not finite
    if not records.classes and large.any():
        row = int(large.argmax()) + 1
        raise DataError(f"data.label: source {source} gives {records.y[row - 1]} in row {row}; give finite numbers")


def fingerprint(built: dict[str, Any]) -> str:
    """Compute a digest of all data that a run computes with: rows and names, but neither code nor paths.

    With the digest, a run can be resumed after raysim's modules have moved, but not after its data have changed. Real
    numbers are rounded to single precision first, because the last bits of a double may differ between processors.
    ``built`` are the arguments of :func:`raysim.data.federation.write`.
    """
    summed = hashlib.blake2b(digest_size=16)
    arrays = {name: built[name] for name in ("X", "y", "observed", "bounds")} | built["patients"]
    arrays |= {f"score {name}": values for name, values in built.get("scores", {}).items()}
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


def _name(source: Source) -> str:
    return type(source).__name__.lower()
