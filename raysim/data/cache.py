"""Cache the records of sources, and federations, in a folder.

The key of an entry is usually a digest of the configuration, the code that reads data, and the content of the source's
files. An entry is a folder that is written under a temporary name and then renamed, so several processes can build the
same entry at the same time.
``complete.json`` lists the size and digest of each file of the entry. An entry that differs from this list is replaced,
with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from raysim.core import registry
from raysim.core.errors import DataError
from raysim.core.package import cache_folder
from raysim.data.records import Records, Source
from raysim.data.tables.rules import Reading

_COMPLETE = "complete.json"
_MAKING = ".making-"
_ABANDONED = 24 * 3600  # seconds after which an unfinished entry counts as left by a killed process
_IN_WORDS = (
    "classes",
    "attributes",
    "notes",
    "warnings",
    "hospital_column",
    "label_column",
)  # fields of records stored as JSON
_written: set[tuple[str, tuple[tuple[int, int, int], ...]]] = (
    set()
)  # entries written by this process: listing, files' states
_RACY = 2.0  # seconds: a file that was modified later can change again with the same time of modification


def digest(*parts: Any) -> str:
    """Return a digest of ``parts`` (JSON values): 32 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def source_key(source: Source, files: Iterable[Path]) -> str:
    """Return the cache key of the records that ``source.read()`` returns: a digest of the source's name, code, fields
    and ``files``.

    Files count by name and content. The digest does not depend on the folder that contains raysim's code.
    """
    from pydantic import TypeAdapter

    cls = type(source)
    fields = TypeAdapter(cls).dump_python(source, mode="json")
    kind = registry.name_of("sources", cls) or f"{cls.__module__}.{cls.__qualname__}"
    return digest(kind, _code(cls.__module__), fields, [(path.name, file_digest(path)) for path in files])


def file_digest(path: Path) -> str:
    """Return the digest of a file's content. The file is usually not read again if its size, time of modification and
    inode are the same as in an earlier call.
    """
    path = path.absolute()
    stat = path.stat()
    identity = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    memory = cache_folder() / "files" / f"{digest(str(path))}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        remembered = json.loads(memory.read_text())
        if remembered["identity"] == identity:
            return str(remembered["digest"])
    content = _content(path)
    if time.time() - stat.st_mtime > _RACY:
        with _writing():
            memory.parent.mkdir(parents=True, exist_ok=True)
            _write_atomically(memory, json.dumps({"path": str(path), "identity": identity, "digest": content}))
    return content


def find(kind: str, key: str) -> Path | None:
    """Return the folder of a cache entry; None if the entry is missing, damaged, or of an older version."""
    folder = entry(kind, key)
    try:
        listed = (folder / _COMPLETE).read_text()
    except (OSError, ValueError):
        return None
    try:
        files = json.loads(listed)
        if all(isinstance(each, int) for each in files.values()):  # an entry of an older version
            return None
        states = _states(folder, files)
        damage = "" if (listed, states) in _written else _damage(folder, listed, states)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        damage = f"{type(error).__name__}: {error}"
    if not damage:
        return folder
    print(f"raysim: warning: {folder} in the cache is damaged ({damage}); it is rebuilt", file=sys.stderr)
    return None


def _states(folder: Path, names: Iterable[str]) -> tuple[tuple[int, int, int], ...]:
    states = [(folder / name).stat() for name in names]
    return tuple((each.st_size, each.st_mtime_ns, each.st_ino) for each in states)


@functools.cache
def _damage(folder: Path, listed: str, states: tuple[tuple[int, int, int], ...]) -> str:
    """Return what is wrong with a cache entry, or an empty text if its files are unchanged.

    ``listed`` is the text of ``complete.json``. ``states`` has the size, time of modification and inode of each file.
    """
    for (name, (size, content)), state in zip(json.loads(listed).items(), states, strict=True):
        if state[0] != size or _content(folder / name) != content:
            return f"{name} has changed since it was written"
    return ""


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def check() -> None:
    """Raise ``DataError`` if the cache folder cannot be written."""
    with _writing():
        cache_folder().mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(prefix=_MAKING, dir=cache_folder()))


def store(kind: str, key: str, write: Callable[[Path], None]) -> Path:
    """Create the cache entry ``key`` by calling ``write(folder)``, and return its folder. If another process is first,
    its entry is kept.

    Raises ``DataError`` if the cache folder cannot be written.
    """
    folder = cache_folder() / kind
    with _writing():
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=folder))
        try:
            write(making)
            paths = sorted(making.iterdir())
            files = {path.name: (path.stat().st_size, _content(path)) for path in paths}
            listed = json.dumps(files)
            _written.add((listed, _states(making, files)))  # so that the files are not read again
            (making / _COMPLETE).write_text(listed)
            _move_in(making, folder / key)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    stored = find(kind, key)
    if stored is None:
        raise DataError(
            f"RAYSIM_CACHE: '{folder / key}' changed while it was written; run again, or clear '{cache_folder()}'"
        )
    return stored


