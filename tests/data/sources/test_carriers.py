"""The same values give the same kinds, labels and features, whatever carries them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from raysim.core.errors import DataError
from raysim.data.fitted import Categorical, Preprocessing
from raysim.data.new_rows import read_new_rows
from raysim.data.preprocessing import prepare
from raysim.data.records import Records
from raysim.data.sources.frame import stored
from raysim.data.sources.table import Table
from raysim.serving import prepare as prepare_file

ROWS = 12
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "whole numbers": st.integers(-50, 50),
    # Whole numbers beside missing ones become floats, which pandas and Arrow write in different ways.
    "large numbers": st.integers(-(2**63), 2**63 - 1),
    "neighbours": st.integers(2**53 - 2, 2**53 + 4),
    "beyond int64": st.integers(2**63 - 2, 2**64 - 1),
    "numbers": st.floats(-1e6, 1e6, allow_nan=False),
    "zeros": st.sampled_from([0.0, -0.0, 0.5]),
    "powers": st.sampled_from([1e15, 1e16, 2.0**60, 1e22, 1e23, 1e-7, 3.0]),
    "numbers of single precision": st.floats(-1e6, 1e6, allow_nan=False, width=32),
    "decimals": st.decimals(-1000, 1000, places=2),
    "numbers and texts": st.sampled_from([1, 2.5, 2.0, "3", 1e16, -0.0]),
    "truth and numbers": st.sampled_from([True, 1, 0, False, 2]),
    "truth": st.booleans(),
    "texts": st.sampled_from(["a", "b", "B", "None", "x y", "ä"]),
    "what is missing": st.sampled_from(["NA", "", " ", "null", "a"]),
    "numbers as texts": st.sampled_from(["1", "2", "2.0", "-3.5", "1e2", "-0", "0", "+1", " 1"]),
    "zeros before numbers": st.sampled_from(["01", "1.0", "1", "1.00"]),
    "truth as texts": st.sampled_from(["true", "False", "TRUE", "1", "0", "1.0", "0.0"]),
    "codes": st.sampled_from(["007", "7", "010", "10"]),
    "thousands": st.sampled_from(["1,234.5", "12", "1'000", "−7", "2,345"]),
    "other numbers": st.sampled_from(["1:40", "120/80", "5 %", "10-20", "Jan 5, 2020", "3 days 04:00:00"]),
    "blanks around": st.sampled_from(["\x1f5", "\u00a01", "1\u2003", "5", "\x0b2", " 3"]),
    "signs of files": st.sampled_from(['a"b', "a;b", "a\nb", "a,b", "a\tb", "'x", '""', "é", "a"]),
    "commas": st.sampled_from(["1,5", "2,25", "3", "-0,5", "1e-3"]),
    "percent": st.sampled_from(["5%", "5 %", "100%", "12.5%", "7"]),
    "marks in any case": st.sampled_from(["na", "Na", "NAN", "N/a", "NaT", "<NA>", "None", "none", ".", "-", "1", "2"]),
    "powers as texts": st.sampled_from(["1e5", "1E5", "1e+05", "1.e3", ".5", "5.", "+.5", "1e-400"]),
    "infinite": st.sampled_from([1.0, float("inf"), -2.5]),
    "formulas": st.sampled_from(['="007"', '="1"', "=1+1", "1", '="a""b"', '=""']),
    "diseases": st.sampled_from(["I21.0", "E11", "J18"]),
    "anything": st.sampled_from(["1", "2.5", "3", "<0.3", "?", "5 mg", "n.d.", "a", "true", "2020-01-02", "V45"]),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table of typed columns, and keys."""
    columns: dict[str, Sequence[Any]] = {}
    names = [f"x{k}" for k in range(draw(st.integers(1, 4)))]
    for name in names:
        values = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        columns[name] = draw(st.lists(st.one_of(values, st.none()), min_size=ROWS, max_size=ROWS))
    hospitals: list[Any] = draw(
        st.sampled_from([["a", "b"], [1.0, 2.0], [7, 10], ["007", "7"], [True, False], ["1.0", "B"]])
    )
    label: list[Any] = draw(
        st.sampled_from([["no", "yes"], [0, 1], [False, True], [1.0, 2.0], ["1", "2"], ["true", "false"]])
    )
    frame = pd.DataFrame(
        {"hospital": hospitals * (ROWS // 2), "died": (label * ROWS)[:ROWS], "n": range(ROWS), **columns}
    )
    keys: dict[str, Any] = {}
    if draw(st.booleans()):
        keys["censored"] = {"<": "half"}
    if draw(st.booleans()):
        keys["na_values"] = {names[0]: draw(st.sampled_from([["?", "n.d."], [3, -50], ["2", "a"]]))}
    if draw(st.booleans()):
        keys["categorical"] = [names[-1], "..."]
    return frame, keys


def read(path: Path, keys: dict[str, Any]) -> Records | str:
    """The records, or what is said of a table that is refused."""
    try:
        return Table(path=path, silo="hospital", label="died", **keys).read()
    except DataError as error:
        return str(error)


def exported_from(fitted: Preprocessing) -> dict[str, Any]:
    """The functions of an exported ``prepare.py``."""
    functions: dict[str, Any] = {"__name__": "prepare", "__file__": prepare_file.__file__}
    exec(Path(prepare_file.__file__).read_text(), functions)
    functions["_described"] = lambda: json.loads(json.dumps(fitted.tree()))
    return functions


@settings(max_examples=6, deadline=None)
@given(made=tables())
def test_carriers_agree(made: tuple[pd.DataFrame, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    frame, keys = made
    folder = tmp_path_factory.mktemp("carriers")
    frame.to_csv(folder / "rows.csv", index=False)
    texts = pd.read_csv(folder / "rows.csv", dtype=str, keep_default_na=False)
    carriers: dict[str, Path] = {}
    forms: dict[str, Any] = {"b.csv": {"encoding": "utf-8-sig"}, "q.csv": {"quoting": csv.QUOTE_ALL}, "z.csv.gz": {}}
    for name, form in forms.items():
        texts.to_csv(folder / name, index=False, **form)
        carriers[name] = folder / name
    typed = [frame, frame.convert_dtypes(), texts]
    with suppress(pa.ArrowException):
        typed.append(frame.convert_dtypes(dtype_backend="pyarrow"))
    with suppress(pa.ArrowException):  # Parquet has no column of numbers and texts
        frame.to_parquet(folder / "typed.parquet")
        carriers["a Parquet file"] = folder / "typed.parquet"
        typed.append(frame.astype({name: "category" for name in map(str, frame) if name.startswith("x")}))
    texts.to_parquet(folder / "texts.parquet")
    carriers |= {
        "a Parquet file of texts": folder / "texts.parquet",
        "a frame": stored(frame),
        "a frame of objects": stored(frame.astype(object)),
        "a frame of pandas types": stored(frame.convert_dtypes()),
        "a frame of texts": stored(texts),
    }
    expected = read(folder / "rows.csv", keys)
    for carrier, path in carriers.items():
        got = read(path, keys)
        if isinstance(expected, str):
            named = "the data frame" if carrier.startswith("a frame") else f"'{path}'"
            assert got == expected.replace(f"'{folder / 'rows.csv'}'", named), carrier
            continue
        assert isinstance(got, Records), (carrier, got)
        pd.testing.assert_frame_equal(got.features, expected.features, obj=carrier)
        assert (got.classes, got.y.tolist()) == (expected.classes, expected.y.tolist()), carrier
        assert got.silo.tolist() == expected.silo.tolist(), carrier
        named = "the data frame" if carrier.startswith("a frame") else f"'{path}'"
        said = tuple(text.replace(f"'{folder / 'rows.csv'}'", named) for text in expected.warnings)
        assert got.warnings == said, carrier
    if isinstance(expected, Records):
        prepared = prepare(expected.features, np.arange(ROWS), np.ones(ROWS, np.bool_), "standard", 2)
        fitted = prepared.preprocessing
        exported = exported_from(replace(fitted, reading=expected.reading))
        np.testing.assert_array_equal(exported["features"](exported["read"](str(folder / "rows.csv"))), prepared.X)
        for rows in (folder / "rows.csv", *carriers.values(), *typed):
            columns = read_new_rows(rows, replace(fitted, reading=expected.reading)).columns
            np.testing.assert_array_equal(fitted.transform(columns)[0], prepared.X)
            if isinstance(rows, pd.DataFrame):
                np.testing.assert_array_equal(exported["features"](rows), prepared.X)


@pytest.mark.parametrize(
    ("values", "keys", "said"),
    [
        (["1", "2", "<0.3", "V45"], {"censored": {"<": "half"}}, "other marks in 2 rows (first: row 4): 'V45' (2)"),
        (["5 mg", "7 mg", "low", "low"], {"units": {"x": ["mg"]}}, "other marks in 4 rows (first: row 3): 'low' (4)"),
        (["2,5", "3,5", "4,5", "V45"], {"decimal": ","}, "numbers in 0 rows and other marks in 8 rows"),
        (["1'000", "2'000", "3'000", "V45"], {}, "numbers in 0 rows and other marks in 8 rows"),
    ],
)
def test_a_text_that_was_changed_into_a_number_is_no_category(
    tmp_path: Path, values: list[str], keys: dict[str, Any], said: str
) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": range(8), "x": values * 2})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for path in (tmp_path / "rows.csv", stored(frame)):
        assert said in str(read(path, keys))


def test_decimals_of_a_parquet_file_tell_the_decimal_mark_as_texts_do(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "x": ["2,345", "12"] * 4})
    frame["price"] = [Decimal("0.00"), Decimal("1.25")] * 4
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for path in (tmp_path / "rows.csv", tmp_path / "rows.parquet", stored(frame)):
        assert "and column 'price' has numbers with a point" in str(read(path, {}))


def test_a_unit_that_no_value_has_changes_nothing(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": range(8), "x": ["low", "high"] * 4})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    records = read(tmp_path / "rows.csv", {"units": {"x": ["mg"]}})
    assert isinstance(records, Records)
    assert records.features["x"].cat.categories.tolist() == ["high", "low"]


def test_points_before_a_unit_separate_thousands_beside_decimal_commas(tmp_path: Path) -> None:
    ck = ["1.234 U/l", "5,5 U/l", "<2.345,5 U/l", "1.234"]
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": ["1,5", "2,5"] * 4, "ck": ck * 2})
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    keys: dict[str, Any] = {"units": {"ck": ["U/l"]}, "censored": {"<": "limit"}}
    records = read(tmp_path / "rows.csv", keys)
    assert isinstance(records, Records)
    assert records.features["ck"].tolist() == [1234, 5.5, 2345.5, 1234] * 2
    made = prepare(records.features, np.arange(8), np.ones(8, np.bool_), "standard", 2)
    fitted = replace(made.preprocessing, reading=records.reading)
    for rows in (tmp_path / "rows.csv", frame):
        np.testing.assert_array_equal(fitted.transform(read_new_rows(rows, fitted).columns)[0], made.X)
    np.testing.assert_array_equal(exported_from(fitted)["features"](frame), made.X)
    frame["ck"] = ["7.25 U/l", *ck[1:]] * 2
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    assert "other marks in 2 rows (first: row 1): '7.25 U/l' (2)" in str(read(tmp_path / "rows.csv", keys))
    frame["ck"] = ["7.25 U/l", "8.5"] * 4
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    alone = read(tmp_path / "rows.csv", keys)
    assert isinstance(alone, Records)
    assert alone.features["ck"].tolist() == [7.25, 8.5] * 4


def test_texts_asked_for_as_categories_are_not_changed(tmp_path: Path) -> None:
    x = ["2,5", "3,5", "<0,3", "V45"]
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": range(8), "x": x * 2})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    keys = {"decimal": ",", "censored": {"<": "half"}, "categorical": ["x"]}
    records = read(tmp_path / "rows.csv", keys)
    assert isinstance(records, Records)
    assert records.features["x"].cat.categories.tolist() == sorted(x)


@pytest.mark.parametrize("x", [["<0,3", "negative"], ["<0,3", "<0,5"], ["<1'000", ">1'000"], ["−5 to 0", "0 to 5"]])
def test_categories_keep_their_commas_separators_and_minus_signs(x: list[str], tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": ["1,5", "2,5"] * 4, "x": x * 4})
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    frame.assign(n=1.5, x=None).to_csv(tmp_path / "other.csv", index=False)
    for path in (tmp_path / "rows.csv", tmp_path / "*.csv"):
        records = read(path, {})
        assert isinstance(records, Records)
        assert sorted(records.features["x"].cat.categories) == sorted(x)


def test_codes_keep_their_points_beside_decimal_commas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": ["1,5", "2,5"] * 4})
    frame["x"] = ["250.00", "401.9", "I21.0", "V45"] * 2
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    records = read(tmp_path / "rows.csv", {})
    assert isinstance(records, Records)
    assert records.features["n"].tolist() == [1.5, 2.5] * 4
    assert records.features["x"].cat.categories.tolist() == sorted(frame["x"].unique())


def test_whole_numbers_do_not_decide_the_decimal_mark(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [1.0, 2.0] * 4, "x": ["2,345", "12"] * 4})
    frame["stay"] = [1.0, None] * 4
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for path in (tmp_path / "rows.csv", stored(frame), stored(frame.convert_dtypes())):
        assert "always with three digits after it, as between thousands" in str(read(path, {}))


def test_an_explicit_category_stays_one(tmp_path: Path) -> None:
    plain = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "code": [1, 2, 2, None, 1, 2, 1, 1]})
    plain["text"] = ["1", "2"] * 4
    explicit = plain.astype({"code": "category", "text": "category"})
    explicit.to_parquet(tmp_path / "rows.parquet")
    for path in (tmp_path / "rows.parquet", stored(explicit)):
        records = read(path, {})
        assert isinstance(records, Records)
        assert records.features["code"].cat.categories.tolist() == ["1", "2"]
        assert records.features["code"].isna().sum() == 1
        assert records.features["text"].cat.categories.tolist() == ["1", "2"]
    records = read(stored(plain), {})
    assert isinstance(records, Records)
    assert set(records.features.dtypes) == {np.dtype(np.float32)}


def test_numbers_of_hospitals_do_not_decide_the_decimal_mark(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": [1.0, 2.0] * 4, "died": [0, 1] * 4, "x": ["2,345", "12"] * 4})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for path in (tmp_path / "rows.csv", stored(frame)):
        said = read(path, {})
        assert isinstance(said, str)
        assert "always with three digits after it, as between thousands" in said


def test_an_explicit_category_of_many_values_is_named(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 60, "died": [0, 1] * 60, "ward": [f"w{k % 60}" for k in range(120)]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    said = "column 'ward' has 60 categories, each a separate feature; list it in data.categorical ([ward, ...]) if this"
    for path in (tmp_path / "rows.csv", stored(frame.astype({"ward": "category"}))):
        records = read(path, {})
        assert isinstance(records, Records)
        assert any(warning.startswith(said) for warning in records.warnings)


def test_dates_are_refused_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "x": range(8)})
    frame["admitted"] = pd.to_datetime([None, *["2020-01-02"] * 7])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    said = "data.path: column 'admitted' holds dates or times in 7 rows (first: row 2), neither numbers nor text; drop"
    for path in (tmp_path / "rows.csv", stored(frame)):
        assert str(read(path, {})).startswith(said)


def test_numbers_are_the_same_categories_however_they_are_written(tmp_path: Path) -> None:
    values = [0.0, -0.0, 1e16, 2.0**60, 1.5, 0.1, 1e23, 1e-9]
    cases = {
        "0": ["0", "-0", "0.0", "-0.0", "+0", "0e5"],
        "1.5": ["1.5", "1.50", "+1.5", "15e-1", " 1.5"],
        "10000000000000000": ["10000000000000000", "1e16", "1e+16", "10000000000000000.0"],
        "1152921504606846976": ["1152921504606846976", "1.152921504606847e+18"],
        "0.1": ["0.1", ".1", "1e-1"],
        "1e+23": ["1e23", "1e+23", "100000000000000000000000"],
        "1e-9": ["1e-09", "0.000000001"],
    }
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "x": values})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for path in (tmp_path / "rows.csv", stored(frame)):
        records = read(path, {"categorical": ["x"]})
        assert isinstance(records, Records)
        assert set(records.features["x"].cat.categories) == set(cases)
    column = Categorical("x", tuple(cases))
    for at, written in enumerate(cases.values()):
        assert column.positions(written).tolist() == [at] * len(written)
    assert column.positions(["1_0", "", "x", "1e999999999999999999999"]).tolist() == [len(cases)] * 4

    neighbours = Categorical("x", (str(2**53), str(2**53 + 1)))  # the same number as float64
    assert neighbours.compared_as == "digits"
    assert neighbours.positions([str(2**53), f"{2**53 + 1}.0", "9007199254740994"]).tolist() == [0, 1, 2]
    assert Categorical("x", ("0", "-0")).compared_as == "text"


