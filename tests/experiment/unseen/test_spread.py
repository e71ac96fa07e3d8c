"""Prediction intervals for a further hospital are wide enough where hospitals differ widely."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from raysim.experiment.unseen.measured import Unseen
from raysim.experiment.unseen.tables import summary

HOSPITALS = 20


def unseen() -> Unseen:
    """A model without histograms and pairs, whose figures are in the table alone."""
    names, none = tuple(map(str, range(HOSPITALS))), np.zeros((HOSPITALS, 0))
    folds = np.arange(HOSPITALS)
    return Unseen(
        "s", "global", 0, 0, names, folds, names, none, None, None, None, None, np.full(HOSPITALS, np.nan), folds
    )


@pytest.mark.parametrize("spread", [0.2, 0.8, 1.2])
def test_the_ratio_of_a_further_hospital_is_in_its_interval(spread: float) -> None:
    """Of observed to expected events: a hospital with half of them and one with twice as many are 1.4 apart."""
    rng = np.random.default_rng(11)
    covered = []
    for _ in range(200):
        true = rng.normal(0, spread, HOSPITALS + 1)
        events = np.full(HOSPITALS, 40.0)
        logs = true[:-1] + rng.normal(size=HOSPITALS) * np.sqrt((1 - events / 400) / events)
        head = {"strategy": "s", "model": "global", "seed": 0, "k": 0, "hospital": list(unseen().hospitals)}
        table = pd.DataFrame(head | {"rows": 400, "events": events, "observed_over_expected": np.exp(logs)})
        found = summary([unseen()], table, None).set_index("figure").loc["observed_over_expected"]
        covered.append(found["next_low"] <= np.exp(true[-1]) <= found["next_high"])
    assert 0.93 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize("figure", ["calibration_in_the_large", "calibration_slope"])
def test_so_are_calibration_intercepts_and_slopes(figure: str) -> None:
    rng = np.random.default_rng(12)
    covered = []
    for _ in range(200):
        true = rng.normal(0, 1.2, HOSPITALS + 1)
        values = true[:-1] + rng.normal(size=HOSPITALS) * 0.2
        head = {"strategy": "s", "model": "global", "seed": 0, "k": 0, "hospital": list(unseen().hospitals)}
        ends = {f"{figure}_low": values - 0.392, f"{figure}_high": values + 0.392}
        found = summary([unseen()], pd.DataFrame(head | {figure: values} | ends), None).set_index("figure").loc[figure]
        covered.append(found["next_low"] <= true[-1] <= found["next_high"])
    assert 0.93 <= np.mean(covered) <= 0.99
