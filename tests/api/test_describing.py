"""How ``raysim describe`` ends: with a verdict of a few lines."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

import raysim

SITES = 4


def table(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = 60 * SITES
    features = {"site": np.repeat([f"site {k}" for k in range(SITES)], 60), "died": rng.random(rows) < 0.3}
    return pd.DataFrame(features | {"age": rng.normal(60, 10, rows).round(1)} | columns)


def described(rows: pd.DataFrame) -> raysim.api.describing.Description:
    return raysim.describe({"data": {"silo": "site", "label": "died"}}, data=rows)


def test_innocent_data_are_ready_to_train() -> None:
    description = described(table())
    ready, judged, unlike = description.verdict
    assert ready == "ready to train: nothing unusual was found"
    assert judged == "accuracy can be judged at 4 of 4 hospitals"
    assert unlike.startswith("hospitals differ: their labels little (PSI below 0.1), the most different feature 'age' ")
    text = io.StringIO()
    description.show(Console(file=text, width=160))
    printed = text.getvalue().splitlines()
    assert printed[-4:] == ["verdict", *description.verdict]
    assert repr(description) == "<federation: 4 hospitals, 240 rows, 1 features>, seed 42: " + ready


def test_what_is_odd_comes_first() -> None:
    rng = np.random.default_rng(1)
    glucose = rng.normal(6, 0.8, 60 * SITES)
    glucose[:60] *= 18.02
    rows = table(glucose=glucose, lactate=np.where(np.arange(240) < 60, np.nan, rng.normal(2, 1, 240)))
    rows.loc[60:, "died"] = False  # and hospitals without an event
    rows.loc[60::7, "died"] = rows["site"].iloc[60::7] == "site 1"
    description = described(rows)
    assert description.verdict[0] == "look at the data before you train: 1 warning and 1 question above"
    assert description.verdict[1] == (
        "accuracy can be judged at 2 of 4 hospitals; with fewer than 3 a comparison recommends nothing"
    )
    assert [(each.feature, each.level) for each in description.summary.quality] == [
        ("glucose", "warn"),
        ("lactate", "ask"),
    ]


def test_a_run_begins_with_it_but_not_under_privacy(logged: list[str], tmp_path: Any) -> None:
    rows = table(died=np.arange(60 * SITES) % 10 > 0)
    config = {"data": {"silo": "site", "label": "died"}, "training": {"rounds": 1}, "strategy": "fedavg"}
    raysim.run(config, data=rows, in_process=True, out=tmp_path / "open")
    assert "the event 'True' is the commoner class (90.0% of rows)" in "\n".join(logged)
    logged.clear()
    private = {
        "privacy": {"epsilon": 5, "unit": "hospital"},
        "selection": "all",
        "data.preprocessing": "declared",
        "data.ranges": {"age": [0, 120]},
    }
    raysim.run(config, data=rows, overrides=private, in_process=True, out=tmp_path / "private")
    assert "commoner" not in "\n".join(logged)
