"""Blank rows of a table are not scored, by a file, a frame, or an exported ``prepare.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raysim
from raysim.serving import prepare
from raysim.serving.predictor import Predictor
from tests.serving.runs import folder_of

NAMES = "hospital,died,x,unit"
ROWS = [f"{'ab'[k % 2]},{k // 2 % 2},{k}.5,{'MICU' if k % 3 else 'SICU'}" for k in range(12)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_blank_rows_are_not_scored(place: Path, tmp_path: Path, logged: list[str]) -> None:
    plain, path = write(tmp_path / "plain.csv", [NAMES, *ROWS * 3]), tmp_path / "new.csv"
    data = {"source": "table", "path": str(plain), "silo": "hospital", "label": "died"}
    run = folder_of(place, {"name": "fedavg", "label": "blank"}, data=data)
    predictor = Predictor.open(run)
    scores = predictor.predict(plain)["probability"].to_numpy()[:12]
    write(path, [NAMES, *ROWS[:5], "", ",,,", *ROWS[5:], "", ",,,,,"])
    np.testing.assert_array_equal(predictor.predict(path)["probability"], scores)
    assert f"table: '{path}' has 4 blank rows (first: row 6), which are skipped" in logged

    frame = pd.read_csv(plain).head(12).reindex([0, 1, 99, *range(2, 12)])
    logged.clear()
    scored = raysim.load(run).predict(frame)
    assert scored.index.tolist() == list(range(12))
    np.testing.assert_array_equal(scored, scores)
    assert "table: the data frame has 1 blank row (first: row 3), which is skipped" in logged

    write(path, [NAMES, *ROWS[:5], "", ",,,", *ROWS[5:], "  ", ",,,,,,,"])
    namespace: dict[str, Any] = {"__name__": "prepare", "__file__": str(run / "prepare.py")}
    exec(Path(prepare.__file__).read_text(), namespace)
    namespace["_described"] = lambda: predictor.preprocessing.tree()
    with pytest.warns(UserWarning, match=r"^4 blank rows are skipped \(first: row 6\)$"):
        read = namespace["read"](str(path))
    assert read.index.tolist() == [*range(5), *range(7, 14)]
    X = namespace["features"](read)
    np.testing.assert_array_equal(X, namespace["features"](namespace["read"](str(plain)))[:12])
    # A row with a value too many shifts nothing in silence.
    write(path, [NAMES, *(f"{row}," for row in ROWS)])
    with pytest.raises(ValueError, match="line 2 has 5 fields, but the first line has 4; correct it"):
        namespace["read"](str(path))
