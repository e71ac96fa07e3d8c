"""The files of a run's clinical metrics: by hospital and for all hospitals together, with curves and equity.

The metrics are computed from each hospital's histogram of predicted scores. ``docs/metrics.md`` defines the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.config.sections.evaluation import ClinicalSection
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.measuring.subgroups import EVERYWHERE
from raysim.metrics.score_counts import ScoreCounts
from raysim.statistics.clinical.clinical_figures import ClinicalFigure, figures
from raysim.statistics.clinical.curves import CURVE, HOSPITAL_CURVE, calibration_bins, net_benefit_curve
from raysim.statistics.clinical.equity import ClinicalEquity, clinical_equity
from raysim.statistics.clinical.operating_points import operating_points
from raysim.storage.manifest import Manifest

FIGURES, CALIBRATION, NET_BENEFIT = "clinical.csv", "calibration.csv", "net_benefit.csv"
EQUITY = "clinical_equity.csv"


def write(out: Manifest, folder: Path, federation: Federation, outcome: Outcome, asked: ClinicalSection | None) -> None:
    """Write the :func:`tables` to ``folder``, which must be in the folder of the manifest ``out``."""
    at = folder.relative_to(out.folder).as_posix()
    for name, table in tables(federation, outcome, asked).items():
        out.csv(f"{at}/{name}", table)


def tables(federation: Federation, outcome: Outcome, asked: ClinicalSection | None) -> dict[str, pd.DataFrame]:
    """Return the tables ``clinical.csv``, ``calibration.csv``, ``net_benefit.csv`` and ``clinical_equity.csv`` by name.

    The result is empty if ``asked`` is None, or if the label does not have two classes.
    """
    if asked is None or not outcome.scores:
        return {}
    rows: dict[str, list[pd.DataFrame]] = {FIGURES: [], CALIBRATION: [], NET_BENEFIT: [], EQUITY: []}
    for model, counts in outcome.scores.items():
        # A stream for each model, so that its figures do not depend on the other models used.
        rng = stream(0, f"clinical/{model}")
        points = operating_points(counts, outcome.validation_scores.get(model), asked.specificity, asked.sensitivity)
        by_hospital = figures(counts, asked.counted_at, points, asked.bins, rng)
        rows[EQUITY].append(_equity(model, clinical_equity(counts, by_hospital, outcome.stays(federation, model), rng)))
        together = counts.together()
        tested = np.flatnonzero(counts.rows)
        names = np.array(federation.hospitals, dtype=object)
        for hospitals, of, which, curve in (
            (np.array([EVERYWHERE], dtype=object), together, np.array([0]), CURVE),
            (names, counts, tested, HOSPITAL_CURVE),
        ):
            measured = by_hospital if of is counts else figures(of, asked.counted_at, points, asked.bins, rng)
            rows[FIGURES].append(_figures(model, hospitals, of, which, measured))
            rows[CALIBRATION].append(_calibration(model, hospitals, of, which, asked.bins))
            rows[NET_BENEFIT].append(_net_benefit(model, hospitals, of, which, curve))
    return {name: pd.concat(blocks, ignore_index=True) for name, blocks in rows.items()}


def _figures(
    model: str,
    hospitals: NDArray[Any],
    counts: ScoreCounts,
    which: NDArray[np.int64],
    measured: Sequence[ClinicalFigure],
) -> pd.DataFrame:
    """Return a model's rows of ``clinical.csv``: one per metric and hospital. Only the hospitals with the indices
    ``which`` have rows.
    """
    wide = len(measured)
    stacked = {
        name: np.stack([getattr(figure, name)[which] for figure in measured], axis=1).ravel()
        for name in ("value", "low", "high", "of", "undefined")
    }
    return pd.DataFrame(
        {
            "hospital": np.repeat(hospitals[which], wide),
            "model": model,
            "figure": np.tile(np.array([figure.name for figure in measured], dtype=object), len(which)),
            "at": np.tile([figure.at for figure in measured], len(which)),
            "threshold": np.tile([figure.threshold for figure in measured], len(which)),
            "value": stacked["value"],
            "low": stacked["low"],
            "high": stacked["high"],
            "n": np.repeat(counts.rows[which], wide),
            "events": np.repeat(counts.events[which], wide),
            "of": stacked["of"].astype(np.int64),
            "undefined": stacked["undefined"],
        }
    )


def _calibration(
    model: str, hospitals: NDArray[Any], counts: ScoreCounts, which: NDArray[np.int64], bins: int
) -> pd.DataFrame:
    """Return ``calibration.csv`` of a model: one row per hospital and bin of predicted risk; bins without predictions
    are absent.
    """
    filled = calibration_bins(counts, bins)
    at, bin_ = np.nonzero(filled.rows[which] > 0)
    cells = which[at], bin_
    return pd.DataFrame(
        {
            "hospital": hospitals[cells[0]],
            "model": model,
            "from": bin_ / bins,
            "to": (bin_ + 1) / bins,
            "n": filled.rows[cells].astype(np.int64),
            "events": filled.events[cells].astype(np.int64),
            "predicted": filled.predicted[cells],
            "observed": filled.observed[cells],
            "low": filled.low[cells],
            "high": filled.high[cells],
        }
    )


def _net_benefit(
    model: str, hospitals: NDArray[Any], counts: ScoreCounts, which: NDArray[np.int64], curve: NDArray[np.float64]
) -> pd.DataFrame:
    """Return ``net_benefit.csv`` of a model: one row per hospital and threshold of ``curve``."""
    benefit = net_benefit_curve(counts, curve)
    return pd.DataFrame(
        {
            "hospital": np.repeat(hospitals[which], len(curve)),
            "model": model,
            "threshold": np.tile(curve, len(which)),
            "value": benefit.value[which].ravel(),
            "low": benefit.low[which].ravel(),
            "high": benefit.high[which].ravel(),
            "of_all": benefit.everyone[which].ravel(),
        }
    )


def _equity(model: str, equities: Sequence[ClinicalEquity]) -> pd.DataFrame:
    wanted = ("worst_decile", "p10", "p90", "gini", "std", "size_bias", "hospitals", "undefined")
    return pd.DataFrame(
        {
            "model": model,
            "figure": figure.figure,
            "at": figure.at,
            "threshold": figure.threshold,
            "measure": figure.measure,
            "mean": figure.over["mean"],
            "mean_unweighted": figure.over["mean_unweighted"],
            **{name: figure.over.get(name, np.nan) for name in wanted},
            "floor_std": figure.floor_std,
            "floor_worst_decile": figure.floor_worst_decile,
            "p": figure.p,
        }
        for figure in equities
    ).astype({"hospitals": np.int64, "undefined": np.int64})
