"""The files of a run, such as its summary: CSV, JSON, YAML, safetensors. Opening them executes nothing."""

from __future__ import annotations

import os
import platform
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.system import SystemSection
from raysim.core.atomic import plain
from raysim.core.errors import ConfigError
from raysim.core.package import __version__, versions
from raysim.core.plain_yaml import dumped
from raysim.data.federation import Federation
from raysim.engine import timing
from raysim.engine.job import Outcome
from raysim.storage import detail_tables, served
from raysim.storage.coefficients import COEFFICIENTS, coefficients
from raysim.storage.manifest import NAME, Manifest, check_plain

SPLIT = "split.csv"
"""The file with each used row of the source: the row's hospital, and its part (training, validation or test)."""

PREDICTIONS = "predictions.csv"

RECALIBRATION = "recalibration.csv"

LONGEST_PART = 255
"""Largest number of bytes that usual file systems allow in the name of a file or folder."""


def choose_folder(out: Path | None, name: str, *, again: bool = False) -> Path:
    """Return the folder for results: ``out``, or ``runs/<name>/<time>-<id>`` if ``out`` is None.

    Raises ``ConfigError`` if the folder cannot be written or holds a link, or if it has files but no ``manifest.json``.
    A manifest is not required if a command is resumed (``again``).
    """
    folder = out or Path("runs") / name / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    if "\0" in str(folder) or any(len(os.fsencode(part)) > LONGEST_PART for part in folder.parts):
        raise ConfigError(f"--out: {folder} has a name that is too long or has a null byte; choose another name")
    try:
        existing = folder
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        # Write a file: permission bits do not reveal read-only file systems.
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise ConfigError(
            f"--out: {folder} cannot be written into ({error.strerror}); name a writable folder"
        ) from None
    if folder.is_dir() and not again and not (folder / NAME).exists():
        for other in folder.iterdir():
            raise ConfigError(
                f"--out: {folder} holds a file that raysim did not write ('{other.name}'), and results could replace "
                "it; name another folder"
            )
    check_plain(folder)
    return folder


def write_run(
    out: Manifest,
    federation: Federation,
    outcome: Outcome,
    frozen: Mapping[str, Any],
    evaluation: EvaluationSection,
    precision: str,
    system: SystemSection | None = None,
    *,
    models: bool = True,
    predicted: Collection[str] = (),
) -> None:
    """Write a run's files, each completely or not at all. The files of its models are written only with ``models``.

    ``predicted`` names the hospitals whose predictions are written; the files of traffic and of clinical metrics are
    then omitted. If ``predicted`` is empty, all files are written as configured.
    """
    # Imported late: they take a fifth of a second.
    from raysim.storage import clinical_tables
    from raysim.storage.run_tables import (
        egress_table,
        hospitals_table,
        predictions_table,
        recalibration_table,
        rounds_table,
    )

    write_config(out, frozen, federation)
    out.csv("rounds.csv", rounds_table(outcome.rounds))
    out.csv("hospitals.csv", hospitals_table(federation, outcome, evaluation.part))
    if not predicted:
        out.csv("egress.csv", egress_table(federation, outcome))
        for name, table in clinical_tables.tables(federation, outcome, evaluation.clinical).items():
            out.csv(name, table)
    of_groups, of_clusters = (each(federation, outcome) for each in (detail_tables.of_groups, detail_tables.tables))
    for name, table in (of_groups | of_clusters).items():
        out.csv(name, table)
    if outcome.attack is not None:
        out.csv(detail_tables.ATTACK, detail_tables.table(federation, outcome, outcome.attack))
    if outcome.recalibrated is not None:
        out.csv(RECALIBRATION, recalibration_table(federation, outcome.recalibrated))
    if outcome.predictions:
        table = predictions_table(federation, outcome)
        out.rows(PREDICTIONS, table[table["hospital"].isin(predicted)] if predicted else table)
    if models:
        _write_models(out, federation, outcome, precision)
    timed = {} if system is None else timing.summary(outcome, system, federation.task)
    out.json("summary.json", plain(summary(federation, outcome) | {"part": evaluation.part} | timed))


