"""Reading a user's table, and saying what is wrong with it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet_file
import pytest
from pydantic import ValidationError

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.records import Records
from raysim.data.sources.table import Table
from raysim.data.split import Split
from raysim.data.tables.columns import numbers, texts
from raysim.data.tables.reading import typed

SMALL = """\
hospital,died,age,unit,note
007,0,50,MICU,a
007,1,,SICU,b
12,0,71.5,MICU,
12,1,64,,d
"""


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "stays.csv"
    path.write_text(SMALL)
    return path


def table(path: Path, **fields: Any) -> Table:
    return Table(**({"path": path, "silo": "hospital", "label": "died"} | fields))


def read(tmp_path: Path, text: str, **fields: Any) -> Records:
    path = tmp_path / "own.csv"
    path.write_text(text)
    return table(path, **fields).read()


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"hospital": ["a", "a", "b", "b"], "died": [0, 1, 0, 1], "x": [1.0, 2, 3, 4]} | columns)


def parquet(tmp_path: Path, frame: pd.DataFrame) -> Path:
    path = tmp_path / "stays.parquet"
    frame.to_parquet(path)
    return path


def test_a_csv_as_it_is_read(csv: Path) -> None:
    records = table(csv, drop=["note"]).read()
    # Names stay as they are written.
    assert records.silo.tolist() == ["007", "007", "12", "12"]
    assert (records.y.tolist(), records.classes) == ([0, 1, 0, 1], ("0", "1"))
    assert records.features.columns.tolist() == ["age", "unit"]
    np.testing.assert_array_equal(records.features["age"], np.array([50, np.nan, 71.5, 64], np.float32))
    assert records.features["age"].dtype == np.float32
    assert records.features["unit"].cat.categories.tolist() == ["MICU", "SICU"]
    assert records.features["unit"].cat.codes.tolist() == [0, 1, 0, -1]
    assert records.group is None
    assert records.part is None


def test_gzip_and_parquet_read_the_same(csv: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "stays.csv.gz"
    zipped.write_bytes(gzip.compress(csv.read_bytes()))
    columns = pd.read_csv(csv, dtype={"hospital": str})
    plain, *others = (table(path).read() for path in (csv, zipped, parquet(tmp_path, columns)))
    for other in others:
        pd.testing.assert_frame_equal(plain.features, other.features)
        np.testing.assert_array_equal(plain.silo, other.silo)
        np.testing.assert_array_equal(plain.y, other.y)


def arrow(tmp_path: Path, **columns: pa.Array) -> Path:
    """A Parquet file of what pandas would not write as it is."""
    path = tmp_path / "arrow.parquet"
    base = {"hospital": pa.array(["a", "a", "b", "b"]), "died": pa.array([0, 1, 0, 1]), "x": pa.array([1.0, 2, 3, 4])}
    parquet_file.write_table(pa.table(base | columns), path)
    return path


@pytest.mark.parametrize(
    ("columns", "fields", "said"),
    [
        (
            {"hospital": pa.array([1.0, 2, 2, np.inf])},
            {},
            "data.silo: column 'hospital' holds an infinite value in row 4; correct it",
        ),
        (
            {"hospital": pa.array(np.array([1.0, 2, np.nan, 1]))},
            {},
            "data.silo: column 'hospital' has no value in 1 row (first: row 3); fill in values or remove the rows",
        ),
        (
            {"hospital": pa.array([[1], [2], [1], [2]])},
            {},
            "data.silo: column 'hospital' holds list<",
        ),
        (
            {"hospital": pa.array([b"\xff", b"a", b"b", b"a"])},
            {},
            "data.silo: column 'hospital' holds binary, which is not text; convert it",
        ),
        (
            {"died": pa.array([[0], [1], [0], [1]])},
            {},
            "data.label: column 'died' holds list<",
        ),
        (
            {"died": pa.array([{"at": 0}, {"at": 1}, {"at": 0}, {"at": 1}])},
            {},
            "data.label: column 'died' holds struct<at: int64>, which is not text; convert it",
        ),
        (
            {"pid": pa.array([[1], [2], [1], [2]])},
            {"group": "pid"},
            "data.group or data.split.by: column 'pid' holds list<",
        ),
    ],
)
def test_values_without_a_text(tmp_path: Path, columns: dict[str, Any], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        table(arrow(tmp_path, **columns), **fields).read()
    assert str(caught.value).startswith(said)


def test_large_numbers_have_one_name_in_a_text_and_as_floats(tmp_path: Path) -> None:
    for large, names in (
        ([1e19, 2e19, -1e19, 2e19], ["1" + "0" * 19, "2" + "0" * 19, "-1" + "0" * 19, "2" + "0" * 19]),
        ([1e16, 2.0**62, -0.0, 1e16], ["1" + "0" * 16, "4611686018427387904", "0", "1" + "0" * 16]),
    ):
        pd.DataFrame({"hospital": large, "x": range(4), "died": [0, 1, 1, 0]}).to_csv(tmp_path / "rows.csv")
        for path in (arrow(tmp_path, hospital=pa.array(large)), tmp_path / "rows.csv"):
            assert table(path).read().silo.tolist() == names
        records = table(arrow(tmp_path, died=pa.array(large))).read()
        assert [records.classes[at] for at in records.y] == names


@pytest.mark.parametrize(
    ("labels", "classes", "y"),
    [
        (["yes", "no", "no", "yes"], ("no", "yes"), [1, 0, 0, 1]),
        ([True, False, False, True], ("False", "True"), [1, 0, 0, 1]),
        ([1.0, -1.0, -1.0, 1.0], ("-1", "1"), [1, 0, 0, 1]),
        ([10, 9, 2, 9], ("2", "9", "10"), [2, 1, 0, 1]),
        (["stage 10", "stage 2", "stage 2", "stage 10"], ("stage 2", "stage 10"), [1, 0, 0, 1]),
        (pd.Categorical(["b", "a", "a", "b"]), ("a", "b"), [1, 0, 0, 1]),
    ],
)
def test_classes_are_sorted_naturally(tmp_path: Path, labels: Any, classes: tuple[str, ...], y: list[int]) -> None:
    records = table(parquet(tmp_path, frame(died=labels))).read()
    assert (records.classes, records.y.tolist()) == (classes, y)


def test_positive_names_the_event(tmp_path: Path) -> None:
    path = parquet(tmp_path, frame(died=["case", "control", "control", "case"]))
    records = table(path, positive="case").read()
    assert (records.classes, records.y.tolist()) == (("control", "case"), [1, 0, 0, 1])
    with pytest.raises(DataError, match=r"data.positive: 'cases' is not a class; did you mean 'case'"):
        table(path, positive="cases").read()
    three = parquet(tmp_path, frame(died=["yes", "no", "moved", "no"]))
    refused = (
        r"data.positive: 'yes', but the label has 3 classes \(moved, no, yes\); remove the key, or correct the label"
    )
    with pytest.raises(DataError, match=refused):
        table(three, positive="yes").read()


def test_lists_choose_features(tmp_path: Path) -> None:
    path = parquet(tmp_path, frame(code=[1, 2, 1, 3], free=["1", "2.5", None, "4"], t=["u", "v", "u", "v"]))
    assert table(path).read().features.columns.tolist() == ["x", "code", "free", "t"]
    chosen = table(path, numeric=["free"], categorical=["code"]).read().features
    assert chosen.columns.tolist() == ["code", "free"]
    assert chosen["code"].cat.categories.tolist() == ["1", "2", "3"]
    np.testing.assert_array_equal(chosen["free"], np.array([1, 2.5, np.nan, 4], np.float32))
    # A list left out takes every further column of its kind, and so does one with dots in it.
    assert table(path, numeric=["code"]).read().features.columns.tolist() == ["code", "t"]
    assert table(path, categorical=[]).read().features.columns.tolist() == ["x", "code", "free"]
    further = table(path, numeric=["free", "..."], categorical=["code", "..."]).read()
    assert further.features.columns.tolist() == ["x", "code", "free", "t"]
    assert further.features["code"].cat.categories.tolist() == ["1", "2", "3"]
    # What a list leaves out is said.
    assert table(path, numeric=["code"], categorical=[]).read().notes[1:] == (
        "not used as features, because data.numeric or data.categorical lists other columns: 'x', 'free', 't'",
    )
    assert table(path, hospitals=["b"]).read().silo.tolist() == ["b", "b"]


def test_true_and_false_are_numbers(tmp_path: Path) -> None:
    records = read(tmp_path, "hospital,died,flag\na,0,true\na,1,false\nb,1,\n")
    np.testing.assert_array_equal(records.features["flag"], np.array([1, 0, np.nan], np.float32))


def test_patients(tmp_path: Path) -> None:
    path = parquet(tmp_path, frame(sex=["F", None, "M", "F"], years=[50, 60, None, 70.0]))
    records = table(path, sex="sex", age="years").read()
    assert records.patients["sex"].tolist() == ["F", "unknown", "M", "F"]
    np.testing.assert_array_equal(records.patients["age"], [50, 60, np.nan, 70])
    assert "years" in records.features


def test_columns_of_the_split_are_no_features(tmp_path: Path) -> None:
    n = 40
    columns = pd.DataFrame(
        {
            "hospital": np.repeat(["a", "b"], n // 2),
            "died": np.tile([0, 1], n // 2),
            "x": np.arange(n),
            "pid": np.arange(n) // 4,
            "part": np.where(np.arange(n) % 4 == 3, "test", np.where(np.arange(n) % 4 == 2, "validation", "train")),
        }
    )
    source = table(parquet(tmp_path, columns))
    by_group = build(source, Split(by="pid"), "none", seed=0)
    assert by_group.features == ("x", "part=test", "part=train", "part=validation")
    pid_of = by_group.X[:, 0] // 4
    for h in range(2):
        train, test = pid_of[by_group.rows(h, "train")], pid_of[by_group.rows(h, "test")]
        assert (len(train), len(test)) == (16, 4)
        assert not set(train) & set(test)
    by_part = build(table(parquet(tmp_path, columns), group="pid"), Split(column="part"), "none", seed=0)
    assert by_part.features == ("x",)
    assert [by_part.sizes(part).tolist() for part in ("train", "validation", "test")] == [[10, 10], [5, 5], [5, 5]]
    assert set(by_part.X[by_part.rows(0, "test"), 0] % 4) == {3.0}
    # group is the patient: the default where the table has one, and split.by: patient.
    default, patient = (build(table(source.path, group="pid"), Split(by=by), "none", 0) for by in (None, "patient"))
    np.testing.assert_array_equal(default.X, patient.X)
    np.testing.assert_array_equal(default.X, by_group.X)


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        (SMALL, {"label": "dead"}, r"data.label: no column 'dead' in '.*own.csv'; did you mean 'died'\?"),
        (SMALL, {"silo": "Hospital"}, r"data.silo: no column 'Hospital' .*did you mean 'hospital'\?"),
        (SMALL, {"drop": ["nothing"]}, "data.drop: no column 'nothing'"),
        (SMALL, {"group": "pid"}, "data.group or data.split.by: no column 'pid' .*known: age"),
        (SMALL, {"hospitals": ["12", "13"]}, "data.hospitals: '13' has no rows; "),
        (SMALL, {"numeric": ["unit"]}, "data.numeric: column 'unit' holds 'MICU' in row 1, not a number; correct it"),
        (SMALL, {"numeric": [], "categorical": []}, "data.path: '.*' has no feature column"),
        (SMALL, {"part": "unit"}, "data.split.column: column 'unit' has no value in 1 row .first: row 4."),
        (SMALL, {"part": "died"}, "data.split.column: column 'died' holds '0' in row 1; write train, validation, test"),
        ("", {}, "data.path: '.*own.csv' is empty; it needs a line of column names and rows"),
        ("hospital,died,x\n", {}, "data.path: '.*own.csv' has no rows"),
        ("hospital,died,x\na,0,1\nb,,2\n", {}, "data.label: column 'died' has no value in 1 row .first: row 2.*fill"),
        ("hospital,died,x\na,0,1\nb,nan,2\n", {}, "data.label: column 'died' has no value in 1 row"),
        (
            "hospital,died,x\na,0,1\nb,inf,2\n",
            {},
            "data.label: column 'died' holds an infinite value in row 2; correct",
        ),
        ("hospital,died,x\na,0,1\nb,2.5,2\n", {}, "data.label: column 'died' holds 2.5 in row 2; classes are text"),
        ("hospital,died,x\n,0,1\nb,1,2\n", {}, "data.silo: column 'hospital' has no value in 1 row .first: row 1."),
        ("hospital,died,x\na,0,1\nb,1,-inf\n", {}, "data.numeric: column 'x' holds -inf in row 2, not a finite"),
        ("hospital,died,x\na,0,1\nb,1,1e39\n", {}, "data.numeric: column 'x' holds 1e.39 in row 2, not a finite"),
        (
            "hospital,died,x\na,0,1\n\nb,1\n",
            {},
            "'.*own.csv' has 2 fields in line 4, but 3 in the first line; correct line 4",
        ),
        ("hospital,died,x\na,0,1\nb,1,2,3\n", {}, "has 4 fields in line 3, but 3 in the first line"),
        ("hospital,died,died\na,0,1\n", {}, "two columns named 'died'; rename one"),
        (
            "hospital,died,day\na,0,2020-01-01\n",
            {},
            "column 'day' holds dates or times in 1 row .first: row 1.*drop it .data.drop. or convert it",
        ),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, text, **fields)
    assert "\n" not in str(caught.value)


def test_too_many_texts_or_classes(tmp_path: Path) -> None:
    n = 101
    rows = "".join(f"a,{i % 2},text {i}\n" for i in range(n))
    with pytest.raises(DataError, match=r"text column 'x' holds 101 different values, more than 100: drop it"):
        read(tmp_path, "hospital,died,x\n" + rows)
    kept = read(tmp_path, "hospital,died,x\n" + rows, categorical=["x"])
    assert len(kept.features["x"].cat.categories) == n
    many = "".join(f"a,{i},1\n" for i in range(1001))
    with pytest.raises(DataError, match=r"data.label: column 'died' holds 1,001 different values"):
        read(tmp_path, "hospital,died,x\n" + many)


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_text(SMALL)
    with pytest.raises(DataError, match=r"data.path: '.*stay.csv' does not exist; did you mean 'stays.csv'\?"):
        table(tmp_path / "stay.csv").read()
    with pytest.raises(DataError, match=r"is a folder; name a .csv"):
        table(tmp_path).read()
    zipped = tmp_path / "stays.csv.gz"
    whole = gzip.compress((SMALL * 2000).encode())
    for damaged in (b"not gzip", whole[:-100], whole[:50] + b"\0\0\0\0" + whole[54:]):
        zipped.write_bytes(damaged)
        with pytest.raises(
            DataError, match=r"data.path: '.*gz' is (not a valid|a corrupt) gzip file.*; copy or compress it again"
        ):
            table(zipped).read()
    (tmp_path / "stays.parquet").write_text("PAR1 no")
    with pytest.raises(DataError, match=r"data.path: '.*parquet' is not readable Parquet .*; write it again"):
        table(tmp_path / "stays.parquet").read()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"label": "hospital"}, "label: 'hospital' is the silo column too"),
        (
            {"numeric": ["died"]},
            "numeric: 'died' is the silo, label, group, part or a dropped column; remove it from numeric",
        ),
        ({"numeric": ["x"], "categorical": ["x"]}, "categorical: 'x' is in numeric too"),
        ({"silos": "x"}, "Extra inputs"),
    ],
)
def test_bad_fields(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        table(Path("stays.csv"), **fields)


def test_the_split_may_not_name_silo_or_label(csv: Path) -> None:
    with pytest.raises(DataError, match=r"data.split.by: 'hospital' is the silo column; name another"):
        build(table(csv), Split(by="hospital"), "standard", 0)
    with pytest.raises(DataError, match=r"data.group or data.split.by: no column 'patient'"):
        build(table(csv), Split(by="patient"), "standard", 0)
    with pytest.raises(DataError, match=r"data.split.column: no column 'prt'"):
        build(table(csv), Split(column="prt"), "standard", 0)


def test_labels_of_the_rows_of_a_data_frame_are_no_feature(tmp_path: Path) -> None:
    """pandas writes those of a frame of which rows have been taken beside its columns."""
    taken = frame(__index_level_9__x=[5.0, 6, 7, 8])[lambda each: each["x"] != 2]
    assert "__index_level_0__" in parquet_file.read_table(parquet(tmp_path, taken)).column_names
    assert list(table(parquet(tmp_path, taken)).read().features) == ["x", "__index_level_9__x"]


def test_whole_numbers_that_no_float_holds_are_rounded(tmp_path):
    """Of a Parquet file, as those of a CSV."""
    frame = pd.DataFrame({"x": np.array([2**64 - 1, 2**53 + 1, 3], np.uint64)})
    frame.to_parquet(tmp_path / "t.parquet")
    rounded = numbers(parquet_file.read_table(tmp_path / "t.parquet"), "x", "data.numeric")
    assert rounded.tolist() == [2.0**64, 2.0**53, 3.0]


@pytest.mark.parametrize("sign", ["", "-"])
def test_whole_numbers_of_a_csv_are_distinct_beyond_what_a_float_holds(sign: str) -> None:
    """Patients of neighbouring numbers are two, whatever their sign."""
    written = [f"{sign}9007199254740993", f"{sign}9007199254740992", "3"]
    column, finding = typed(pa.chunked_array([written]))
    assert (column.to_pylist(), finding) == ([int(text) for text in written], None)


def test_rows_of_one_text_share_it() -> None:
    chunks = pa.chunked_array([["general", None, "mercy"], [], ["mercy", "general"]], pa.string())
    values = texts(pa.table({"c": chunks}), "c", "data.sex", unknown="unknown")
    assert values.dtype == object
    assert values.tolist() == ["general", "unknown", "mercy", "mercy", "general"]
    assert values[0] is values[4]
    assert values[2] is values[3]