def test_typed_dates_are_no_categories(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "day": pd.to_datetime(["2020-01-02"] * 8)})
    said = read(stored(frame), {"categorical": ["day"]})
    assert isinstance(said, str)
    assert said.startswith("data.path: column 'day' holds timestamp[")
    assert "convert it to text" in said
    frame.to_csv(tmp_path / "rows.csv", index=False)
    records = read(tmp_path / "rows.csv", {"categorical": ["day"]})
    assert isinstance(records, Records)
    fitted = prepare(records.features, np.arange(8), np.ones(8, np.bool_), "standard", 2).preprocessing
    with pytest.raises(DataError, match=r"table: column 'day' holds timestamp.*, but training had text"):
        read_new_rows(frame, fitted)
    with pytest.raises(ValueError, match="column 'day' holds dates or times, but training had none"):
        exported_from(fitted)["features"](frame)


@pytest.mark.parametrize("inexact", ["float16", "float32", "Float32", Decimal])
def test_a_mark_and_categories_are_found_in_single_precision(inexact: Any, tmp_path: Path) -> None:
    texts = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": ["no", "no", "yes", "yes"] * 2})
    texts = texts.assign(crp=["1.7", "-99.9", "", "3.5"] * 2, dose=["0.1", "0.2", "0.1", "0.3"] * 2)
    texts.to_csv(tmp_path / "rows.csv", index=False)
    single = texts.copy()
    for name in ("crp", "dose"):
        numbers = pd.to_numeric(texts[name])
        single[name] = (
            texts[name].replace("", None).map(Decimal, "ignore") if inexact is Decimal else numbers.astype(inexact)
        )
    single.to_parquet(tmp_path / "rows.parquet")
    keys: dict[str, Any] = {"na_values": {"crp": [-99.9]}, "categorical": ["dose"]}
    records = read(tmp_path / "rows.csv", keys)
    same = read(tmp_path / "rows.parquet", keys)
    assert isinstance(records, Records)
    assert isinstance(same, Records)
    pd.testing.assert_frame_equal(same.features, records.features)
    order = np.arange(len(texts))
    made = prepare(records.features, order, order >= 0, "standard", 2)
    fitted = replace(made.preprocessing, reading=records.reading)
    for rows in (tmp_path / "rows.parquet", single):
        np.testing.assert_array_equal(fitted.transform(read_new_rows(rows, fitted).columns)[0], made.X)
    np.testing.assert_array_equal(exported_from(fitted)["features"](single), made.X)


