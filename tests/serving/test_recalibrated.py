"""The recalibrated model of a run scores rows and is named as any other, for known and new hospitals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.serving.predictor import Predictor
from raysim.storage.served import ELSEWHERE
from raysim.strategies.shared.personalization import RECALIBRATED
from tests.serving.runs import folder_of

SPLIT = {"train": 0.5, "validation": 0.3, "test": 0.2}


@pytest.fixture
def run(place: Path) -> Path:
    return recalibrated(place)


def recalibrated(place: Path) -> Path:
    """The folder of a finished run whose common model is recalibrated."""
    return folder_of(
        place, {"name": "fedavg", "label": "recalibrated", "personalization": "recalibrate"}, **data(place)
    )


def data(place: Path) -> dict[str, Any]:
    return {
        "data": {
            "source": "table",
            "path": str(place / "stays.csv"),
            "silo": "hospital",
            "label": "died",
            "categorical": ["unit", "gcs", "sex"],
            "drop": ["stage", "cost", "part"],
            "split": SPLIT,
        }
    }


def test_a_new_hospital_gets_the_mean_shift_and_a_line_says_so(run: Path, logged: list[str]) -> None:
    predictor = Predictor.open(run)
    table = pd.read_csv(run.parent / "stays.csv").head(40)
    plain = predictor.predict(table, hospital="north", model="global")
    scored = predictor.predict(table, hospital="north")
    assert f"scored by {ELSEWHERE}" in "\n".join(logged)
    shift = predictor.served.shifts[ELSEWHERE]

    def logit(p: Any) -> Any:
        return np.log(p) - np.log1p(-p)

    np.testing.assert_allclose(logit(scored["probability"]), logit(plain["probability"]) + shift.intercept, atol=1e-6)
    assert set(scored["scored_by"]) == {ELSEWHERE}
    own = predictor.predict(table, hospital="7")
    assert set(own["scored_by"]) == {f"{RECALIBRATED}/7"}
    table_of_shifts = pd.read_csv(run / "recalibration.csv").set_index("hospital")
    np.testing.assert_allclose(
        logit(own["probability"]), logit(plain["probability"]) + table_of_shifts.loc[7, "intercept"], atol=1e-6
    )


def test_all_tables_and_pages_of_the_run_name_it(run: Path) -> None:
    for name in ("hospitals.csv", "clinical.csv", "calibration.csv", "net_benefit.csv", "clinical_equity.csv"):
        assert pd.read_csv(run / name)["model"].unique().tolist() == ["global", RECALIBRATED], name
    page = (run / "report.html").read_text()
    assert "recalibrated" in page
    hospitals = pd.read_csv(run / "hospitals.csv").set_index("model")
    np.testing.assert_array_equal(hospitals.loc["global", "auroc"], hospitals.loc[RECALIBRATED, "auroc"])
