"""Stores, in the experiment's folder, the records that MLflow has not accepted, so that ``raysim resume`` can send
them.

For each run, the file ``unsent.json`` names the run's folder, whose manifest lists the files to send.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raysim.config.schema import TrackingSection
from raysim.core import bounded
from raysim.core.atomic import write_json
from raysim.core.errors import ConfigError, ResourceError
from raysim.engine.job import Round
from raysim.storage.manifest import Manifest
from raysim.storage.resume import PENDING_MLFLOW
from raysim.tracking.recording import PendingRun, Recorder, send
from raysim.tracking.stores import NOWHERE


def keep(folder: Path, recorder: Recorder, uri: str) -> str | None:
    """Store the records that the MLflow store at ``uri`` did not accept, and return a line for the user; None if MLflow
    accepted all.
    """
    if not recorder.pending:
        (folder / PENDING_MLFLOW).unlink(missing_ok=True)
        return None
    write_json(folder / PENDING_MLFLOW, {"format": 1, "runs": [_plain(folder, run) for run in recorder.pending]})
    return (
        f"warning: MLflow ({uri}) did not accept {_counted(len(recorder.pending))}: {recorder.error}; they are stored "
        f"in the folder, and 'raysim resume {folder}' sends them"
    )


def send_pending(folder: Path, tracking: TrackingSection) -> str | None:
    """Send the records stored in ``folder`` to MLflow, and return a line for the user; None if no records are stored.

    Raises ``ResourceError`` if the MLflow store rejects them again, and ``ConfigError`` for a damaged file.
    """
    try:
        text = (folder / PENDING_MLFLOW).read_bytes()
    except FileNotFoundError:
        return None
    if tracking.uri == NOWHERE:
        raise ConfigError(
            f"tracking.uri: is none, but {folder / PENDING_MLFLOW} has unsent records; name a store in the folder's "
            "config.yaml"
        )
    try:
        runs = [_read(folder, tree) for tree in bounded.json_value(text)["runs"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{folder / PENDING_MLFLOW}: cannot be read ({error!r}); remove it to continue without MLflow"
        ) from None
    try:
        send(runs, tracking)
    except Exception as error:  # any error of MLflow, its database or the network
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ResourceError(
            f"tracking.uri: {tracking.uri} does not accept the records in {folder / PENDING_MLFLOW} ({reason}); repair "
            "the store, then resume again"
        ) from None
    (folder / PENDING_MLFLOW).unlink()
    return f"sent {_counted(len(runs))} to MLflow ({tracking.uri})"


def _counted(runs: int) -> str:
    return f"{runs} run{'s' * (runs > 1)}"


def _plain(folder: Path, run: PendingRun) -> dict[str, Any]:
    """Return a run's unsent records as JSON values. The value ``files`` is the path of the run's folder relative to
    ``folder``; None for a run without files, such as a failed one.
    """
    home = next((path.parent for name, path in run.files.items() if "/" not in name), None)
    tree = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return tree | {
        "rounds": [dataclasses.asdict(row) for row in run.rounds],
        "files": None if home is None else home.absolute().relative_to(folder.absolute()).as_posix(),
    }


def _read(folder: Path, tree: Mapping[str, Any]) -> PendingRun:
    files: Mapping[str, Path] = {}
    if tree["files"] is not None:
        home = (folder / tree["files"]).resolve()
        if not home.is_relative_to(folder.resolve()):
            raise ValueError(f"{tree['files']} is not inside the folder of the run")
        files = Manifest.read(home).paths()
    rounds: Sequence[Round] = tuple(Round(**row) for row in tree["rounds"])
    return PendingRun(**{**tree, "rounds": rounds, "files": files})
