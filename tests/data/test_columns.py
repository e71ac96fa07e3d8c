"""What is said of a source's columns before training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.columns import Column, columns_of, warnings_of
from raysim.data.sources.table import Table
from raysim.data.split import Split


def column(values, name: str = "x") -> Column:
    (only,) = columns_of(pd.DataFrame({name: values}))
    return only


def test_numbers_flags_and_categories_by_hand():
    assert column([1.5, np.nan, 3.0, 2.0]) == Column("x", "number", 0.25, 1.5, 3.0, 3)
    assert column([0.0, 1.0, 1.0, np.nan]) == Column("x", "binary", 0.25, 0.0, 1.0, 2)
    text = column(pd.Categorical(["a", "b", None, "a"], categories=["a", "b", "c"]))
    assert text == Column("x", "category", 0.25, None, None, 2)
    assert text.range == "2 categories"


@pytest.mark.parametrize(
    ("name", "values", "remark"),
    [
        ("x", range(30), "row number"),
        ("x", np.random.default_rng(0).permutation(30) + 5, "row number"),
        ("x", np.arange(30) * 1.7, "identifier not, these are no whole numbers"),
        ("x", np.arange(30) * 1000, "identifier"),
        ("x", pd.Categorical([f"p{i}" for i in range(30)]), "identifier"),
        ("x", range(19), "too few rows to tell"),
        ("x", [2.0] * 30, "constant"),
        ("x", [np.nan] * 30, "empty"),
        ("Unnamed: 0", np.arange(30) % 7, "unnamed"),
        ("", np.arange(30) % 7, "unnamed"),
        ("Unnamed: 0", range(30), "row number"),
        ("visits", np.arange(30) % 7, ""),
    ],
)
def test_what_is_suspect(name, values, remark):
    expected = remark if remark in ("row number", "identifier", "constant", "empty", "unnamed") else ""
    assert column(values, name).remark == expected


@given(st.lists(st.one_of(st.just(np.nan), st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=40))
def test_any_column_of_numbers_has_its_range(values):
    described = column(np.array(values, np.float32))
    recorded = [value for value in values if not np.isnan(value)]
    assert described.distinct == len(set(recorded))
    assert described.missing == pytest.approx(1 - len(recorded) / len(values))
    assert (described.low, described.high) == ((min(recorded), max(recorded)) if recorded else (None, None))
    assert described.distinct == len({float(value) for value in recorded})


def test_a_warning_names_the_column_and_the_remedy():
    (warning,) = warnings_of([column(range(30), "Unnamed: 0"), column([1.0, 2.0]), column([3.0] * 30)])
    assert warning.startswith("feature 'Unnamed: 0' looks like a row number (0 to 29); drop it (data.drop)")


def table_file(folder: Path, hospitals: int = 2) -> Path:
    rows = [
        f"{i},{'abcdefgh'[i % hospitals]},{-999 if i % 5 == 0 else i % 13},{'?' if i % 4 == 0 else i % 9},"
        f"{'none' if i % 3 == 0 else 'red'},{i * 7 % 2}"
        for i in range(60)
    ]
    path = folder / "rows.csv"
    path.write_text("\n".join([",silo,a,b,c,died", *rows]) + "\n")
    return path


def test_values_that_stand_for_missing_ones(tmp_path):
    source = Table(path=table_file(tmp_path), silo="silo", label="died", na_values=[-999, "?", "none"])
    records = source.read()
    assert records.features["a"].isna().sum() == 12
    assert records.features["a"].min() == 0
    assert records.features["b"].isna().sum() == 15
    assert records.features["b"].dtype == np.float32
    assert records.features["c"].isna().sum() == 20
    assert records.features["c"].cat.categories.tolist() == ["red"]


def test_they_are_found_in_parquet_by_value(tmp_path):
    frame = pd.read_csv(table_file(tmp_path), keep_default_na=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    source = Table(path=tmp_path / "rows.parquet", silo="silo", label="died", na_values=["-999.0", "?", "none"])
    features = source.read().features
    assert features[["a", "b", "c"]].isna().sum().tolist() == [12, 15, 20]


def test_a_single_value_is_no_list():
    with pytest.raises(ValueError, match=r"-999 is not a list; write \[-999\]"):
        Table(path=Path("x.csv"), silo="s", label="y", na_values=-999)


def test_a_federation_keeps_what_its_columns_were(tmp_path):
    source = Table(path=table_file(tmp_path), silo="silo", label="died", na_values=["?"])
    federation = build(source, Split(), "standard", 0)
    assert [each.name for each in federation.columns] == ["", "a", "b", "c"]
    assert federation.columns[2].missing == pytest.approx(0.25)
    said = "feature '' looks like a row number (0 to 59); drop it (data.drop: ['']) unless it is meant"
    assert said in federation.warnings


def test_one_hospital_is_said_to_be_one(tmp_path):
    source = Table(path=table_file(tmp_path, hospitals=1), silo="silo", label="died", na_values=["?"])
    try:
        federation = build(source, Split(), "standard", 0)
    except DataError as error:
        pytest.fail(str(error))
    assert any("one hospital ('a'): there is nothing to federate" in warning for warning in federation.warnings)
