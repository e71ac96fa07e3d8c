"""Stores the results of a fold next to the fold's run, so that a resumed comparison need not compute them again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raysim.core.atomic import replacing
from raysim.engine.packing import Arrays, pack, unpack
from raysim.experiment.unseen.folds import Fold
from raysim.experiment.unseen.rows import AllRows, Judged, JudgedRows
from raysim.storage.encoding import UNREADABLE, read_tensors
from raysim.storage.manifest import Manifest
from raysim.storage.resume import PENDING_MLFLOW

JUDGED = "judged.safetensors"


def store(folder: Path, judged: Sequence[Judged], ticket: str) -> None:
    """Write the results at left-out hospitals next to the run in ``folder``; ``ticket`` is the id of the comparison."""
    from safetensors.numpy import save

    arrays: Arrays = {}
    header = {"ticket": ticket, "judged": [_packed(each, f"{k}", arrays) for k, each in enumerate(judged)]}
    with replacing(folder / JUDGED) as path:
        path.write_bytes(save(arrays, {"raysim": json.dumps(header)}))


def load(folder: Path, fold: Fold, seed: int, ticket: str) -> list[Judged] | None:
    """Return the results that :func:`store` wrote for the comparison with the id ``ticket``.

    Returns None if there are no readable results of this comparison, if the run's files have changed since, or if the
    run has unsent MLflow records.
    """
    try:
        arrays, header = read_tensors((folder / JUDGED).read_bytes())
        if header["ticket"] != ticket or (folder / PENDING_MLFLOW).exists() or Manifest.read(folder).changed():
            return None
        return [_unpacked(each, arrays, fold, seed, folder) for each in header["judged"]]
    except (OSError, *UNREADABLE):
        return None


def _packed(judged: Judged, name: str, arrays: Arrays) -> dict[str, Any]:
    rows = [
        [model, k, [pack(dict(vars(each)), f"{name}/{n}/{i}", arrays) for i, each in enumerate(of)]]
        for n, ((model, k), of) in enumerate(judged.rows.items())
    ]
    everything = {hospital: (each.source_rows, dict(each.margins)) for hospital, each in judged.everything.items()}
    return {
        "strategy": judged.strategy,
        "rows": rows,
        "everything": pack(everything, f"{name}/everything", arrays),
        "notes": list(judged.notes),
    }


def _unpacked(packed: dict[str, Any], arrays: Arrays, fold: Fold, seed: int, folder: Path) -> Judged:
    rows = {(model, k): tuple(JudgedRows(**unpack(each, arrays)) for each in of) for model, k, of in packed["rows"]}
    everything = {hospital: AllRows(*each) for hospital, each in unpack(packed["everything"], arrays).items()}
    return Judged(packed["strategy"], seed, fold, folder, rows, everything, tuple(packed["notes"]))