def _write_models(out: Manifest, federation: Federation, outcome: Outcome, precision: str) -> None:
    from safetensors.numpy import save_file

    models = served.served(federation, outcome, precision)
    tensors, serving = served.to_store(models, outcome.layout)
    with out.writing(served.MODELS) as path:
        save_file(tensors, path)
    out.json(served.SERVING, serving)
    out.json(served.PREPROCESSING, federation.preprocessing.tree())
    vectors = models.vectors
    if outcome.privacy is not None:  # no noise hides hospitals' own models
        vectors = {owner: theta for owner, theta in vectors.items() if not owner.startswith(served.PERSONAL)}
    named = coefficients(federation, vectors, outcome.layout, outcome.uncertainty)
    if named is not None:
        out.csv(COEFFICIENTS, named)


def summary(federation: Federation, outcome: Outcome) -> dict[str, Any]:
    """Return the content of ``summary.json``: all metrics of the federation by name, and totals of traffic and time.

    Metrics of the headline model are at the top level; those of every model are under ``models``.
    """
    model, headline = list(outcome.metrics.items())[-1]
    return {
        "model": model,
        **headline,
        "models": outcome.metrics,
        "rounds": outcome.rounds_run,
        "seconds": outcome.seconds,
        "seconds_rounds": sum(row.seconds for row in outcome.rounds),
        **traffic(outcome),
        "federation_hospitals": len(federation.hospitals),
        "federation_rows": int(outcome.stays(federation, model).sum()),
        "parameters": outcome.layout.size,
        "data": federation.fingerprint,
        "facts": outcome.facts,
        **converged(outcome),
        **stopped(outcome),
        **({} if outcome.attack is None else {"adversary": detail_tables.as_json(outcome.attack)}),
        **({} if outcome.privacy is None else {"privacy": outcome.privacy.as_json()}),
    }


def converged(outcome: Outcome) -> dict[str, Any]:
    """Return for ``summary.json`` whether the training loss has converged, and the losses that show it.

    If convergence is unknown, ``convergence`` is None, and there are no losses.
    """
    training, model = outcome.convergence, outcome.losses.model
    if training is None:
        return {"convergence": None}
    return {
        "convergence": training.verdict,
        "convergence_notes": list(training.notes),
        "training_loss_of": model,
        "training_loss_before": training.before,
        "training_loss": training.last,
        "training_loss_fall": training.fall,
    }


def stopped(outcome: Outcome) -> dict[str, Any]:
    """Return for ``summary.json`` when and why training stopped; empty if early stopping is not configured."""
    how = outcome.stopped
    if how is None:
        return {}
    return {
        "stopped_at": how.last if how.early else None,
        "stop_reason": "patience" if how.early else "rounds",
        "served_round": how.served,
        "validation_loss_of": how.model,
        "validation_loss_before": how.before,
        "validation_loss": how.loss,
    }


def traffic(outcome: Outcome) -> dict[str, int]:
    """Return the bytes that hospitals received and sent in all rounds, and before the first round."""
    rounds, setup = outcome.traffic, outcome.setup
    return {
        "bytes_down": rounds.down,
        "bytes_up": rounds.up,
        "bytes_setup_down": setup.down,
        "bytes_setup_up": setup.up,
    }


def provenance(federation: Federation) -> dict[str, Any]:
    """Return what determines a result besides the configuration: versions, platform and the digest of the data."""
    return {"versions": dict(_versions()), "platform": platform.platform(), "data": federation.fingerprint}


@cache
def _versions() -> dict[str, str]:
    python = {"raysim": __version__, "python": platform.python_version()}
    return python | versions("ray", "torch", "numpy", "scikit-learn", "mlflow")


def write_config(out: Manifest, frozen: Mapping[str, Any], federation: Federation) -> None:
    """Write ``config.yaml``: the complete configuration, below comments on versions and data."""
    made_by = dumped(provenance(federation))
    comments = "".join(f"# {line}\n" for line in made_by.splitlines())
    out.text("config.yaml", comments + dumped(frozen))
