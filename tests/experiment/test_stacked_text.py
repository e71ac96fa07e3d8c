"""The tables of runs, stacked as text, are those of the stacked frame."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from raysim.core.csv_files import write_csv
from raysim.engine.job import Result
from raysim.experiment.stacked_tables import stacked_text


def tables(group: str = "a b") -> list[pd.DataFrame]:
    return [
        pd.DataFrame(
            {
                "group": [group, "=1+1", "x\u2028y"],
                "hospital": ["", "007", "None"],
                "n": pd.array([3, None, k], dtype="Int64"),
                "auroc": [np.nan, 1.0, 1e-7],
            }
        )
        for k in (10, 20)
    ]


def stacked(written: list[pd.DataFrame], label: str, folder: Path) -> tuple[str | None, str]:
    """Return the stacked text of two runs, and what their stacked frame comes to."""
    runs: list[Any] = []
    for seed, table in enumerate(written):
        at = folder / str(seed)
        at.mkdir()
        write_csv(table, at / "t.csv")
        runs.append(SimpleNamespace(label=label, seed=seed, folder=at))
        table.insert(0, "strategy", label)
        table.insert(1, "seed", seed)
    write_csv(pd.concat(written, ignore_index=True), folder / "whole.csv")
    return stacked_text(cast(list[Result], runs), "t.csv"), (folder / "whole.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("label", ["fedavg", "=mu", "-0.5", "pr\u00f6x mu=0.1"])
def test_the_text_is_that_of_the_stacked_frame(label: str, tmp_path: Path) -> None:
    text, whole = stacked(tables(), label, tmp_path)
    assert text == whole


@pytest.mark.parametrize(("label", "group"), [("a,b", "x"), ('a"b', "x"), ("a", "x,y"), ("a", "x\ny"), ("a", "x\ry")])
def test_cells_in_quotes_are_left_to_the_frame(label: str, group: str, tmp_path: Path) -> None:
    assert stacked(tables(group), label, tmp_path)[0] is None


def test_other_columns_and_missing_files_are_left_to_the_frame(tmp_path: Path) -> None:
    one, other = tables()
    assert stacked([one, other.rename(columns={"auroc": "mae"})], "a", tmp_path)[0] is None
    assert stacked_text([cast(Result, SimpleNamespace(label="a", seed=1, folder=tmp_path))], "none.csv") is None
    assert stacked_text([], "t.csv") is None
