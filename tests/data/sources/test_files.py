"""Tables as they are sent: read right and said how, or refused in a line that says what to do."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import shlex
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from raysim.core.errors import DataError
from raysim.data import cache
from raysim.data.sources.table import Table
from raysim.data.tables.table_file import read_table
from raysim.data.tables.text_form import Keys, holds_values

HEAD = "hospital,ward,age,lactate,died\n"
ROWS = "Zürich,Médecine,71,2.1,0\nGenève,B,64,3.25,1\nZürich,B,50,4,1\n"
PLAIN = "north,A,71,2.1,0\nsouth,B,64,3.25,1\nnorth,B,50,4,1\n"
ASCII = HEAD + PLAIN
WESTERN = HEAD + ROWS


def german(text: str) -> str:
    """A table as a German spreadsheet writes it."""
    return text.replace(",", ";").replace(".", ",")


def tabs(text: str) -> str:
    return text.replace(",", "\t")


def zipped(name: str, content: str = "") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content)
    return made.getvalue()


def as_parquet(text: str) -> bytes:
    made = io.BytesIO()
    pd.read_csv(io.StringIO(text)).to_parquet(made)
    return made.getvalue()


READ: dict[str, tuple[str, str | bytes, list[str]]] = {
    "commas": ("t.csv", WESTERN, []),
    "commas in gzip": ("t.csv.gz", gzip.compress(WESTERN.encode()), []),
    "an ending of its own": ("t.data", ASCII, []),
    "a byte order mark": ("t.csv", WESTERN.encode("utf-8-sig"), []),
    "lines of Windows": ("t.csv", ASCII.replace("\n", "\r\n"), []),
    "lines of an old Macintosh": ("t.csv", ASCII.replace("\n", "\r"), []),
    "blanks around names": ("t.csv", ASCII.replace(HEAD, " hospital, ward,age , lactate,died\n"), []),
    "a line break in a cell": ("t.csv", ASCII.replace(",A,", ',"A\nA",'), []),
    "semicolons": (
        "t.csv",
        ASCII.replace(",", ";"),
        ["is read with semicolons between columns; data.separator names another"],
    ),
    "semicolons and decimal commas": (
        "t.csv",
        german(ASCII),
        ["is read with semicolons between columns and a decimal comma; data.separator and data.decimal name another"],
    ),
    "the same in gzip": (
        "t.csv.gz",
        gzip.compress(german(ASCII).encode()),
        ["is read with semicolons between columns and a decimal comma; data.separator and data.decimal name another"],
    ),
    "semicolons in cells": (
        "t.csv",
        german(ASCII).replace(";A;", ';"A;A";'),
        ["is read with semicolons between columns and a decimal comma; data.separator and data.decimal name another"],
    ),
    "tabs": ("t.tsv", tabs(ASCII), ["is read with tabs between columns; data.separator names another"]),
    "tabs and decimal commas": (
        "t.txt",
        german(ASCII).replace(";", "\t"),
        ["is read with tabs between columns and a decimal comma; data.separator and data.decimal name another"],
    ),
    "bars": ("t.txt", ASCII.replace(",", "|"), ["is read with bars between columns; data.separator names another"]),
    "Latin-1 in cells": (
        "t.csv",
        WESTERN.encode("latin-1"),
        ["is read with the encoding cp1252; data.encoding names another"],
    ),
    "Latin-1 in a name": (
        "t.csv",
        ASCII.replace("ward", "Größe").encode("latin-1"),
        ["is read with the encoding cp1252; data.encoding names another"],
    ),
    "a degree sign of Windows": (
        "t.csv",
        ASCII.replace("ward", "temp (°C) – “core”").encode("cp1252"),
        ["is read with the encoding cp1252; data.encoding names another"],
    ),
    "Excel's text in Unicode": (
        "t.txt",
        tabs(WESTERN).encode("utf-16"),
        ["is read with tabs between columns and the encoding utf-16; data.separator and data.encoding name another"],
    ),
    "UTF-16 without a mark": (
        "t.csv",
        ASCII.encode("utf-16-le"),
        ["is read with the encoding utf-16-le; data.encoding names another"],
    ),
    "UTF-16, the other way round": (
        "t.csv",
        WESTERN.encode("utf-16-be"),
        ["is read with the encoding utf-16-be; data.encoding names another"],
    ),
    "titles": (
        "t.csv",
        "Export of the ICU\nDate: 2024-01-01\n\n" + ASCII,
        ["is read without 3 lines above its column"],
    ),
    "titles of a spreadsheet": (
        "t.csv",
        "Export of the ICU,,,,\n,,,,\n" + ASCII,
        ["is read without 2 lines above its column names"],
    ),
    "a remark": ("t.csv", "# made by hand\n" + ASCII, ["is read without 1 line above its column names"]),
    "sep=": (
        "t.csv",
        "sep=;\n" + german(ASCII),
        ["semicolons between columns and a decimal comma", "is read without 1 line above its column names"],
    ),
    "columns that a spreadsheet left": (
        "t.csv",
        ASCII.replace("\n", ",,\n"),
        ["is read without 2 columns that have neither a name nor a value"],
    ),
    "Parquet called CSV": ("t.csv", as_parquet(ASCII), ["is Parquet under another name, and is read as such"]),
    "gzip called CSV": ("t.csv", gzip.compress(ASCII.encode()), []),
}
"""The file's name and content, and what is said of it."""

REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "very wide": (
        "t.csv",
        ",".join(f"g{i}" for i in range(30_001)),
        "has 30,001 columns, more than 30,000; remove columns",
    ),
    "nothing": ("t.csv", "", "is empty; it needs a line of column names and rows"),
    "blank lines": ("t.csv", "\n\n", "is empty; it needs a line of column names and rows"),
    "names alone": ("t.csv", HEAD, "has no rows; a table needs at least one below its column names"),
    "a web page": ("t.csv", "<!DOCTYPE html><html>", "is a web page (HTML), and no table; download the file itself"),
    "a PDF": ("t.csv", b"%PDF-1.4 \0\1", "is a PDF, and no table; ask for the table behind it as CSV"),
    "XML": ("t.csv", "<?xml version='1.0'?><a/>", "is XML, and no table"),
    "a pointer": ("t.csv", "version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS, and no table; "),
    "bytes": ("t.csv", bytes(range(256)) * 20, "holds bytes that are not text; convert it to CSV or Parquet"),
    "Excel": ("t.xlsx", zipped("xl/workbook.xml"), "is an Excel workbook; convert it: pip install openpyxl && python"),
    "Excel called CSV": ("t.csv", zipped("xl/workbook.xml"), "is an Excel workbook; convert it: "),
    "old Excel": ("t.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "is an Excel workbook of the old kind; "),
    "LibreOffice": ("t.ods", zipped("content.xml"), "is a LibreOffice table; convert it: pip install odfpy && python"),
    "Stata": ("t.dta", b"<stata_dta><header>", "is a Stata file; convert it: python -c"),
    "SPSS": ("t.sav", b"$FL2@(#)", "is an SPSS file; convert it: pip install pyreadstat && python -c"),
    "a zip archive": ("t.csv.zip", zipped("heart.csv", ASCII), "is a zip archive of heart.csv; unpack it: unzip "),
    "a cut zip archive": ("t.csv", zipped("heart.csv", ASCII)[:40], "is a corrupt zip archive; copy it again"),
    "bzip2": ("t.csv.bz2", b"BZh91AY&SY", "is compressed by bzip2; unpack it: bunzip2 -k "),
    "no gzip": ("t.csv.gz", ASCII, "is not a valid gzip file; copy or compress it again"),
    "a cut gzip": ("t.csv.gz", gzip.compress((HEAD + PLAIN * 999).encode())[:-30], "is a corrupt gzip file ("),
    "text called Parquet": ("t.parquet", ASCII, "is not readable Parquet; write it again, or rename a text file"),
    "two encodings": (
        "t.csv",
        WESTERN.encode() + ROWS.encode("latin-1"),
        "is UTF-8 in line 2 and another encoding in line 5; save all of it as UTF-8, or name one encoding (data.enc",
    ),
    "Cyrillic": (
        "t.csv",
        ASCII.replace("north", "Москва").encode("cp1251"),
        "is not UTF-8 (first in line 2), and its encoding cannot be recognised; save it as UTF-8, or name it "
        "(data.encoding: cp1250, cp1251, ",
    ),
    "Polish": ("t.csv", ASCII.replace("north", "Śródmieście, płeć").encode("cp1250"), "its encoding cannot be recogn"),
    "two separators": (
        "t.csv",
        "hospital;ward,age;lactate,died;x\na;b,1;2,3;4\na;b,1;2,3;4\n",
        "may be separated by commas (3 columns) or semicolons (4 columns); name one (data.separator)",
    ),
    "spaces": (
        "t.txt",
        "hospital  age  lactate died\nnorth     71   2.1    0\nsouth     64   3.25   1\n",
        "has columns separated by spaces; write it with commas: python -c",
    ),
    "decimal commas between commas": (
        "t.csv",
        HEAD + "north,A,71,2,1,0\nsouth,B,64,3,25,1\n",
        "has 6 fields in line 2, but 5 in the first line; correct line 2; is the decimal mark a comma, too? Then",
    ),
    "quoted decimal commas between commas": (
        "t.csv",
        HEAD + 'north,A,71,"2,1",0\nsouth,B,64,"3,25",1\n',
        "has 2 numbers with a comma, which separates columns too; set whether it is the decimal mark (data.decimal: "
        "',') or part of a text (data.decimal: '.')",
    ),
    "thousands": (
        "t.csv",
        HEAD.replace(",", ";") + "north;A;71;1,234;0\nsouth;B;64;2,345;1\n",
        "has 2 numbers with a comma, always with three digits after it, as between thousands; set whether",
    ),
    "points and commas in a column": (
        "t.csv",
        HEAD.replace(",", ";") + "north;A;71;1.5;0\nsouth;B;64;2,3;1\n",
        "has a comma in 1 number and a point in 1; write one decimal mark",
    ),
    "points and commas in two columns": (
        "t.csv",
        HEAD.replace(",", ";") + "north;A;71.5;1,5;0\nsouth;B;64;2,3;1\n",
        "has 2 numbers with a comma, and column 'age' has numbers with a point; set whether",
    ),
    "no names": ("t.csv", PLAIN, "begins with a row of values; add a first line with the names of the columns"),
    "row names of R": ("t.csv", HEAD[9:] + PLAIN, "has 5 fields in line 2, but 4 in the first line; correct line 2"),
    "names again": ("t.csv", ASCII + ASCII, "has its column names again in row 4; remove that row"),
    "a separator behind each line": (
        "t.csv",
        HEAD + PLAIN.replace("\n", ",\n"),
        "has 6 fields in line 2, but 5 in the first line; remove the separator at the ends of lines, or add one",
    ),
    "an open quotation mark": (
        "t.csv",
        HEAD + 'east,"A,71,2.1,0\n' + PLAIN,
        "has 2 fields in line 5, but 5 in the first line; is a quotation mark not closed in line 2, where these",
    ),
    "another separator": ("t.csv", ASCII.replace(",", "^"), "'hospital^ward^age^lactate^died'; set the separator"),
    "a last line": (
        "t.csv",
        ASCII + "Total: 3 rows\n",
        "has 1 field in line 5, but 5 in the first line; correct line 5",
    ),
    "a last line below titles": (
        "t.csv",
        "Title\n" + ASCII + "end\n",
        "has 1 field in line 6, but 5 in line 2; correct line 6",
    ),
}
"""The file's name and content, and why it is refused."""


