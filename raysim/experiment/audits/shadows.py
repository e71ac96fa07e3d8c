"""The runs on an audit's shadow federations: all in one run if that changes no result, otherwise one after another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.derived.rearranged import copies
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.experiment.audits.side_by_side import NotSideBySide, SideBySide, can_be_together
from raysim.experiment.session import Session

Opened = Callable[[Federation], AbstractContextManager[Session]]
"""A function that opens a session with the hospitals of a federation."""

MOST = 5e8
"""Largest number of feature entries in federations that are run at once: 2 GB."""


def outputs_of_shadows(
    job: Job,
    federation: Federation,
    trained: NDArray[np.bool_],
    opened: Opened,
    folder: Path,
    say: Callable[[str], None],
) -> NDArray[Any]:
    """Return the outputs of the headline models of ``J`` runs for all rows of ``federation``, ``[J, N]`` or ``[J, N,
    C]``.

    Run ``j`` runs ``job`` on the rows ``trained[j]`` of ``trained [J, N]``. Its models equal the models of a separate
    run. ``job`` must ask for predictions. Files go to ``folder``, which must exist.
    """
    at_once = int(max(1, min(len(trained), MOST // max(federation.X.size, 1)))) if can_be_together(job) else 1
    parts: list[NDArray[Any]] = []
    while sum(map(len, parts)) < len(trained):
        first = sum(map(len, parts))
        some = trained[first : first + at_once]
        try:
            parts.append(_together(job, federation, some, opened, folder / f"shadows {first} by {at_once}"))
        except NotSideBySide:
            at_once = 1
            continue
        say(f"shadow {first + len(some)} of {len(trained)}")
    return np.concatenate(parts)


def _together(
    job: Job, federation: Federation, trained: NDArray[np.bool_], opened: Opened, folder: Path
) -> NDArray[Any]:
    folder.mkdir()
    stacked = copies(federation, trained, folder)
    job = replace(job, work=replace(job.work, federation=str(folder)))
    if len(trained) > 1:
        job = replace(job, strategy=SideBySide(job.strategy, len(trained)), label=job.name)
    with opened(stacked) as session:
        *_, outcome = session.run(job)
    if not isinstance(outcome, Outcome):
        raise AssertionError("a job ends with its outcome")
    predictions = list(outcome.predictions.values())[-1]
    outputs = np.empty_like(predictions)
    outputs[stacked.source_rows] = predictions
    return outputs.reshape(len(trained), len(federation.y), *predictions.shape[1:])
