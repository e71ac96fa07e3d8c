"""Loads results from the folder that a command has written."""

from __future__ import annotations

import os

from raysim.api.comparison_result import ComparisonResult, CurveResult
from raysim.api.results import RunResult
from raysim.api.sweep_result import SweepResult
from raysim.config.paths import expanded
from raysim.core.errors import ConfigError
from raysim.storage import resume
from raysim.storage.manifest import NAME, Manifest, check_plain

Loaded = RunResult | ComparisonResult | CurveResult | SweepResult

KINDS: dict[str, type[Loaded]] = {
    "run": RunResult,
    "compare": ComparisonResult,
    "curve": CurveResult,
    "sweep": SweepResult,
}


def load(folder: str | os.PathLike[str]) -> Loaded:
    """Load the results of a finished run, comparison, curve or sweep from a folder.

    Raises ``ConfigError`` for a folder without results, and for an experiment that is not finished.
    """
    path = expanded(folder)
    if not (path / NAME).is_file():
        raise ConfigError(f"{path}: has no results of raysim; name the folder of a run, comparison, curve or sweep")
    check_plain(path)
    kind = Manifest.read(path).kind
    if kind not in KINDS:
        raise ConfigError(f"{path}: results of the kind '{kind}' cannot be loaded; read the files in this folder")
    if kind == "sweep" and not (path / "summary.json").is_file():
        raise ConfigError(f"{path}: is not finished; continue with 'raysim resume {path}'")
    if (path / resume.FILE).exists() and not resume.read_ticket(path).finished:
        raise ConfigError(f"{path}: is not finished; continue with 'raysim resume {path}'")
    return KINDS[kind](path)