@pytest.mark.parametrize("kind", ["numeric", "categorical"])
def test_an_infinite_number_may_be_a_mark(kind: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "x": [1.0, np.inf, 2.5, np.inf] * 2})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for path in (tmp_path / "rows.csv", tmp_path / "rows.parquet", stored(frame)):
        records = read(path, {"na_values": {"x": [np.inf]}, kind: ["x", "..."]})
        assert isinstance(records, Records)
        assert records.features["x"].isna().tolist() == [False, True] * 4
        made = prepare(records.features, np.arange(8), np.ones(8, np.bool_), "standard", 2)
        fitted = replace(made.preprocessing, reading=records.reading)
        for rows in (tmp_path / "rows.csv", tmp_path / "rows.parquet", frame):
            np.testing.assert_array_equal(fitted.transform(read_new_rows(rows, fitted).columns)[0], made.X)
        np.testing.assert_array_equal(exported_from(fitted)["features"](frame), made.X)


def test_truth_values_that_pandas_made_floats_are_found_among_categories(tmp_path: Path) -> None:
    fitted = Preprocessing("standard", (Categorical("x", ("False", "True"), flagged=True),))
    frame = pd.DataFrame({"x": [1.0, None, 0.0]})
    frame.assign(n=1).to_csv(tmp_path / "rows.csv", index=False)
    expected = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    for rows in (frame, tmp_path / "rows.csv"):
        assert fitted.transform(read_new_rows(rows, fitted).columns)[0].tolist() == expected
    assert exported_from(fitted)["features"](frame).tolist() == expected