def write_file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(path: Path, **fields: Any) -> Table:
    return Table(**({"path": path, "silo": "hospital", "label": "died"} | fields))


def test_the_table_has_forty_files() -> None:
    assert len(READ) + len(REFUSED) >= 40


@pytest.mark.parametrize("case", READ)
def test_a_file_that_is_read(case: str, tmp_path: Path) -> None:
    name, content, said = READ[case]
    records = table(write_file(tmp_path, name, content)).read()
    assert (len(records.silo), records.silo[0] == records.silo[2]) == (3, True)
    assert sorted({*records.silo}) in (["north", "south"], ["Genève", "Zürich"])
    np.testing.assert_array_equal(records.features["age"], [71, 64, 50])
    np.testing.assert_array_equal(records.features["lactate"], np.array([2.1, 3.25, 4], np.float32))
    assert records.features.iloc[:, 0].nunique() == 2
    assert records.y.tolist() == [0, 1, 1]
    assert len(records.warnings) == len(said)
    for remark, words in zip(records.warnings, said, strict=True):
        assert remark.startswith(f"'{tmp_path / name}' ")
        assert words in remark


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_refused(case: str, tmp_path: Path) -> None:
    name, content, said = REFUSED[case]
    with pytest.raises(DataError) as caught:
        table(write_file(tmp_path, name, content)).read()
    message = str(caught.value)
    assert said in message
    assert message.startswith("data.path: ")
    assert str(tmp_path / name) in message
    assert "\n" not in message
    assert "north" not in message  # no row of a patient


