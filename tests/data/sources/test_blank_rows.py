"""Rows without any value, as spreadsheets export them, are skipped and counted, whatever carries the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.core.errors import DataError
from raysim.data.records import Records
from raysim.data.sources.frame import stored
from raysim.data.sources.table import Table
from raysim.experiment.judging.reading import read as read_predictions
from raysim.experiment.judging.table import Reading, checked

NAMES = "hospital,died,x,unit"
ROWS = [f"{'ab'[k % 2]},{k // 2 % 2},{k}.5,{'MICU' if k % 3 else 'SICU'}" for k in range(12)]
BLANK: dict[str, tuple[list[str], int, int]] = {
    "below": ([NAMES, *ROWS, "", "", ""], 3, 13),
    "separators below": ([NAMES, *ROWS, ",,,", ",,,"], 2, 13),
    "between blocks": ([NAMES, *ROWS[:5], ",,,", *ROWS[5:]], 1, 6),
    "empty between blocks": ([NAMES, *ROWS[:5], "", "", *ROWS[5:]], 2, 6),
    "under the names": ([NAMES, "", ",,,", *ROWS], 2, 1),
    "blanks": ([NAMES, *ROWS[:4], "   ", " , ,\t,", *ROWS[4:]], 2, 5),
    "quotation marks": ([NAMES, *ROWS[:4], '"","","",""', *ROWS[4:]], 1, 5),
    "too few separators": ([NAMES, *ROWS[:2], ",", *ROWS[2:], ",,"], 2, 3),
    "too many separators": ([NAMES, *ROWS, ",,,,,,"], 1, 13),
    "of all kinds": (["A study", "", NAMES, *ROWS[:5], "", ",,,", " ", ",,,,,", *ROWS[5:], "", ""], 6, 6),
}


def table(path: Path, **keys: Any) -> Records:
    return Table(path=path, silo="hospital", label="died", **keys).read()


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.write_bytes((end.join(lines) + end).encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("case", BLANK)
def test_they_are_skipped_and_said(case: str, end: str, tmp_path: Path) -> None:
    lines, blank, first = BLANK[case]
    plain = table(write(tmp_path / "plain.csv", [NAMES, *ROWS]))
    path = write(tmp_path / "rows.csv", lines, end)
    found = table(path)
    pd.testing.assert_frame_equal(found.features, plain.features)
    assert (found.y.tolist(), found.silo.tolist()) == (plain.y.tolist(), plain.silo.tolist())
    rows, verb = ("row", "is") if blank == 1 else ("rows", "are")
    assert f"'{path}' has {blank} blank {rows} (first: row {first}), which {verb} skipped" in found.warnings
    assert plain.row is None
    assert found.row is not None
    at = [k for k, line in enumerate(lines[lines.index(NAMES) + 1 :]) if line in ROWS]
    assert found.row.tolist() == at


def test_every_carrier_skips_them(tmp_path: Path) -> None:
    frame = pd.read_csv(write(tmp_path / "plain.csv", [NAMES, *ROWS]))
    gaps = frame.reindex([0, 1, 2, 99, *range(3, 12), 98])
    gaps.to_parquet(tmp_path / "rows.parquet", index=False)
    texts = frame.astype(str).reindex(gaps.index).fillna(" ")
    for path in (tmp_path / "rows.parquet", stored(gaps), stored(gaps.astype({"unit": "category"})), stored(texts)):
        found = table(path)
        pd.testing.assert_series_equal(found.features["x"], frame["x"].astype(np.float32))
        assert any("has 2 blank rows (first: row 4), which are skipped" in said for said in found.warnings)
        assert found.row is not None
        assert found.row.tolist() == [0, 1, 2, *range(4, 13)]


def test_a_row_with_one_value_is_not_blank(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [NAMES, "", *ROWS, "a,,,"])
    with pytest.raises(DataError, match=r"data.label: column 'died' has no value in 1 row \(first: row 14\)"):
        table(path)
    numbered = [f"{k},{line}" for k, line in enumerate([*ROWS, ",,,"])]
    path = write(tmp_path / "numbered.csv", ["id," + NAMES, *numbered])
    with pytest.raises(DataError, match=r"data.silo: column 'hospital' has no value in 1 row \(first: row 13\)"):
        table(path)
    with pytest.raises(DataError, match=r"first: row 4\): '<3' \(1\)"):
        table(write(tmp_path / "odd.csv", [NAMES, ROWS[0], "", ",,,", "a,0,<3,MICU", *ROWS]))


def test_files_of_hospitals_count_their_own(tmp_path: Path) -> None:
    names, rows = NAMES.partition(",")[2], [line.partition(",")[2] for line in ROWS]
    write(tmp_path / "a.csv", [names, "", *rows[:6], ",,"])
    write(tmp_path / "b.csv", [names, *rows[6:], ",,"])
    found = Table(path=tmp_path / "*.csv", label="died").read()
    assert found.silo.tolist() == ["a"] * 6 + ["b"] * 6
    assert [said for said in found.warnings if "blank" in said] == [
        f"'{tmp_path}/a.csv' has 2 blank rows (first: row 1), which are skipped",
        f"'{tmp_path}/b.csv' has 1 blank row (first: row 7), which is skipped",
    ]
    assert found.row is not None
    assert found.row.tolist() == [*range(1, 7), *range(8, 14)]
    write(tmp_path / "b.csv", [names, ",,", *rows[6:], ",4.5,MICU"])
    with pytest.raises(DataError, match=r"first: row 8 of 'b.csv'"):
        Table(path=tmp_path / "*.csv", label="died").read()


def test_a_table_to_be_judged_skips_them(tmp_path: Path) -> None:
    names = "hospital,row,label,model,seed,probability"
    rows = [f"{'ab'[k % 2]},{k},{k // 2 % 2},{model},0,.{k % 9 + 1}" for model in ("one", "two") for k in range(8)]
    path = write(tmp_path / "judged.csv", [names, *rows[:3], "", ",,,,,", *rows[3:], ","])
    found, remarks = read_predictions(path)
    assert remarks == (f"'{path}' has 3 blank rows (first: row 4), which are skipped.",)
    assert len(checked(found, Reading(), "one").frame) == 16
    blank = pd.read_csv(write(tmp_path / "plain.csv", [names, *rows])).reindex([0, 99, *range(1, 16)])
    judged = checked(blank, Reading(), "one")
    assert "The data frame has 1 blank row (first: row 2), which is skipped." in judged.warnings
    assert len(judged.frame) == 16

    write(path, [names, *rows[:3], "", ",,,,,", ",3,1,one,0,.4", *rows[4:]])
    with pytest.raises(DataError, match="row 6: 'hospital' is empty"):
        checked(read_predictions(path)[0], Reading(), "one")
