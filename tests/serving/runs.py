"""Finished runs on a small table of stays, which tests of scoring and exporting share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from raysim.cli.commands import run_one
from raysim.config import reading

ROWS = 240
LABELS = {"died": "classification", "stage": "classification", "cost": "regression"}
"""Of two classes, of three, and a number."""


def stays() -> pd.DataFrame:
    """Rows of four hospitals whose names are numbers, with missing values, a flag, and a text column of two numbers.

    The last row, the only one of unit ``ZICU``, is one to test on in every run.
    """
    rng = np.random.default_rng(0)
    severity, unit = rng.normal(size=ROWS), rng.choice(["MICU", "SICU", "NICU"], ROWS)
    unit[-1] = "ZICU"
    outcome = severity + (unit == "SICU") + rng.normal(size=ROWS)
    return pd.DataFrame(
        {
            "hospital": rng.choice([7, 10, 11, 12], ROWS),
            "severity": np.where(rng.random(ROWS) < 0.1, np.nan, severity).round(3),
            "unit": np.where(rng.random(ROWS) < 0.1, None, unit.astype(object)),
            "age": rng.normal(60, 10, ROWS).round(1),
            "ventilated": rng.random(ROWS) < 0.3,
            "gcs": rng.choice(["3", "15"], ROWS),
            "sex": rng.choice(["F", "M"], ROWS),
            "died": np.where(outcome > 0, "yes", "no"),
            "stage": np.select([outcome < -0.5, outcome < 1], ["mild", "moderate"], "severe"),
            "cost": (outcome * 10 + 100).round(2),
            "part": np.where(np.arange(ROWS) % 4 == 3, "test", "train"),
        }
    )


def folder_of(place: Path, strategy: Mapping[str, Any] | str, label: str = "died", **sections: Any) -> Path:
    """The folder of a finished run in ``place``, which holds ``stays.csv`` and a cache; run once."""
    section = {"name": strategy} if isinstance(strategy, str) else dict(strategy)
    folder = place / f"{section.get('label', section['name'])}-{label}"
    if folder.exists():
        return folder
    table = place / "stays.csv"
    if not table.exists():
        stays().to_csv(table, index=False)
    linear = "linear_regression" if LABELS[label] == "regression" else "logistic_regression"
    tree = {
        "data": {
            "source": "table",
            "path": str(table),
            "silo": "hospital",
            "label": label,
            "task": LABELS[label],
            "categorical": ["unit", "gcs", "sex"],
            "sex": "sex",
            "drop": [other for other in LABELS if other != label],
            "split": {"column": "part"},
        },
        "model": linear,
        "strategy": section,
        "training": {"rounds": 3, "batch_size": 16, "learning_rate": 0.2},
        "evaluation": {"predictions": True},
        "tracking": {"uri": "none"},
    } | sections
    before = os.environ.get("RAYSIM_CACHE")
    os.environ["RAYSIM_CACHE"] = str(place / "cache")
    try:
        run_one(reading.resolve(tree), Console(quiet=True), folder, in_process=True, verbose=False)
    finally:
        os.environ.pop("RAYSIM_CACHE")
        if before is not None:
            os.environ["RAYSIM_CACHE"] = before
    return folder
