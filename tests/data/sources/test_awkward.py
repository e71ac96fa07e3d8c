"""Columns with the awkwardness of real tables: what is said of each, and the keys that settle it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.core.errors import DataError
from raysim.data.records import Records
from raysim.data.sources.table import Table

N = 60
NUMBERS = [f"{0.5 + i / 10:.1f}" for i in range(N)]


def with_marks(*marks: str, values: list[str] | None = None) -> list[str]:
    """Numbers, of which the last have become ``marks``."""
    return [*(values or NUMBERS)[: N - len(marks)], *marks]


def columns(**changed: list[str]) -> pd.DataFrame:
    """A table of texts: a plain one, with changed or further columns."""
    plain = {
        "hospital": ["north", "south", "west"] * (N // 3),
        "died": ["no", "yes", "yes", "no"] * (N // 4),
        "age": [str(40 + i % 37) for i in range(N)],
    }
    return pd.DataFrame(plain | changed)


def read(folder: Path, frame: pd.DataFrame, **keys: Any) -> Records:
    frame.to_csv(folder / "rows.csv", index=False)
    return Table(path=folder / "rows.csv", **({"silo": "hospital", "label": "died"} | keys)).read()


REFUSED: list[tuple[str, dict[str, list[str]], dict[str, Any], str]] = [
    (
        "a value below a limit",
        {"lactate": with_marks("<0.3")},
        {},
        "data.path: column 'lactate' holds numbers in 59 rows and other marks in 1 row (first: row 60): '<0.3' (1); "
        'set how to read them in data (censored: {"<": half} or categorical: [lactate, ...]), or correct the file',
    ),
    (
        "a value above a limit",
        {"inr": with_marks("> 8", ">8")},
        {},
        "data.path: column 'inr' holds numbers in 58 rows and other marks in 2 rows (first: row 59): '> 8' (1), '>8' (1"
        '); set how to read them in data (censored: {">": limit} or categorical: [inr, ...]), or correct the file',
    ),
    (
        "a question mark",
        {"ca": ["?", *NUMBERS[1:]]},
        {},
        "data.path: column 'ca' holds numbers in 59 rows and other marks in 1 row (first: row 1): '?' (1); set how "
        'to read them in data (na_values: {ca: ["?"]} or categorical: [ca, ...]), or correct the file',
    ),
    ("mostly question marks", {"ca": with_marks(*["?"] * 45)}, {}, "in 15 rows and other marks in 45 rows"),
    ("not done", {"crp": with_marks("n.d.", "not done")}, {}, 'na_values: {crp: ["n.d.", "not done"]}'),
    ("the word None", {"crp": with_marks("None")}, {}, "'None' (1); set"),
    ("an error of a spreadsheet", {"crp": with_marks("#DIV/0!")}, {}, "'#DIV/0!' (1); set"),
    (
        "a unit",
        {"dose": with_marks("5 mg")},
        {},
        "'5 mg' (1); set how to read them in data (units: {dose: [\"mg\"]} or categorical: [dose, ...])",
    ),
    (
        "one unit in two spellings",
        {"crp": with_marks("5 mg/l", "6 mg/L")},
        {},
        'units: {crp: ["mg/l", "mg/L"]} or categorical: [crp, ...]), or correct the file',
    ),
    (
        "two units",
        {"glucose": with_marks("97 mg/dl", "5.3 mmol/l")},
        {},
        "in data (categorical: [glucose, ...]), or convert its units (mg/dl, mmol/l) in the file",
    ),
    ("units everywhere", {"dose": [f"{i} mg" for i in range(N)]}, {}, "numbers in 0 rows and other marks in 60 rows"),
    ("a thousand with a comma", {"wbc": with_marks("1,234")}, {}, "column 'wbc' of"),
    (
        "all thousands with a comma",
        {"wbc": [f"{1 + i},{i:03d}" for i in range(N)]},
        {},
        "always with three digits after it, as between thousands; set whether it is the decimal mark (data.decimal: "
        "',') or stands between thousands (data.decimal: '.')",
    ),
    ("days and days of a spreadsheet", {"at": ["2020-01-05", "43835"] * 30}, {}, "column 'at' holds dates or times"),
    ("dates in words", {"at": ["Jan 5, 2020", "5. März 2020", "3 févr. 2020"] * 20}, {}, "'at' holds dates or times"),
    ("durations", {"stay": ["3 days 04:00:00", "0 days"] * 30}, {}, "column 'stay' holds dates or times in 60 rows"),
    (
        "a name with a comma",
        {"lactate, mmol/l": with_marks("?")},
        {},
        'na_values: {"lactate, mmol/l": ["?"]} or categorical: ["lactate, mmol/l", ...]',
    ),
    ("a date among numbers", {"bun": with_marks("2020-01-05")}, {}, "'2020-01-05' (1)"),
    ("a month that a spreadsheet made", {"bun": with_marks("Mar-05")}, {}, "'Mar-05' (1)"),
    ("a remark", {"bun": with_marks("haemolysed")}, {}, 'na_values: {bun: ["haemolysed"]}'),
    (
        "a remark in most rows",
        {"bun": [*map(str, range(20)), *["haemolysed"] * 40]},
        {},
        "numbers in 20 rows and other marks in 40 rows (first: row 21): 'haemolysed' (40)",
    ),
    ("negative in most rows", {"titre": [*NUMBERS[:25], *["negative"] * 35]}, {}, 'na_values: {titre: ["negative"]}'),
    ("totals beside a patient", {"patient": [*range(N - 1), "Total"]}, {"drop": ["patient"]}, "'Total' (row 60), wh"),
    ("a level that is not a number", {"grade": ["1", "2", "3", "3", "x"] * 12}, {}, "'x' (12)"),
    ("truth and numbers", {"flag": with_marks("true")}, {}, "'true' (1)"),
    (
        "dates",
        {"admitted": ["2020-01-05", "2020-02-17"] * 30},
        {},
        "data.path: column 'admitted' holds dates or times in 60 rows (first: row 1), neither numbers nor text; drop "
        "it (data.drop) or convert it into a number, such as days since admission",
    ),
    ("times of day", {"at": ["12:30", "9:05"] * 30}, {}, "column 'at' holds dates or times in 60 rows"),
    ("dates with points", {"born": ["01.02.1950", "3.4.1961"] * 30}, {}, "column 'born' holds dates or times"),
    (
        "several columns",
        {"a": with_marks("?"), "b": with_marks("<1"), "c": with_marks("x")},
        {},
        "; the same for 2 more columns: 'b', 'c'",
    ),
    (
        "a row of a chosen hospital",
        {"a": with_marks("?")},
        {"hospitals": ["west"]},
        "numbers in 19 rows and other marks in 1 row (first: row 60): '?' (1)",
    ),
    ("listed as numbers", {"a": with_marks("?")}, {"numeric": ["a"]}, "other marks in 1 row (first: row 60)"),
    (
        "text listed as numbers",
        {"a": ["x", "y"] * 30},
        {"numeric": ["a"]},
        "data.numeric: column 'a' holds 'x' in row 1, not a number; correct it, leave it empty, or make the column "
        "categorical",
    ),
    (
        "hospitals with blanks",
        {"hospital": ["north", "south", "north "] * 20},
        {},
        "data.silo: 'north' (20), 'north ' (20) differ only in blanks or capitals and would be 2 hospitals; write "
        "them alike",
    ),
    (
        "answers in capitals and small letters",
        {"died": ["Y", "n", "y", "N"] * 15},
        {},
        "data.label: 'Y' (15), 'y' (15) differ only in blanks or capitals and would be 2 classes; write them alike",
    ),
    (
        "answers in several words",
        {"died": ["0", "1", "no", "yes"] * 15},
        {},
        "data.label: '0' (15), '1' (15), 'no' (15), 'yes' (15) are two classes, each in several spellings; write "
        "each in one way",
    ),
    (
        "patients that a spreadsheet cut",
        {"patient": [*(f"1230000{i:04d}" for i in range(N - 2)), "1.23E+10", "1.23E+10"]},
        {"group": "patient"},
        "data.group: column 'patient' holds '1.23E+10' in row 59, a long number that a spreadsheet has rounded; export",
    ),
    (
        "hospitals that a spreadsheet cut",
        {"hospital": ["1.2E+11", "1.3E+11"] * 30},
        {},
        "data.silo: column 'hospital' holds '1.2E+11' in row 1, a long number that a spreadsheet has rounded",
    ),
    ("hospitals with capitals", {"hospital": ["north", "south", "North"] * 20}, {}, "'north' (20), 'North' (20)"),
    (
        "classes with blanks and capitals",
        {"died": ["dead", "alive", "Dead", "alive", "dead ", "alive"] * 10},
        {},
        "data.label: 'dead' (10), 'Dead' (10), 'dead ' (10) differ only in blanks or capitals and would be 3 classes; "
        "write them alike",
    ),
    (
        "a line of totals",
        {"hospital": [*["north", "south"] * 29, "Total", "south"]},
        {},
        "data.silo: 'Total' has one row (row 59), which looks like a line of totals; remove that row",
    ),
    (
        "a line of totals among patients",
        {"patient": [*(f"p{i}" for i in range(N - 1)), "Total:"]},
        {"group": "patient"},
        "ends with a row 'Total:' (row 60), which looks like a line of totals; remove that row",
    ),
    (
        "a mark in the label",
        {"died": ["0", "1"] * 29 + ["1", "?"]},
        {},
        "data.label: column 'died' holds numbers in 59 rows and other marks in 1 row (first: row 60): '?' (1); "
        "correct these marks, or remove these rows",
    ),
    (
        "a mark of all columns that is a class",
        {"died": ["0", "1"] * 30},
        {"na_values": [0]},
        "data.na_values: '0' also occurs in the label 'died', in 30 rows; name the columns to which it applies "
        "(na_values: "
        "{column: ['0']})",
    ),
    (
        "a mark in the hospital",
        {},
        {"na_values": ["west"]},
        "also occurs in the hospital column 'hospital', in 20 rows",
    ),
    ("marks of no column", {}, {"na_values": {"agee": ["?"]}}, "data.na_values: no column 'agee'"),
]

SAID: list[tuple[str, dict[str, list[str]], dict[str, Any], str]] = [
    (
        "a mark that matches nothing",
        {},
        {"na_values": [-999]},
        "data.na_values: '-999' occurs in no row",
    ),
    (
        "a mark that matches nothing in its column",
        {"x": with_marks("?")},
        {"na_values": {"x": ["?"], "age": ["?"]}},
        "data.na_values: '?' occurs in no row of column 'age'",
    ),
    (
        "categories that are nearly alike",
        {"unit": ["MICU", "SICU", "micu"] * 20},
        {},
        "categories 'MICU' (20), 'micu' (20) of column 'unit' differ only in blanks or capitals: each is a separate "
        "feature; write them alike",
    ),
    (
        "columns that are nearly alike",
        {"Age": [str(40 + i % 37) for i in range(N)], "lab": NUMBERS},
        {},
        "columns 'age' and 'Age' differ only in blanks or capitals: each is a separate column; drop all but one "
        "(data.drop), or merge them in the file",
    ),
    (
        "a label that is nearly alike",
        {"Died": NUMBERS},
        {},
        "columns 'died' and 'Died' differ only in blanks or capitals: each is a separate column; drop all but one "
        "(data.drop), or merge them in the file",
    ),
    (
        "a class of one row",
        {"died": [*["no", "yes"] * 29, "yes", "maybe"]},
        {},
        "class 'maybe' of the label has one row (row 60): no model can learn it and be tested on it",
    ),
    (
        "many categories",
        {"ward": [f"ward {i % 52}" for i in range(N)]},
        {},
        "column 'ward' has 52 categories, each a separate feature; list it in data.categorical ([ward, ...]) if this "
        "is intended",
    ),
    (
        "numbers among texts",
        {"titre": [*NUMBERS[:25], *["negative", "weak", "strong", "trace", "none"] * 7]},
        {},
        "column 'titre' holds numbers in 25 rows and texts in 35, each a category; list it in data.categorical "
        "([titre, ...]) if this is intended",
    ),
    (
        "numbers of another kind",
        {"pressure": [f"{100 + i}/{60 + i}" for i in range(N)]},
        {},
        "column 'pressure' has 60 categories that begin with a digit, such as '100/60', and may be numbers that are "
        "written in another way; list it in data.categorical ([pressure, ...]) if this is intended",
    ),
    (
        "days as a spreadsheet counts them",
        {"admission date": [str(43831 + i) for i in range(N)]},
        {},
        "column 'admission date' is read as numbers, which are probably dates (2020-01-01 to 2020-02-29); drop it "
        "(data.drop) or convert it into days since admission; list it in data.numeric ([admission date, ...]) if not",
    ),
    (
        "days without separators",
        {"at": [f"202001{1 + i % 28:02d}" for i in range(N)]},
        {},
        "column 'at' is read as numbers, which are probably dates (20200101 to 20200128); drop it (data.drop) or "
        "convert it into days since admission; list it in data.numeric ([at, ...]) if not",
    ),
    (
        "an event that comes first",
        {"died": ["ja", "nein"] * 30},
        {},
        "the event of label 'died' is 'nein', because it is the last class, but 'ja' is named like an event; name the "
        "intended event (data.positive: ja)",
    ),
    (
        "classes 1 and 2",
        {"died": ["1", "2"] * 30},
        {},
        "the event of label 'died' is '2', because it is the later of 1 and 2; name the intended event (data.positive: "
        '"1")',
    ),
    (
        "codes of digits",
        {"code": [f"{i % 7:03d}" for i in range(N)]},
        {},
        "column 'code' is read as numbers, some of them with leading zeros (007); list it in data.categorical ([code, "
        "...]) if they are codes",
    ),
]

INNOCENT: list[tuple[str, list[str], str]] = [
    ("numbers with blanks around", [f" {value} " for value in NUMBERS], "number"),
    ("numbers with a sign or a power", with_marks("+4", "1e-3", ".5", "5."), "number"),
    ("numbers with gaps", with_marks("", "NA", " ", "n/a", "null"), "number"),
    ("a minus sign of typesetters", with_marks("−4", "− 4".replace(" ", ""), "<−1.5"[1:]), "number"),
    ("whole numbers of eight digits", [str(20_201_399 + 7 * i) for i in range(N)], "number"),
    ("ratios", ["1:40", "1:80", "1:160"] * 20, "category"),
    ("letters that are codes", ["a", "A", "b"] * 20, "category"),
    ("truth values", ["true", "FALSE", ""] * 20, "number"),
    ("diseases, ICD-10", ["I21.0", "E11.9", "J18", ""] * 15, "category"),
    ("diseases, ICD-9", ["250.00", "401.9", "V45.81", "E878.8", "428.0"] * 12, "category"),
    ("bands of age", ["<18", "18-65", ">65"] * 20, "category"),
    ("levels of a dose", ["5 mg", "10 mg", "20 mg"] * 20, "category"),
    ("levels as in IMPACT", ["5/6", "4", "3", "1/2", "3"] * 12, "category"),
    ("the category None", ["None", "One", "Both"] * 20, "category"),
    ("texts with a number", ["yes", "no", "1"] * 20, "category"),
]


@pytest.mark.parametrize(("changed", "keys", "said"), [each[1:] for each in REFUSED])
def test_refused(changed: dict[str, list[str]], keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, columns(**changed), **keys)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("changed", "keys", "said"), [each[1:] for each in SAID])
def test_said(changed: dict[str, list[str]], keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert read(tmp_path, columns(**changed), **keys).warnings == (said,)


@pytest.mark.parametrize(("values", "kind"), [each[1:] for each in INNOCENT])
def test_innocent(values: list[str], kind: str, tmp_path: Path) -> None:
    records = read(tmp_path, columns(x=values))
    assert records.warnings == ()
    made = records.features["x"]
    assert isinstance(made.dtype, pd.CategoricalDtype) == (kind == "category")
    assert made.dtype == np.float32 or kind == "category"


def test_keys_settle_the_marks(tmp_path: Path) -> None:
    frame = columns(x=with_marks("<0.3", "≤ 0.2", ">9", "?", "-999.0", "00", "0"))
    keys = {"na_values": {"x": ["?", "-999", "00"]}, "censored": {"<": "half", ">": "limit"}}
    records = read(tmp_path, frame, **keys)
    nan = np.nan
    expected = np.array([0.3 / 2, 0.1, 9, nan, nan, nan, 0], np.float32)
    np.testing.assert_array_equal(records.features["x"].to_numpy()[-7:], expected)
    assert records.notes[1:] == (
        "column 'x': 2 values below a limit taken as half of it",
        "column 'x': 1 value above a limit taken as the limit",
    )
    missing = read(tmp_path, frame, **keys | {"censored": {"<": "missing", ">": "missing"}}).features["x"]
    assert missing.isna().sum() == 6
    kept = read(tmp_path, frame, categorical=["x", "..."]).features
    assert list(kept) == ["age", "x"]
    assert {"<0.3", "?", "00", "0"} < set(kept["x"].cat.categories)


def test_units_are_taken_off(tmp_path: Path) -> None:
    frame = columns(crp=with_marks("5 mg/l", "6.5mg/L", "<0.3 mg/l"))
    keys = {"units": {"crp": ["mg/l", "mg/L"]}, "censored": {"<": "half"}}
    records = read(tmp_path, frame, **keys)
    np.testing.assert_array_equal(records.features["crp"].to_numpy()[-3:], np.array([5, 6.5, 0.15], np.float32))
    assert records.notes[1:] == (
        "column 'crp': 3 values with a unit (mg/l, mg/L) taken as numbers",
        "column 'crp': 1 value below a limit taken as half of it",
    )
    with pytest.raises(DataError, match=re.escape("'5 ng/l' (1); set how to read them in data (units: {crp")):
        read(tmp_path, columns(crp=with_marks("5 mg/l", "5 ng/l")), **keys)
    commas = [text.replace(".", ",") for text in with_marks("5.5 mg/l")]
    read_with_commas = read(tmp_path, columns(crp=commas), units={"crp": ["mg/l"]}, decimal=",")
    assert read_with_commas.features["crp"].to_numpy()[-1] == 5.5


def test_rows_without_a_label_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    frame = columns(died=["no", "", "yes"] * 20)
    with pytest.raises(
        DataError, match=r"20 rows \(first: row 2\); fill in values, or leave these rows out \(data\.unlab"
    ):
        read(tmp_path, frame)
    records = read(tmp_path, frame, unlabelled="drop")
    assert records.notes[1] == "left out: 20 rows without a value of 'died'"
    assert records.row is not None
    assert records.row.tolist() == [row for row in range(N) if row % 3 != 1]
    whole = read(tmp_path, columns(died=["no", "no", "yes"] * 20))
    pd.testing.assert_frame_equal(records.features, whole.features.iloc[records.row].reset_index(drop=True))
    kept = read(tmp_path, frame, unlabelled="drop", hospitals=["west"])
    assert kept.row is not None
    assert kept.row.tolist() == list(range(2, N, 3))


def test_hospitals_are_described_by_columns_or_a_mapping(tmp_path: Path) -> None:
    frame = columns(region=["N", "S", ""] * 20, teaching=["yes", "no", "yes"] * 19 + ["no", "no", "yes"])
    records = read(tmp_path, frame, attributes=["region", "teaching"], drop=["region"])
    assert records.attributes == {
        "north": {"region": "N", "teaching": "mixed"},
        "south": {"region": "S", "teaching": "no"},
        "west": {"region": "unknown", "teaching": "yes"},
    }
    assert records.warnings == (
        "data.attributes: 'teaching' differs within 1 hospital (first: 'north'), which are 'mixed'",
    )
    assert "teaching" in records.features
    mapped = read(tmp_path, columns(), attributes={"beds": {"north": "100 - 249"}}).attributes
    assert {name: of["beds"] for name, of in mapped.items()} == {
        "north": "100 - 249",
        "south": "unknown",
        "west": "unknown",
    }
    with pytest.raises(DataError, match=r"data\.attributes\.beds: hospital 'nort' has no rows; did you mean 'north'"):
        read(tmp_path, columns(), attributes={"beds": {"nort": "few"}})
    with pytest.raises(DataError, match=r"data\.attributes: no column 'regio'"):
        read(tmp_path, frame, attributes=["regio"])


def test_limits_of_ages_are_settled_too(tmp_path: Path) -> None:
    ages = with_marks("> 89", "?", values=[str(30 + i) for i in range(N)])
    records = read(tmp_path, columns(age=ages), age="age", censored={">": "limit"}, na_values=["?"])
    assert records.patients["age"][-2] == 89
    assert np.isnan(records.patients["age"][-1])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"censored": {">": "half"}},
            "half gives a value below the limit, but values marked > are above the limit; use limit or missing",
        ),
        ({"censored": {"<": "double"}}, "Input should be 'half', 'limit' or 'missing'"),
        ({"na_values": [None]}, "null is not a text; quote the text of the table"),
        ({"na_values": [True]}, "true is not a text; quote the text of the table"),
        ({"na_values": {"x": -1}}, r"-1 is not a list; write \[-1\]"),
    ],
)
def test_keys_that_cannot_be(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Table(path=Path("rows.csv"), silo="hospital", label="died", **keys)


def test_listed_codes_keep_their_zeros(tmp_path: Path) -> None:
    records = read(tmp_path, columns(code=["001", "010", "100"] * 20), categorical=["code", "..."])
    assert records.features["code"].cat.categories.tolist() == ["001", "010", "100"]
    assert records.warnings == ()


GROUPED: list[tuple[str, list[str], list[float], dict[str, Any]]] = [
    ("commas", ["1,234", "12", "1,234,567"], [1234, 12, 1234567], {}),
    ("commas and points", ["1,234.5", "1,234", "-2.5"], [1234.5, 1234, -2.5], {}),
    ("commas where points are named", ["1,234", "900", "2,000"], [1234, 900, 2000], {"decimal": "."}),
    ("apostrophes", ["1'234", "2’345.5", "7"], [1234, 2345.5, 7], {}),
    ("blanks", ["1 234", "2\u00a0345.5", "3\u202f456"], [1234, 2345.5, 3456], {}),
    ("points where commas are named", ["1.234", "900", "2.000"], [1234, 900, 2000], {"decimal": ","}),
    ("points and commas", ["1.234,5", "1.234.567", "2,5"], [1234.5, 1234567, 2.5], {"decimal": ","}),
    ("limits", ["<1,000", "> 12,345.5", "7.5"], [500, 12345.5, 7.5], {"censored": {"<": "half", ">": "limit"}}),
]
"""Numbers with marks between thousands, what they are, and keys."""


@pytest.mark.parametrize(("values", "expected", "keys"), [each[1:] for each in GROUPED])
def test_marks_between_thousands(
    values: list[str], expected: list[float], keys: dict[str, Any], tmp_path: Path
) -> None:
    records = read(tmp_path, columns(x=values * (N // 3)), **keys)
    np.testing.assert_array_equal(records.features["x"][:3], np.array(expected, np.float32))
    path = tmp_path / "rows.csv"
    assert records.warnings == (f"'{path}' has marks between the thousands of 'x', which are left out",)


def test_points_that_are_decimal_marks_and_thousands(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has a comma in 20 numbers and a point in 20; write one decimal mark"):
        read(tmp_path, columns(x=["1,5", "2.5", "3"] * (N // 3)), decimal=",")
    with pytest.raises(DataError, match=r"has marks between the thousands of 20 numbers and a decimal point in 20"):
        read(tmp_path, columns(x=["1.234", "2.5", "3"] * (N // 3)), decimal=",")


@pytest.mark.parametrize("key", ["silo", "group", "sex"])
def test_whole_names_are_those_of_numbers(key: str, tmp_path: Path) -> None:
    frame = columns(hospital=["1.0", "2", "3.0"] * 20)
    frame = frame.assign(patient=frame["hospital"])
    keys = {"silo": "hospital"} if key == "silo" else {key: "patient"}
    records = read(tmp_path, frame, **keys)
    read_names = {"silo": records.silo, "group": records.group, "sex": records.patients.get("sex")}[key]
    assert set(read_names.tolist()) == {"1", "2", "3"}
    for other in ("2.5", "02", "B", "1.00"):  # the name of a hospital does not depend on the other rows
        assert set(read(tmp_path, columns(hospital=["1.0", other] * 30)).silo.tolist()) == {"1", other}


@pytest.mark.parametrize(
    ("name", "unit", "ages", "years"),
    [
        ("age", None, ["0.5", "89"], [0.5, 89]),
        ("age", "months", ["6", "240"], [0.5, 20]),
        ("age_days", "days", ["0", "7305"], [0, 20]),
        ("age", "years", ["12 y", "> 89 y"], [12, 89]),
    ],
)
def test_ages_are_in_years(name: str, unit: str | None, ages: list[str], years: list[float], tmp_path: Path) -> None:
    keys = {"age": name, "age_unit": unit, "censored": {">": "limit"}, "units": {name: ["y"]}}
    records = read(tmp_path, columns(**{name: ages * (N // 2)}), **keys)
    np.testing.assert_array_equal(records.patients["age"][:2], years)
    assert records.features[name].max() > 19  # a feature stays what it is


@pytest.mark.parametrize(
    ("name", "age", "said"),
    [
        (
            "age",
            "7305",
            "7305 in row 60, more than 130 years; set its unit (data.age_unit: months, or days)",
        ),
        ("age", "-1", "holds -1 in row 60, less than 0; set its unit"),
        (
            "age_months",
            "7",
            "the name of column 'age_months' suggests another unit than years; set it (data.age_unit: months)",
        ),
        ("Alter in Tagen", "7", "suggests another unit than years"),
    ],
)
def test_ages_that_are_no_years_are_refused(name: str, age: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, columns(**{name: ["40"] * (N - 1) + [age]}), age=name)
    assert str(caught.value).startswith("data.age: ")
    assert said in str(caught.value)


def test_groups_that_are_nearly_one_are_said_once(tmp_path: Path) -> None:
    frame = columns(sex=["F", "f", "M"] * (N // 3), region=["north", "south", "North"] * (N // 3))
    kept = read(tmp_path, frame, sex="sex", drop=["region"])
    assert kept.warnings == (
        "categories 'F' (20), 'f' (20) of column 'sex' differ only in blanks or capitals: each is a separate "
        "feature; write them alike",
    )
    dropped = read(tmp_path, frame, sex="sex", attributes=["region"], drop=["sex", "region"])
    assert dropped.warnings == (
        "data.sex: 'F' (20), 'f' (20) differ only in blanks or capitals: each is a separate group; write them alike",
        "data.attributes.region: 'North' (20), 'north' (20) differ only in blanks or capitals: each is a separate "
        "group; write them alike",
    )


def test_marks_in_ages_and_scores_are_answered_with_their_keys(tmp_path: Path) -> None:
    ages = with_marks("> 89", "?", values=[str(30 + i) for i in range(N)])
    columns(age=ages, x=NUMBERS).to_csv(tmp_path / "rows.csv", index=False)
    source = Table(path=tmp_path / "rows.csv", silo="hospital", label="died", age="age", categorical=["age", "..."])
    said = (
        "column 'age' holds numbers in 58 rows and other marks in 2 rows (first: row 59): '> 89' (1), '?' (1); set "
        'how to read them in data (censored: {">": limit}, na_values: {age: ["?"]}), or correct the file'
    )
    with pytest.raises(DataError, match=f"^{re.escape(f'data.age: {said}')}$"):
        source.read()
    plain = source.model_copy(update={"age": None, "categorical": None})
    with pytest.raises(DataError, match=f"^{re.escape(f'data.scores: {said}')}$"):
        plain.with_scores(("age",)).read()


def test_texts_kept_by_a_formula_are_these_texts(tmp_path: Path) -> None:
    kept = columns(hospital=["007", "7", "north"] * (N // 3), lab=NUMBERS, code=["01", "1", "I21.0"] * (N // 3))
    formulas = kept.map(lambda text: f'="{text}"').rename(columns={"lab": '="lab"'})
    plain = read(tmp_path, kept)
    assert set(plain.silo.tolist()) == {"007", "7", "north"}
    formulas.to_csv(tmp_path / "quoted.csv", index=False)
    bare = "\n".join(",".join(row) for row in [formulas.columns, *formulas.itertuples(index=False)])
    (tmp_path / "bare.csv").write_text(bare)
    formulas.to_parquet(tmp_path / "rows.parquet")
    formulas.astype("category").to_parquet(tmp_path / "categories.parquet")
    for name in ("quoted.csv", "bare.csv", "rows.parquet", "categories.parquet"):
        numeric = {"numeric": ["age", "lab"]} if name.startswith("categories") else {}
        found = Table(path=tmp_path / name, silo="hospital", label="died", **numeric).read()
        pd.testing.assert_frame_equal(found.features, plain.features)
        assert (found.silo.tolist(), found.y.tolist()) == (plain.silo.tolist(), plain.y.tolist())
        assert found.classes == plain.classes
