"""Tables that raysim writes: no cell is a formula to a spreadsheet, and all are read back as they were."""

from __future__ import annotations

import csv
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core.csv_files import cell, read_csv, text_of, write_csv, write_pieces
from raysim.storage.manifest import Manifest

HARMFUL = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =cmd|' /C calc'!A0", "＝1+1", "'=1", "''@x"]
HARMLESS = ["St. Mary's", "'t Hart", "", "a=b", "007", "-5", "+.5", "1e-3", "hospital_1"]


def test_what_a_spreadsheet_would_run_gets_a_quotation_mark():
    assert [cell(text) for text in HARMFUL] == [f"'{text}" for text in HARMFUL]
    assert [cell(text) for text in HARMLESS] == HARMLESS


@given(st.text(max_size=6) | st.text("'=+-@ \t\r\n\uff1d1e.", max_size=6))
def test_every_text_is_read_back(text):
    written = cell(text)
    assert text_of(written) == text


@pytest.mark.parametrize("many_rows", [False, True])
def test_tables_are_read_back_whichever_way_they_are_written(many_rows, tmp_path):
    names = [*HARMFUL, *(text for text in HARMLESS if text)]
    table = pd.DataFrame(
        {
            "hospital": names,
            "=kind": pd.Categorical(names),
            "value": -np.arange(len(names), dtype=float),
            "count": pd.array([None, *range(1, len(names))], dtype="Int64"),
        }
    )
    path = tmp_path / "t.csv"
    before = table.copy(deep=True)
    write_csv(table, path, many_rows=many_rows)
    pd.testing.assert_frame_equal(table, before)
    again = read_csv(path, dtype={"hospital": str, "'=kind": str}, keep_default_na=False, na_values={"count": [""]})
    assert list(again.columns) == list(table.columns)
    assert again["hospital"].tolist() == names
    assert again["=kind"].tolist() == names
    assert again["value"].tolist() == table["value"].tolist()
    assert again["count"].isna().tolist() == [True] + [False] * (len(names) - 1)
    with path.open(newline="") as file:
        cells = [entry for row in csv.reader(file) for entry in row]
    begin = re.compile(r"\s*[=+\-@\uff1d]|[\t\r]")
    assert [entry for entry in cells if begin.match(entry) and not re.fullmatch(r"[+-]?[\d.e-]+", entry)] == []


def test_numbers_beyond_64_bits_are_left_to_pandas(tmp_path):
    table = pd.DataFrame({"name": ["a", "b"], "count": pd.Series([None, 2**63], dtype=object)})
    write_csv(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "name,count\na,\nb,9223372036854775808\n"


def test_numbers_have_the_digits_of_python(tmp_path):
    rng = np.random.default_rng(0)
    drawn = 10.0 ** rng.uniform(-12, 18, 3000) * rng.choice([-1.0, 1.0], 3000)
    edges = [0.0, -0.0, 1e-4, 9.999e-5, 1e10, 9999999999.5, 10000000000.5, 1e16, 5e-324, np.inf, -np.inf, 0.1 + 0.2]
    values = [*drawn.tolist(), *np.round(drawn, 3).tolist(), *edges, *(-value for value in edges)]
    write_csv(pd.DataFrame({"a": values, "b": 1}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "".join(["a,b\n", *(f"{value!r},1\n" for value in values)])


def test_what_a_command_writes_goes_through_it(tmp_path):
    manifest = Manifest.begin(tmp_path, "run")
    table = pd.DataFrame({"hospital": ["=1+1", "b"]})
    manifest.csv("a.csv", table)
    manifest.rows("b.csv", table)
    assert (tmp_path / "a.csv").read_text() == "hospital\n'=1+1\nb\n"
    assert (tmp_path / "b.csv").read_text() == '"hospital"\n"\'=1+1"\n"b"\n'


def test_pieces_are_one_file(tmp_path):
    table = pd.DataFrame({"row": range(7), "hospital": ["a", "=b", 'c"', "d", "e", "f,", "g"], "part": ["train"] * 7})
    write_csv(table, tmp_path / "whole.csv", many_rows=True)
    write_pieces((table.iloc[at : at + 3] for at in (0, 3, 6)), tmp_path / "pieces.csv")
    assert (tmp_path / "pieces.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "pieces.csv").read_text().count("hospital") == 1