def sqlite(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        pd.read_csv(io.StringIO(ASCII)).to_sql("stays", database, index=False)


def duck(path: Path) -> None:
    import duckdb

    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE stays (hospital TEXT, ward TEXT, age INT, lactate DOUBLE, died INT)")
        database.execute("INSERT INTO stays VALUES ('north', 'A', 71, 2.1, 0), ('south', 'B', 64, 3.25, 1)")


def listed(path: Path) -> None:
    path.write_text(json.dumps(pd.read_csv(io.StringIO(ASCII)).to_dict("records")))


def spaced(path: Path) -> None:
    path.write_text("hospital  ward age  lactate died\nnorth     A  71   2.1    0\nsouth     B  64   3.25   1\n")


@pytest.mark.parametrize(("name", "make"), [("s.db", sqlite), ("d.csv", duck), ("j.json", listed), ("f.txt", spaced)])
def test_the_line_that_converts_a_file_does(name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / name)
    with pytest.raises(DataError) as caught:
        table(tmp_path / name).read()
    _, _, command = str(caught.value).partition(": python ")
    before = {*tmp_path.iterdir()}
    subprocess.run([sys.executable, *shlex.split(command)], check=True)
    (made,) = {*tmp_path.iterdir()} - before
    records = table(made).read()
    assert records.features["lactate"].round(2).tolist()[:2] == [np.float32(2.1), 3.25]
    assert records.silo[0] == "north"


@pytest.mark.parametrize(
    ("content", "keys", "lactate"),
    [
        (HEAD + 'north,A,71,"2,1",0\nsouth,B,64,"3,25",1\n', {"decimal": ","}, [2.1, 3.25]),
        (german(HEAD) + "north;A;71;1,234;0\nsouth;B;64;2,345;1\n", {"decimal": ",", "separator": ";"}, [1.234, 2.345]),
        (german(HEAD) + "north;A;71.5;1,5;0\nsouth;B;64;2,3;1\n", {"decimal": ",", "separator": ";"}, [1.5, 2.3]),
        (tabs(HEAD).replace("ward", "a,b,c,d") + tabs(PLAIN), {"separator": "tab"}, [2.1, 3.25]),
        (tabs(ASCII), {"separator": "\\t"}, [2.1, 3.25]),
        (ASCII.replace("south", "Łódź").encode("cp1250"), {"encoding": "cp1250"}, [2.1, 3.25]),
        (WESTERN.encode("latin-1"), {"encoding": "latin-1"}, [2.1, 3.25]),
    ],
)
def test_keys_settle_it_and_nothing_is_said(
    content: str | bytes, keys: dict[str, str], lactate: list[float], tmp_path: Path
) -> None:
    records = table(write_file(tmp_path, "t.csv", content), **keys).read()
    np.testing.assert_array_equal(records.features["lactate"][:2], np.array(lactate, np.float32))
    assert records.warnings == ()
    assert records.silo[1] == {"cp1250": "Łódź", "latin-1": "Genève"}.get(keys.get("encoding"), "south")


def test_a_comma_can_be_part_of_a_text(tmp_path: Path) -> None:
    path = write_file(tmp_path, "t.csv", HEAD + 'north,A,71,"2,1",0\nsouth,B,64,"3,25",1\n')
    assert table(path, decimal=".", categorical=["ward", "lactate"]).read().features["lactate"].tolist() == [
        "2,1",
        "3,25",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"separator": ";;"}, "';;' cannot separate columns; write ',', ';', '|' or tab"),
        ({"encoding": "latin-99"}, "'latin-99' is not an encoding of texts"),
        ({"encoding": "base64"}, "'base64' is not an encoding of texts"),
        ({"silo": None}, "silo: missing; name the column of the hospital, or give one file for each hospital"),
    ],
)
def test_bad_keys(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        table(Path("stays.csv"), **fields)


@pytest.mark.parametrize(
    ("text", "encoding", "recognised"),
    [
        ("l´hôpital, N°dossier", "cp1252", True),
        ("Gràcia col·legi; 5 µg/m²; 37 °C – “fièvre” à l’été", "cp1252", True),
        ("Ångström Straße ÄRZTE créée", "cp1252", True),
        ("Zürich", "cp850", False),
        ("Zürich", "mac_roman", False),
        ("płeć żeńska", "cp1250", False),
        ("Αθήνα", "cp1253", False),
        ("北京协和医院", "gb18030", False),
        ("東京大学病院", "shift_jis", False),
    ],
)
def test_western_european_is_recognised(text: str, encoding: str, recognised: bool, tmp_path: Path) -> None:
    path = write_file(tmp_path, "t.csv", ASCII.replace("A", f'"{text}"').encode(encoding))
    if recognised:
        assert table(path).read().features["ward"][0] == text
        return
    with pytest.raises(DataError, match=r"is not UTF-8 \(first in line 2\), and its encoding cannot be recognised"):
        table(path).read()
    assert table(path, encoding=encoding).read().features["ward"][0] == text


@pytest.mark.parametrize("field", ["predictions", "table"])
def test_without_a_configuration_no_key_is_named(field: str, tmp_path: Path) -> None:
    polish = write_file(tmp_path, "t.csv", ASCII.replace("A", "płeć żeńska").encode("cp1250"))
    mixed = write_file(tmp_path, "m.csv", "x,y\nZürich,1\n".encode() + "Zürich,1\n".encode("cp1252"))
    either = write_file(tmp_path, "e.csv", "a|b\tc\n1|2\t3\n" * 3)
    for path, said in (
        (polish, "its encoding cannot be recognised; save it as UTF-8 (in Excel: Save As, CSV UTF-8)"),
        (mixed, "another encoding in line 3; save all of it as UTF-8 (in Excel: Save As, CSV UTF-8)"),
        (either, "; write its columns with commas between them, and texts that contain commas in quotation marks"),
    ):
        with pytest.raises(DataError) as caught:
            read_table(path, [], field, usual=Keys(",", ".", "utf-8"))
        assert str(caught.value).startswith(f"{field}: '{path}'")
        assert str(caught.value).endswith(said)


def test_equal_rows_without_names_are_said_to_be_values(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="begins with a row of values"):
        table(write_file(tmp_path, "t.csv", "63.0,1.0,145.0,0\n" * 9)).read()


def test_hidden_files_and_folders_are_not_proposed(tmp_path: Path) -> None:
    write_file(tmp_path, ".secret.csv", ASCII)
    write_file(tmp_path, "stays.csv", ASCII)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError) as caught:
        table(tmp_path / "other.parquet").read()
    assert str(caught.value).endswith("does not exist; known: stays.csv")


