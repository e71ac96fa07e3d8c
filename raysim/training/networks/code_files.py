"""Compiled code of loops on disk, where later processes find it.

numba's own cache has an index of each loop's files, in which two processes that compile it at once for two types may
enter one file: the code of one type is then run for the other. A full disk or a damaged file ends what is under way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import numba
from numba.core.caching import FunctionCache, NullCache
from numba.core.serialize import dumps


def code_files(loop: Callable[..., Any]) -> Any:
    """What numba takes for the cache of ``loop``: its :class:`CodeFiles`, or none where no folder can be written."""
    try:
        return CodeFiles(loop)
    except RuntimeError:
        return NullCache()


class CodeFiles(FunctionCache):  # type: ignore[misc]
    """A :class:`Files` of the code of a loop. Code that cannot be read is made again; it need not be written."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        super().__init__(loop)
        self._cache_file = Files(Path(self._cache_path) / self._impl.filename_base)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The code for arguments of these types, or None."""
        try:
            return super().load_overload(signature, context)
        except Exception:  # of whatever kind: the loop can be compiled
            return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Write it, if that is possible."""
        with suppress(OSError):
            super().save_overload(signature, code)


class Files:
    """A file for each key, named by it, that begins with ``stem``: the digest of a pickle, then this."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem

    def load(self, key: Any) -> Any:
        """What was saved under ``key``; None if it has been damaged. Raises ``OSError`` if it cannot be read."""
        content = self._path(key).read_bytes()
        digest, pickled = content[:32], content[32:]
        return pickle.loads(pickled) if sha256(pickled).digest() == digest else None

    def save(self, key: Any, data: Any) -> None:
        """Replace what was saved. Raises ``OSError`` if that is not possible, and leaves nothing then."""
        path, pickled = self._path(key), dumps(data)
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
        try:
            unfinished.write_bytes(sha256(pickled).digest() + pickled)
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def _path(self, key: Any) -> Path:
        name = sha256(repr((numba.__version__, key)).encode()).hexdigest()
        return self._stem.with_name(f"{self._stem.name}-{name[:16]}.nbc")