def entry(kind: str, key: str) -> Path:
    """Return the path of a cache entry's folder, whether or not the entry exists."""
    return cache_folder() / kind / key


def remove(kind: str, key: str | None = None) -> None:
    """Remove the cache entry ``key`` or, without ``key``, all entries of the ``kind``. No process may be using these
    entries.
    """
    if key is None:
        shutil.rmtree(cache_folder() / kind, ignore_errors=True)
        return
    shutil.rmtree(entry(kind, key), ignore_errors=True)


def _move_in(made: Path, target: Path) -> None:
    try:
        os.replace(made, target)
    except OSError:
        if find(target.parent.name, target.name) is not None:
            return  # another process finished first, with the same content
        if not target.exists():
            raise
        # A damaged entry is moved away first: a folder that is not empty cannot be replaced.
        damaged = Path(tempfile.mkdtemp(prefix=_MAKING, dir=target.parent))
        with contextlib.suppress(FileNotFoundError):
            os.replace(target, damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process finished first: the caller finds its entry
            os.replace(made, target)


def _sweep(folder: Path) -> None:
    """Remove unfinished entries that killed processes have left in ``folder``."""
    for left in folder.glob(_MAKING + "*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left, ignore_errors=True)


def _write_atomically(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=_MAKING, dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(name, path)


@contextlib.contextmanager
def _writing() -> Any:
    try:
        yield
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise DataError(
            f"RAYSIM_CACHE: the cache folder '{cache_folder()}' cannot be written ({reason}); "
            "set the environment variable to a writable folder with free space"
        ) from None


def _code(module: str) -> list[str]:
    digests = dict(_own_code())
    if (file := getattr(sys.modules.get(module), "__file__", None)) and Path(file) not in digests:
        digests[Path(file)] = _content(Path(file))
    return sorted(digests.values())


@functools.cache
def _own_code() -> dict[Path, str]:
    here = Path(__file__).parent
    folders = (here, here.parent / "core")
    paths = {path for folder in folders for kind in ("*.py", "*.sql", "*.yaml") for path in folder.rglob(kind)}
    return {path: _content(path) for path in paths if path.name not in ("describe.py", "heterogeneity.py")}


def save_records(folder: Path, records: Records) -> None:
    """Store ``records`` in ``folder``: columns as an Arrow file, the rest as JSON. Nothing is pickled."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import feather

    columns: dict[str, Any] = {"y": records.y, "silo": records.silo, "group": records.group, "part": records.part}
    columns["row"] = records.row
    columns |= {f"patient:{name}": values for name, values in records.patients.items()}
    columns |= {f"score:{name}": values for name, values in records.scores.items()}
    for name, series in records.features.items():
        if isinstance(series.dtype, pd.CategoricalDtype):
            codes = series.cat.codes.to_numpy()
            indices = pa.array(codes, mask=codes < 0)
            columns[f"feature:{name}"] = pa.DictionaryArray.from_arrays(indices, pa.array(series.cat.categories))
        else:
            columns[f"feature:{name}"] = series.to_numpy()
    present = {name: values for name, values in columns.items() if values is not None}
    arrays = [v if isinstance(v, pa.DictionaryArray) else pa.array(v, from_pandas=False) for v in present.values()]
    feather.write_feather(pa.table(arrays, names=list(present)), folder / "records.arrow", compression="uncompressed")
    rest = {name: getattr(records, name) for name in _IN_WORDS} | {"reading": records.reading.tree()}
    (folder / "records.json").write_text(json.dumps(rest | {"attributes": dict(rest["attributes"])}, default=dict))


def load_records(folder: Path) -> Records:
    """Load the records that :func:`save_records` stored in ``folder``."""
    import pandas as pd
    from pyarrow import feather

    table = feather.read_table(folder / "records.arrow", memory_map=True)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    plain = {k: v.to_numpy(zero_copy_only=False) for k, v in columns.items() if not hasattr(v, "dictionary")}
    features: dict[str, Any] = {}
    for name, column in columns.items():
        if not name.startswith("feature:"):
            continue
        if hasattr(column, "dictionary"):
            codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            values: Any = pd.Categorical.from_codes(codes, categories=column.dictionary.to_pylist())
        else:
            values = plain[name]
        features[name.removeprefix("feature:")] = values
    rest = json.loads((folder / "records.json").read_text())
    return Records(
        features=pd.DataFrame(features),
        y=np.asarray(plain["y"], np.int64 if rest["classes"] else np.float64),
        silo=plain["silo"],
        group=plain.get("group"),
        part=plain.get("part"),
        row=plain.get("row"),
        patients={k.removeprefix("patient:"): v for k, v in plain.items() if k.startswith("patient:")},
        scores={k.removeprefix("score:"): v for k, v in plain.items() if k.startswith("score:")},
        classes=tuple(rest["classes"]),
        attributes=rest["attributes"],
        notes=tuple(rest["notes"]),
        warnings=tuple(rest["warnings"]),
        reading=Reading.of(rest["reading"]),
        hospital_column=rest["hospital_column"],
        label_column=rest["label_column"],
    )