def test_an_encoding_that_is_not_the_files(tmp_path: Path) -> None:
    path = write_file(tmp_path, "t.csv", WESTERN.encode("latin-1"))
    with pytest.raises(DataError, match=r"data.encoding: '.*' is not in utf-8 \(.*\); name another, or remove the key"):
        table(path, encoding="utf-8").read()


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["63.0", "1.0", "1.0", "145.0"], True),
        (["north", "71", "2.1", "0"], True),
        (["hospital", "2019", "2020", "2021"], False),
        (["2021", "2020"], False),
        (["died", *map(str, range(64))], False),
        (["hospital", "age", "1"], False),
    ],
)
def test_numbers_as_names(names: list[str], values: bool) -> None:
    assert holds_values(names) is values


CELL = st.tuples(
    st.sampled_from(["Zürich", "Genève", "north", "a b"]),
    st.sampled_from(["Größe", "x;y", "x,y", "x|y", 'in "quotes"', "two\nlines", "", "(none)"]),
    st.none() | st.integers(-9999, 9999),
    st.integers(0, 1),
)


@settings(max_examples=60)
@given(
    rows=st.lists(CELL, min_size=1, max_size=30),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    comma=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"]),
    line=st.sampled_from(["\n", "\r\n"]),
    compressed=st.booleans(),
)
def test_a_table_is_the_same_however_it_is_written(
    rows: list[Any], separator: str, comma: bool, encoding: str, line: str, compressed: bool, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("forms")
    # The first row says which columns are text, and which numbers with a fraction.
    full_row = ("Zürich", "Größe", 15, 0)
    table_of = [(h, w, None if x is None else x / 10, y) for h, w, x, y in [full_row, *rows]]
    frame = pd.DataFrame(table_of, columns=["hospital", "ward", "x", "died"])
    frame.to_csv(folder / "plain.csv", index=False)
    plain = table(folder / "plain.csv").read()
    decimal = "," if comma and separator != "," else "."
    made = io.StringIO()
    frame.to_csv(made, sep=separator, decimal=decimal, lineterminator=line, index=False)
    content = made.getvalue().encode(encoding)
    path = write_file(folder, "other.csv", gzip.compress(content) if compressed else content)
    read = table(path).read()
    assert read.silo.tolist() == plain.silo.tolist()
    assert read.y.tolist() == plain.y.tolist()
    assert read.classes == plain.classes
    pd.testing.assert_frame_equal(read.features, plain.features)
    said = {"separator": separator != ",", "decimal": decimal != ".", "encoding": not encoding.startswith("utf-8")}
    text = " ".join(read.warnings)
    assert {key: f"data.{key}" in text for key in said} == said


class TestAFileForEachHospital:
    def test_the_files_name_the_hospitals(self, tmp_path: Path) -> None:
        write_file(tmp_path, "ward 10.csv", "age,lactate,died\n71,2.1,0\n64,3,1\n")
        write_file(tmp_path, "ward 9.csv.gz", gzip.compress(b"lactate,age,died\n1.5,50,1\n"))
        write_file(tmp_path, "notes.md", "no table")
        records = Table(path=tmp_path / "ward*", label="died").read()
        assert records.silo.tolist() == ["ward 9", "ward 10", "ward 10"]
        assert records.features["age"].tolist() == [50, 71, 64]
        assert (records.hospital_column, records.warnings) == ("hospital", ())
        assert "3 rows of" in records.notes[0]
        assert "(2 files)" in records.notes[0]

    def test_each_is_read_in_its_own_form(self, tmp_path: Path) -> None:
        write_file(tmp_path, "a.csv", german("age,lactate,died\n71,2.1,0\n"))
        write_file(tmp_path, "b.csv", "age,lactate,died\n64,3.5,1\n")
        write_file(tmp_path, "c.csv", german("age,lactate,died\n71,4.5,0\n"))
        records = Table(path=tmp_path / "*.csv", label="died").read()
        np.testing.assert_array_equal(records.features["lactate"], np.array([2.1, 3.5, 4.5], np.float32))
        (said,) = records.warnings
        assert said.startswith(f"'{tmp_path / 'a.csv'}' (and 1 more file) is read with semicolons between columns and")

    def test_a_column_that_is_text_in_one_is_text_in_all(self, tmp_path: Path) -> None:
        write_file(tmp_path, "a.csv", "age,ward,died\n71,007,0\n")
        write_file(tmp_path, "b.csv", "age,ward,died\n64,B,1\n")
        records = Table(path=tmp_path / "*.csv", label="died").read()
        assert records.features["ward"].tolist() == ["007", "B"]

    @pytest.mark.parametrize("listed", [[], ["x"]])
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (pd.Categorical(["a", "b"]), ["a", "c"]),
            ([Decimal("1.50"), Decimal(2)], [1, 3]),
            ([2**60 + 1, 2], [1.5, None]),
            (np.array([2**63 + 1, 2], np.uint64), [-1, 3]),
            ([True, False], [1.0, None]),
            ([True, None], ["TRUE", "0.0"]),
        ],
    )
    def test_columns_of_different_types_are_those_of_one_file(
        self, one: Any, other: Any, listed: list[str], tmp_path: Path
    ) -> None:
        tables = [pd.DataFrame({"hospital": ["a", "b"], "died": [0, 1], "n": range(2), "x": x}) for x in (one, other)]
        for k, table in enumerate(tables):
            table.to_parquet(tmp_path / f"{k}.parquet")
            table.to_csv(tmp_path / f"{k}.csv", index=False)
        texts = [pd.read_csv(tmp_path / f"{k}.csv", dtype=str, keep_default_na=False) for k in (0, 1)]
        pd.concat(texts).to_csv(tmp_path / "rows.csv", index=False)
        keys = {"silo": "hospital", "label": "died", "categorical": [*listed, "..."]}
        expected = Table(path=tmp_path / "rows.csv", **keys).read().features
        for pattern in ("?.parquet", "?.csv"):
            pd.testing.assert_frame_equal(Table(path=tmp_path / pattern, **keys).read().features, expected)

    def test_columns_that_differ_are_named(self, tmp_path: Path) -> None:
        write_file(tmp_path, "a.csv", "age,lactate,died,x\n71,2,0,1\n")
        write_file(tmp_path, "b.csv", "age,died,note\n64,1,u\n")
        write_file(tmp_path, "c.csv", "age,died\n64,1\n")
        records = Table(path=tmp_path / "*.csv", label="died", drop=["note"]).read()
        assert records.warnings == (
            "files do not have the same columns: 'lactate' (not in b.csv and c.csv), 'x' (not in b.csv and c.csv); "
            "their values are missing there",
        )
        assert np.isnan(records.features["lactate"][1:]).all()

    def test_a_row_is_named_with_its_file(self, tmp_path: Path) -> None:
        write_file(tmp_path, "a.csv", "age,died\n71,0\n64,1\n")
        write_file(tmp_path, "b.csv", "age,died\n64,1\nold,0\n50,\n")
        source = Table(path=tmp_path / "*.csv", label="died")
        with pytest.raises(DataError, match=r"data.label: .* has no value in 1 row \(first: row 3 of 'b.csv'\); fill"):
            source.read()
        with pytest.raises(
            DataError, match=r"column 'age' holds numbers in 4 rows .* \(first: row 2 of 'b.csv'\): 'old'"
        ):
            source.model_copy(update={"label": "age", "categorical": ["died"]}).read()

    def test_nearly_the_same_names_are_refused(self, tmp_path: Path) -> None:
        write_file(tmp_path, "a.csv", "age,sys_bp,died\n71,2,0\n")
        write_file(tmp_path, "b.csv", "age,Sys BP,died\n64,3,1\n")
        source = Table(path=tmp_path / "*.csv", label="died")
        with pytest.raises(DataError, match=r"column 'sys_bp' of 'a.csv' is 'Sys BP' in 'b.csv'; give it one name"):
            source.read()

    def test_a_line_of_totals_is_refused_and_no_rows_are_said(self, tmp_path: Path) -> None:
        rows = "patient,age,died\np1,71,0\np2,64,1\n"
        write_file(tmp_path, "a.csv", rows)
        write_file(tmp_path, "b.csv", rows + "Total:,135,1\n")
        source = Table(path=tmp_path / "*.csv", label="died")
        with pytest.raises(
            DataError, match=r"b.csv' ends with a row 'Total:' \(row 3\), which looks like a line of tot"
        ):
            source.read()
        write_file(tmp_path, "b.csv", "patient,age,died\n")
        assert source.read().warnings == (f"'{tmp_path / 'b.csv'}' has no rows",)

    def test_a_column_may_name_the_hospital_all_the_same(self, tmp_path: Path) -> None:
        write_file(tmp_path, "part1.csv", ASCII)
        write_file(tmp_path, "part2.csv", ASCII.replace("north", "east"))
        records = table(tmp_path / "part*.csv").read()
        assert records.silo.tolist() == ["north", "south", "north", "east", "south", "east"]
        with pytest.raises(
            DataError, match=r"data.silo: not set, .*part1.csv' has a column 'hospital'; set data.silo: hospital"
        ):
            Table(path=tmp_path / "part*.csv", label="died").read()

    def test_no_file_and_two_of_one_name(self, tmp_path: Path) -> None:
        source = Table(path=tmp_path / "*.csv", label="died")
        with pytest.raises(
            DataError, match=r"data.path: no file is named '.*\*.csv'; check the folder and the pattern"
        ):
            source.read()
        write_file(tmp_path, "a.csv", "age,died\n71,0\n")
        write_file(tmp_path, "a.csv.gz", gzip.compress(b"age,died\n71,0\n"))
        with pytest.raises(DataError, match=r"'.*a.csv' and '.*a.csv.gz' are both of hospital 'a'; rename one"):
            Table(path=tmp_path / "a.*", label="died").read()

    def test_the_cache_knows_names_and_contents(self, tmp_path: Path) -> None:
        write_file(tmp_path, "a.csv", "age,died\n71,0\n")
        write_file(tmp_path, "b.csv", "age,died\n64,1\n")
        source = Table(path=tmp_path / "*.csv", label="died")
        keys = {cache.source_key(source, source.files())}
        (tmp_path / "b.csv").rename(tmp_path / "c.csv")
        keys.add(cache.source_key(source, source.files()))
        write_file(tmp_path, "d.csv", "age,died\n64,1\n")
        keys.add(cache.source_key(source, source.files()))
        assert len(keys) == 3