def test_two_columns_of_one_name_are_refused_in_a_parquet_file_too(tmp_path: Path) -> None:
    columns: list[Any] = [["a", "b"] * 4, [0, 1] * 4, range(8), pa.array([7, 8] * 4).dictionary_encode()]
    parquet.write_table(pa.table(columns, names=["hospital", "died", "x", "x"]), tmp_path / "rows.parquet")
    assert "has two columns named 'x'; rename one" in str(read(tmp_path / "rows.parquet", {}))


def test_a_category_with_blanks_before_it_is_found_in_a_single_row(tmp_path: Path) -> None:
    x = ["  <18", "18-65", "  >65", " a", "a"]
    frame = pd.DataFrame({"hospital": ["a", "b"] * 5, "died": [0, 1] * 5, "n": range(10), "x": x * 2})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    records = read(tmp_path / "rows.csv", {})
    assert isinstance(records, Records)
    made = prepare(records.features, np.arange(10), np.ones(10, np.bool_), "standard", 2)
    fitted = replace(made.preprocessing, reading=records.reading)
    for row in (0, 1, 2, 4):  # without the other rows, " a" is "a"
        frame[row : row + 1].to_csv(tmp_path / "row.csv", index=False)
        for one in (tmp_path / "row.csv", frame[row : row + 1]):
            np.testing.assert_array_equal(fitted.transform(read_new_rows(one, fitted).columns)[0], made.X[[row]])
        np.testing.assert_array_equal(exported_from(fitted)["features"](frame[row : row + 1]), made.X[[row]])


