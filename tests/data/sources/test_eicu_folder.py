"""Tiny eICU folders made by hand, which the other ``test_eicu`` files use, and the tests of folders that are bad."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from raysim.core.errors import DataError
from raysim.data.records import Records
from raysim.data.sources.eicu.features import TABLES
from raysim.data.sources.eicu.source import Eicu

Rows = list[dict[str, Any]]

# Columns that the official tables have beside those that are read: discharge, outcome and what is written later.
BESIDES = {
    "patient": (
        *("patienthealthsystemstayid", "apacheadmissiondx", "hospitaladmitoffset", "hospitaldischargeyear"),
        *("hospitaldischargetime24", "hospitaldischargeoffset", "hospitaldischargelocation", "dischargeweight"),
        *("unitdischargetime24", "unitdischargelocation", "unitdischargestatus"),
    ),
    "apachePredVar": ("diedinhospital", "dischargelocation", "var03hspxlos", "gender", "age", "visitnumber"),
    "apachePatientResult": (
        *("patientunitstayid", "apachescore", "actualicumortality", "actualhospitalmortality", "actualiculos"),
        *("actualhospitallos", "actualventdays", "predictedicumortality", "predictedhospitalmortality"),
        *("predictediculos", "predictedhospitallos", "predventdays", "unabridgedunitlos", "unabridgedhosplos"),
    ),
    "carePlanEOL": ("patientunitstayid", "cpleolsaveoffset", "cpleoldiscussionoffset", "activeupondischarge"),
    "diagnosis": ("activeupondischarge", "icd9code", "diagnosispriority"),
    "treatment": ("activeupondischarge",),
    "carePlanGeneral": ("activeupondischarge",),
    "respiratoryCare": ("ventstartoffset", "ventendoffset", "priorventstartoffset", "priorventendoffset"),
    "medication": ("drugordercancelled", "drugstopoffset"),
}


def columns(table: str) -> list[str]:
    return list(dict.fromkeys((*TABLES.get(table, ()), *BESIDES.get(table, ()))))


def patient(stay: int, **fields: Any) -> dict[str, Any]:
    """An adult who stayed two days in hospital 1 and lived, but for ``fields``."""
    return {
        "patientunitstayid": stay,
        "uniquepid": f"001-{stay}",
        "hospitalid": 1,
        "wardid": 10,
        "age": 60,
        "gender": "Female",
        "ethnicity": "Caucasian",
        "admissionheight": 160,
        "admissionweight": 64,
        "unitdischargeoffset": 2880,
        "hospitaldischargestatus": "Alive",
        **fields,
    }


def row(stay: int, offset: int, table: str, **fields: Any) -> dict[str, Any]:
    """A row of ``table`` recorded, and entered, ``offset`` minutes after unit admission."""
    times = {name: offset for name in columns(table) if name.endswith("offset") and name not in BESIDES.get(table, ())}
    return {"patientunitstayid": stay, **times, **fields}


def everything() -> dict[str, Rows]:
    """Every table, for stays 1 (two days, lived), 2 (died after 30 hours) and 3 (died after 5 hours)."""
    tables: dict[str, Rows] = {
        "patient": [
            patient(1),
            patient(2, hospitaldischargestatus="Expired", unitdischargeoffset=1800, hospitalid=2, age="> 89"),
            patient(3, hospitaldischargestatus="Expired", unitdischargeoffset=300, hospitalid=2, gender="Male"),
        ],
        "hospital": [
            {"hospitalid": 1, "numbedscategory": "100 - 249", "teachingstatus": "TRUE", "region": "Midwest"},
            {"hospitalid": 2, "numbedscategory": ">= 500", "teachingstatus": "f", "region": "South"},
        ],
    }
    for stay in (1, 2, 3):
        for table, fields in ROWS:
            tables.setdefault(table, []).append(row(stay, 10, table, **fields))
    return tables


def stay_of(copy: int, stay: int) -> int:
    """The number of a stay of ``everything`` in a copy of :func:`copied`; numbers are all of one length."""
    return 1000 + 10 * copy + stay


def copied(tables: Mapping[str, Rows], count: int) -> dict[str, Rows]:
    """``tables`` in which all stays, and patients, are there ``count`` times, numbered by :func:`stay_of`."""
    return {
        table: rows if table == "hospital" else [of_copy(copy, row) for copy in range(count) for row in rows]
        for table, rows in tables.items()
    }


def of_copy(copy: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row, of another stay and patient."""
    stay = stay_of(copy, row["patientunitstayid"])
    return {**row, "patientunitstayid": stay, **({"uniquepid": f"001-{stay}"} if "uniquepid" in row else {})}


