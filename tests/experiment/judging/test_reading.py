"""A file of predictions is read as any other table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from raysim.core.csv_files import write_csv
from raysim.core.errors import DataError
from raysim.experiment.judging.reading import read
from raysim.experiment.judging.table import Reading, checked

ROWS = pd.DataFrame(
    {
        "hospital": ["Zürich", "NA", "007", "-3"],
        "row": [0, 1, 0, 7],
        "label": [0, 1, 1, 0],
        "model": ["null", "gbm", "null", "gbm"],
        "seed": 0,
        "probability": [0.25, 0.1234567890123, None, 0.5],
    }
)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({}, []),
        ({"sep": ";", "decimal": ","}, ["is read with semicolons between columns and a decimal comma."]),
        ({"decimal": ","}, ["is read with a decimal comma."]),
        ({"sep": "\t", "encoding": "utf-16"}, ["is read with tabs between columns and the encoding utf-16."]),
        ({"encoding": "cp1252"}, ["is read with the encoding cp1252."]),
    ],
)
def test_however_it_is_written(written: dict[str, str], said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    ROWS.to_csv(path, index=False, **written)
    frame, remarks = read(path)
    pd.testing.assert_frame_equal(frame, ROWS.astype({"label": str}), check_dtype=False)
    assert frame["row"].dtype == frame["seed"].dtype == "int64"
    assert list(remarks) == [f"'{path}' {remark}" for remark in said]


def test_a_comparison_s_own_table_and_parquet(tmp_path: Path) -> None:
    write_csv(ROWS, tmp_path / "p.csv")  # which protects '-3' from spreadsheets
    assert read(tmp_path / "p.csv")[0]["hospital"].tolist() == ROWS["hospital"].tolist()
    ROWS.to_parquet(tmp_path / "p.parquet")
    pd.testing.assert_frame_equal(read(tmp_path / "p.parquet")[0], ROWS)


@pytest.mark.parametrize("hospitals", [["1.0", "2.0", "1.0", "3"], [1.0, 2.5, 2, 1], [1.0, "B", 2.0, "B"]])
def test_hospitals_are_named_as_in_any_table(hospitals: list[Any], tmp_path: Path) -> None:
    rows = ROWS.assign(hospital=hospitals, row=range(4), label=[0, 1, 1, 0], model="gbm")
    rows.to_csv(tmp_path / "p.csv", index=False)
    with suppress(pa.ArrowException):  # Parquet has no column of numbers and texts
        rows.to_parquet(tmp_path / "p.parquet")
    tables = [rows, *(read(path)[0] for path in tmp_path.glob("p.*"))]
    for table in tables:
        names = checked(table, Reading(), "gbm").frame["hospital"].tolist()
        assert names == [{"1.0": "1", "2.0": "2"}.get(str(each), str(each)) for each in hospitals]


@pytest.mark.parametrize(
    "sexes", [[1, 2, None, 1], [True, False, None, True], ["01", "1", "NA", "01"], ["F", "M", "", "F"]]
)
def test_groups_are_names_and_ages_are_numbers(sexes: list[Any], tmp_path: Path) -> None:
    rows = ROWS.assign(label=[0, 1, 1, 0], model="gbm", group_sex=sexes, group_age=[63, 7.5, None, 7.5])
    rows.to_csv(tmp_path / "p.csv", index=False)
    rows.to_parquet(tmp_path / "p.parquet")
    texts = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    tables = [rows, texts, rows.convert_dtypes(), rows.astype({"group_sex": "category"})]
    for table in [*tables, *(read(path)[0] for path in tmp_path.glob("p.*"))]:
        found = checked(table, Reading(), "gbm").frame
        known = [str(sexes[0]), str(sexes[1]), None, str(sexes[0])]
        assert [None if pd.isna(sex) else sex for sex in found["group_sex"]] == known
        assert found["group_age"].tolist()[:2] == [63, 7.5]
        assert np.isnan(found["group_age"].to_numpy()[2])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.xlsx", b"PK\x03\x04", "predictions: .* is a corrupt zip archive"),
        ("p.csv", b"", "predictions: .* is empty; it needs a line of column names"),
        (
            "p.csv",
            b"hospital,row\nnorth,1,2\n",
            "predictions: .* has 3 fields in line 2, but 2 in the first line; correct line 2",
        ),
    ],
)
def test_what_is_no_table(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read(tmp_path / name)


@pytest.mark.parametrize("ids", [[str(2**63 + 7 * k) for k in range(len(ROWS))], ["007", "7", "07", "0"]])
def test_different_identifiers_stay_different(ids: list[str], tmp_path: Path) -> None:
    for name in ("row", "patient"):
        ROWS.assign(**{name: ids}).to_csv(tmp_path / "p.csv", index=False)
        assert read(tmp_path / "p.csv")[0][name].astype(str).tolist() == ids
    ROWS.assign(patient="").to_csv(tmp_path / "p.csv", index=False)
    assert read(tmp_path / "p.csv")[0]["patient"].isna().all()
