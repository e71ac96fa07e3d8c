"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class replacing:
    """``with replacing(path) as temporary``: what is written appears as ``path`` at once, and only if all went well."""

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


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")
