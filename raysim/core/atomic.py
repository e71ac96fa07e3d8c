"""Files that are written completely or not at all, and the values that JSON can store."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class replacing:
    """A context manager for writing a file completely or not at all.

    In ``with replacing(path) as temporary``, the caller writes the file ``temporary``. When the context ends without an
    error, this file replaces ``path`` in one step.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The extension stays, as it decides the format that some writers use.
        self._temporary = path.with_name(f".{os.getpid()}.{path.name}")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if error is None:
                os.replace(self._temporary, self._path)
        finally:
            self._temporary.unlink(missing_ok=True)


_STRAY = re.compile(r"\.([1-9]\d*)\..+", re.ASCII | re.DOTALL)


def remove_stray(folder: Path) -> None:
    """Remove the temporary files of :class:`replacing` that killed processes have left in a folder and its
    subfolders."""
    for path in folder.rglob(".*"):
        named = _STRAY.fullmatch(path.name)
        if named and path.is_file() and not path.is_symlink() and not _runs(int(named[1])):
            with contextlib.suppress(OSError):
                path.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; no process's number
        return True
    return True


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")


def plain(tree: Any) -> Any:
    """Return ``tree`` as JSON values: numbers that are not finite become null; objects of other types become texts.

    >>> plain({"auroc": float("nan"), 1: (2.5, Path("runs"))})
    {'auroc': None, '1': [2.5, 'runs']}
    """
    if isinstance(tree, Mapping):
        return {str(key): plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    if hasattr(tree, "tolist"):  # numpy arrays and scalars
        return plain(tree.tolist())
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    return tree if isinstance(tree, str | int | bool | None) else str(tree)
