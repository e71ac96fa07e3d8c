"""Writes the files of hospitals that were left out, and returns their content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from raysim.config.schema import Config
from raysim.engine.job import Result
from raysim.experiment.unseen import tables
from raysim.experiment.unseen.measured import Unseen, measured
from raysim.experiment.unseen.measured import on_rows_of as measured_on_rows_of
from raysim.experiment.unseen.rows import Judged
from raysim.storage.manifest import Manifest

HOSPITALS, SUMMARY, DIFFERENCE = "unseen.csv", "unseen_summary.csv", "unseen_difference.csv"


@dataclass(frozen=True, eq=False)
class Found:
    """The results at hospitals that took no part in training."""

    hospitals: pd.DataFrame
    summary: pd.DataFrame
    differences: pd.DataFrame


def write(out: Manifest, config: Config, results: Sequence[Result], left_out: Sequence[Judged]) -> Found | None:
    """Write ``unseen.csv``, ``unseen_summary.csv`` and ``unseen_difference.csv``.

    Returns their data frames, or None if no hospital was left out.
    """
    if not left_out:
        return None
    clinical, federation = config.evaluation.clinical, results[0].federation
    unseen = measured(left_out, federation.task, clinical, federation)
    hospitals = tables.by_hospital(unseen, federation.task, clinical)

    def on_rows_of(score: str, each: Unseen) -> Unseen:
        return measured_on_rows_of(score, each, left_out, federation.task, clinical)

    found = Found(
        hospitals,
        tables.summary(unseen, hospitals, clinical),
        tables.differences(unseen, results, left_out, config.reference, on_rows_of),
    )
    out.csv(HOSPITALS, found.hospitals)
    out.csv(SUMMARY, found.summary)
    out.csv(DIFFERENCE, found.differences)
    return found