def features_of_copies(records: Records, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The features of the stays of each copy, which have these names."""
    count, rest = divmod(len(records.features), len(names))
    assert rest == 0
    return {
        name: records.features.iloc[k * count : (k + 1) * count].reset_index(drop=True) for k, name in enumerate(names)
    }


EXAM = "notes/Progress Notes/Physical Exam/Physical Exam"
PAST = "notes/Progress Notes/Past History/Organ Systems"
DX = "admission diagnosis|All Diagnosis|Non-operative|Diagnosis"
OUT = "flowsheet|Flowsheet Cell Labels|I&O|Output (ml)"
GCS = f"{EXAM}/Neurologic/GCS"

# One ordinary row of every table but ``patient`` and ``hospital``, for :func:`everything`.
ROWS: list[tuple[str, dict[str, Any]]] = [
    ("vitalPeriodic", {"heartrate": 80, "sao2": 97, "respiration": 18, "temperature": 37, "systemicmean": 80}),
    ("vitalAperiodic", {"noninvasivesystolic": 120, "noninvasivediastolic": 70, "noninvasivemean": 87}),
    (
        "nurseCharting",
        {
            "nursingchartcelltypevallabel": "Glasgow coma score",
            "nursingchartcelltypevalname": "GCS Total",
            "nursingchartvalue": 15,
        },
    ),
    ("physicalExam", {"physicalexampath": f"{GCS}/14", "physicalexamtext": 14}),
    ("lab", {"labname": "sodium", "labresult": 140}),
    ("intakeOutput", {"cellpath": f"{OUT}|Urine", "celllabel": "Urine", "cellvaluenumeric": 240}),
    ("apacheApsVar", {"sodium": 140, "heartrate": 100, "eyes": 4, "motor": 6, "verbal": 5, "meds": 0, "vent": 0}),
    ("apachePredVar", {"diabetes": 0, "diedinhospital": 0, "dischargelocation": 4, "var03hspxlos": -1}),
    ("pastHistory", {"pasthistorypath": f"{PAST}/Pulmonary/COPD/COPD  - moderate"}),
    ("diagnosis", {"diagnosisstring": "renal|disorder of kidney|acute renal failure", "activeupondischarge": "True"}),
    ("admissionDx", {"admitdxpath": f"{DX}|Respiratory|Asthma", "admitdxname": "Asthma"}),
    ("medication", {"drugname": "LORazepam 2 mg/ml", "drugordercancelled": "No", "drugstopoffset": 1000}),
    ("infusionDrug", {"drugname": "Heparin (ml/hr)", "drugrate": 5}),
    ("treatment", {"treatmentstring": "renal|urinary catheters|foley catheter", "activeupondischarge": "True"}),
    ("carePlanGeneral", {"cplgroup": "Activity", "cplitemvalue": "Bedrest", "activeupondischarge": "True"}),
    ("respiratoryCare", {"airwaytype": "No Artificial Airway", "ventstartoffset": 0, "ventendoffset": 0}),
    ("respiratoryCharting", {"respchartvaluelabel": "RT Vent On/Off", "respchartvalue": "Off"}),
    ("apachePatientResult", {"actualicumortality": "ALIVE", "predictedhospitalmortality": 0.1}),
    ("carePlanEOL", {"cpleoldiscussionoffset": 0, "activeupondischarge": "False"}),
]


def write(folder: Path, tables: Mapping[str, Rows], *, lower: bool = False, packed: bool = False) -> Path:
    """Write ``tables`` as eICU csv files: official or lower-case names, plain or gzip."""
    folder.mkdir(exist_ok=True)
    for table, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(text, columns(table), restval="", quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows(rows)
        name = f"{table.lower() if lower else table}.csv"
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
        else:
            (folder / name).write_text(text.getvalue(), encoding="utf-8")
    return folder


def message(folder: Path, **fields: Any) -> str:
    """The one-line error of reading ``folder``."""
    with pytest.raises(DataError) as caught:
        Eicu(path=folder, **fields).read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(
        tmp_path / "eicu",
        {"patient": [patient(1), patient(2, hospitaldischargestatus="Expired")]},
    )


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    wanted = f"data.path: {tmp_path / 'none'} is not a folder: name the folder of the eICU tables"
    assert message(tmp_path / "none") == wanted
    with pytest.raises(DataError, match="is not a folder"):
        list(Eicu(path=tmp_path / "none").files())


def test_no_patient_table(tmp_path: Path) -> None:
    wanted = f"data.path: {tmp_path} has no patient.csv(.gz): name the folder of the eICU tables"
    assert message(tmp_path) == wanted
    with pytest.raises(DataError, match="has no patient"):
        list(Eicu(path=tmp_path).files())


def test_region_beds_without_the_hospital_table(folder: Path) -> None:
    assert "data.silo: region_beds needs hospital.csv(.gz)" in message(folder, silo="region_beds")
    with pytest.raises(DataError, match="region_beds needs"):
        list(Eicu(path=folder, silo="region_beds").files())


def test_one_table_in_two_files(folder: Path) -> None:
    write(folder, {"patient": [patient(1)]}, packed=True)
    assert "has both patient.csv and patient.csv.gz: keep one of them" in message(folder)


def test_columns_that_are_not_there(folder: Path) -> None:
    (folder / "lab.csv").write_text("patientunitstayid,labname,labresult\n1,sodium,140\n")
    assert message(folder) == (
        f"data.path: {folder / 'lab.csv'} has no column labresultoffset, labresultrevisedoffset: "
        "download it again, or move it away to run without it"
    )


@pytest.mark.parametrize("text", ["", "\n", ",".join(TABLES["lab"]) + "\n", ",".join(TABLES["lab"]) + "\n\n\n"])
def test_an_empty_table(folder: Path, text: str) -> None:
    (folder / "lab.csv").write_text(text)
    assert f"{folder / 'lab.csv'} has no rows" in message(folder)


def test_ragged_rows(folder: Path) -> None:
    (folder / "lab.csv").write_text(",".join(TABLES["lab"]) + "\n1,10,10,sodium,140\n1,10,10\n")
    assert message(folder) == (
        f"data.path: {folder / 'lab.csv'} has 3 values in line 3, but 5 columns: "
        "download it again, or move it away to run without it"
    )


def test_a_quote_that_is_not_closed(folder: Path) -> None:
    (folder / "lab.csv").write_text(",".join(TABLES["lab"]) + '\n1,10,10,"sodium,140\n')
    assert "lab.csv has a quote that is not closed in line 2" in message(folder)


def test_text_that_is_not_utf8(folder: Path) -> None:
    (folder / "lab.csv").write_bytes(",".join(TABLES["lab"]).encode() + b"\n1,10,10,sodium\xe9,140\n")
    assert "lab.csv is not UTF-8 text" in message(folder)


def packed_labs(rows: int = 5000) -> bytes:
    lines = [f"1,{i},{i},sodium,{130 + i % 17}.{i * 7919 % 10}" for i in range(rows)]
    return gzip.compress("\n".join([",".join(TABLES["lab"]), *lines]).encode())


@pytest.mark.parametrize("damage", ["plain", "cut", "flipped", "checksum"])
def test_a_damaged_gzip(folder: Path, damage: str) -> None:
    packed = bytearray(packed_labs())
    if damage == "plain":
        packed = bytearray(b"patientunitstayid,labname\n1,sodium\n")
    elif damage == "cut":
        packed = packed[: len(packed) // 2]
    elif damage == "flipped":
        packed[len(packed) // 2] ^= 0x55
    else:
        packed[-6] ^= 1
    (folder / "lab.csv.gz").write_bytes(packed)
    assert f"{folder / 'lab.csv.gz'} is a damaged gzip file" in message(folder)


def test_a_stay_listed_twice(tmp_path: Path) -> None:
    write(tmp_path, {"patient": [patient(1), patient(1), patient(2)]})
    assert "patient.csv lists stays more than once (1 row too many by patientunitstayid)" in message(tmp_path)


def test_nobody_left(tmp_path: Path) -> None:
    write(tmp_path, {"patient": [patient(1, age=17), patient(2, hospitaldischargestatus="")]})
    assert "has no stay that can be used: left out are 1 under 18 years, 1 without a known outcome" in message(tmp_path)


def test_numbers_that_are_none_are_missing_wherever_they_stand(folder: Path) -> None:
    lab = {"patientunitstayid": 1, "labresultoffset": 10, "labresultrevisedoffset": 10, "labname": "sodium"}
    rows = [{**lab, "labresult": 140}] * 30_000 + [{**lab, "labresult": "see note"}]
    assert Eicu(path=write(folder, {"lab": rows})).read().features["sodium_mean"][0] == 140


def test_nothing_is_left_in_the_temporary_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Eicu(path=folder).read()
    (folder / "lab.csv.gz").write_bytes(packed_labs()[:-20])
    message(folder)
    assert [file.name for file in tmp_path.iterdir()] == ["eicu"]
