"""What a column's values say of its kind, and the keys that settle it."""

from __future__ import annotations

import pandas as pd
import pytest

from raysim.data.tables.kinds import described, find

NUMBERS = [f"{i / 10}" for i in range(5, 45)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2.5", " -3e2", "+4", ".5", "5."], "number"),
        (["1", None, "NA", " ", "n/a"], "number"),
        ([None, "", "  ", "null"], "empty"),
        (["true", "FALSE", None], "truth"),
        (["1", "0", "true"], "truth"),
        (["1", "5", "true"], "mixed"),
        (["a", "b", "1"], "category"),
        (["None", "One", "Both"], "category"),
        (["5/6", "1/2", "3", "4", "4"], "category"),
        (["250.00", "401.9", "V45.81", "E878.8", "428.0"], "category"),
        (["I21.0", "E11.9", "J18"], "category"),
        (["<18", "18-65", ">65"], "category"),
        (["5 mg", "10 mg", "5 mg"], "category"),
        (["18-25", "26-40"], "category"),
        (["2020-01-02", "2021-03-04"], "date"),
        (["01.02.2020", "3.4.21", ""], "date"),
        (["12:30", "9:15"], "date"),
        (["2020-01-02 10:00:00", "2020-01-03T11:00Z"], "date"),
        ([*NUMBERS, "<0.3"], "mixed"),
        ([*NUMBERS, "?"], "mixed"),
        ([*NUMBERS, *["?"] * 200], "mixed"),
        ([*NUMBERS, "n.d."], "mixed"),
        ([*NUMBERS, "5 mg"], "mixed"),
        ([*NUMBERS, "1,5"], "mixed"),
        ([*NUMBERS, "2020-01-02"], "mixed"),
        ([*NUMBERS, "Total"], "mixed"),
        ([*NUMBERS[:3], *["<0.01"] * 40], "mixed"),
        (["1,5", "2,25", "3,0"], "mixed"),
        ([f"{i} mg" for i in range(20)], "mixed"),
        (["0", "1", "1", "0", "yes"], "mixed"),
        (["1", "0", "1", "unknown"], "mixed"),
    ],
)
def test_kind_follows_from_values(values: list[str | None], kind: str) -> None:
    assert find(pd.Series(values, dtype=object)).kind == kind


def test_marks_are_counted_and_the_keys_settle_them() -> None:
    found = find(pd.Series([*NUMBERS, "<0.3", "?", "<0.3", "> 9"]))
    assert (found.rows, found.recorded, found.numbers, found.first) == (44, 44, 40, 41)
    assert found.marks == {"<0.3": 2, "?": 1, "> 9": 1}
    assert found.forms == {"limit": 3, "absent": 1}
    assert found.keys("lactate") == (
        'censored: {"<": half, ">": limit}',
        'na_values: {lactate: ["?"]}',
        "categorical: [lactate, ...]",
    )
    assert described("lactate", found, found.first) == (
        "column 'lactate' holds numbers in 40 rows and other marks in 4 rows (first: row 41): '<0.3' (2), '?' (1), "
        '\'> 9\' (1); set how to read them in data (censored: {"<": half, ">": limit}, na_values: {lactate: ["?"]} or '
        "categorical: [lactate, ...]), or correct the file"
    )


def test_long_marks_are_cut_and_many_counted() -> None:
    found = find(pd.Series([*NUMBERS, *(f"remark {i} of a long kind that goes on" for i in range(7))]))
    assert found.examples.endswith("(1) and 2 more")
    assert found.examples.startswith("'remark 0 of a long …' (1), 'remark 1 of a long …' (1), ")


def test_zeros_before_numbers_are_reported() -> None:
    assert find(pd.Series(["001", "02"])).zeros
    assert not find(pd.Series(["0", "0.5", "-0.5", "10"])).zeros