@pytest.mark.parametrize("grades", [["1", "2", "B", ""], ["1.0", "2.0", "B", ""], [1.0, 2.0, "B", None]])
def test_a_whole_number_is_a_category_beside_texts_in_every_batch(grades: list[Any], tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": range(8), "grade": grades * 2})
    records = read(stored(frame), {"categorical": ["grade"]})
    assert isinstance(records, Records)
    made = prepare(records.features, np.arange(8), np.ones(8, np.bool_), "standard", 2)
    fitted = replace(made.preprocessing, reading=records.reading)
    exported = exported_from(fitted)
    with_gap, without = [0, 1, 3], [0, 1]
    batches = [(frame.iloc[with_gap].assign(grade=[1.0, 2.0, np.nan]), with_gap)]
    batches += [(frame.iloc[without].assign(grade=values), without) for values in ([1, 2], ["1.0", "2"], ["1", "2.0"])]
    for rows, at in batches:
        rows.to_csv(tmp_path / "rows.csv", index=False)
        for batch in (rows, rows.astype(object), rows.convert_dtypes(), tmp_path / "rows.csv"):
            np.testing.assert_array_equal(fitted.transform(read_new_rows(batch, fitted).columns)[0], made.X[at])
        for table in (rows, rows.astype(object), rows.convert_dtypes(), exported["read"](str(tmp_path / "rows.csv"))):
            np.testing.assert_array_equal(exported["features"](table), made.X[at])
    both = Categorical("grade", ("1", "1.0", "B"))
    assert both.positions(["1.0", "1", "1.00"]).tolist() == [1, 0, 3]


def test_periods_and_uuids_of_a_frame_are_the_texts_of_its_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"hospital": ["a", "b"] * 4, "died": [0, 1] * 4, "n": range(8)})
    frame["month"] = pd.PeriodIndex(["2020-01", "2020-02"] * 4, freq="M")
    frame["patient"] = [UUID(int=2**100 + k // 2) for k in range(8)]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    keys = {"categorical": ["month"], "group": "patient"}
    expected, got = read(tmp_path / "rows.csv", keys), read(stored(frame), keys)
    assert isinstance(expected, Records)
    assert isinstance(got, Records)
    pd.testing.assert_frame_equal(got.features, expected.features)
    assert expected.group is not None
    assert got.group is not None
    assert got.group.tolist() == expected.group.tolist() == frame["patient"].astype(str).tolist()
    frame.drop(columns="patient").to_parquet(tmp_path / "rows.parquet")
    assert "which is not text; convert it" in str(read(tmp_path / "rows.parquet", {"categorical": ["month"]}))
