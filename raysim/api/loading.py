"""Results by the folder that they are in."""

from __future__ import annotations

import os
from pathlib import Path

from raysim.api.results import ComparisonResult, RunResult
from raysim.core.errors import ConfigError
from raysim.storage import resume
from raysim.storage.manifest import NAME, Manifest

Loaded = RunResult | ComparisonResult

KINDS: dict[str, type[Loaded]] = {"run": RunResult, "compare": ComparisonResult}
"""What each command leaves."""


def load(folder: str | os.PathLike[str]) -> Loaded:
    """What a finished run or comparison left in a folder.

    Raises ``ConfigError`` for a folder that has none, and for one that is not finished.
    """
    path = Path(folder)
    if not (path / NAME).is_file():
        raise ConfigError(f"{path}: holds no results of raysim; name the folder of a run or comparison")
    kind = Manifest.read(path).kind
    if kind not in KINDS:
        raise ConfigError(f"{path}: holds a {kind}, which cannot be loaded; read its files")
    if (path / resume.FILE).exists() and not resume.read_ticket(path).finished:
        raise ConfigError(f"{path}: is not finished; 'raysim resume {path}' goes on")
    return KINDS[kind](path)
