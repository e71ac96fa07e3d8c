"""The ``eicu`` source: files, tasks, silos and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from raysim.data.sources.eicu.features import DOMAINS, TABLES
from raysim.data.sources.eicu.source import Eicu
from tests.data.sources.test_eicu import read
from tests.data.sources.test_eicu_folder import everything, patient, row, write

nan = float("nan")


def test_names_and_packing_of_the_files_do_not_matter(tmp_path: Path) -> None:
    official = Eicu(path=write(tmp_path / "a", everything()))
    lower = Eicu(path=write(tmp_path / "b", everything(), lower=True, packed=True))
    assert official.read().features.equals(lower.read().features)
    assert [file.name.lower() + ".gz" for file in official.files()] == [file.name for file in lower.files()]
    assert "vitalPeriodic.csv" in {file.name for file in official.files()}
    assert not {"apachePatientResult.csv", "carePlanEOL.csv"} & {file.name for file in official.files()}


def test_rows_come_by_stay_whatever_their_order_in_the_files(tmp_path: Path) -> None:
    tables = everything()
    first = read(tmp_path / "a", tables)
    second = read(tmp_path / "b", {table: rows[::-1] for table, rows in tables.items()})
    assert first.features.equals(second.features)
    assert first.group is not None
    assert first.group.tolist() == ["001-1", "001-2", "001-3"]
    for name in ("y", "silo", "group"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_missing_tables_cost_features_and_one_warning(tmp_path: Path) -> None:
    tables = {table: rows for table, rows in everything().items() if table not in ("lab", "diagnosis", "hospital")}
    records = read(tmp_path, tables)
    (warning,) = records.warnings
    assert warning.startswith(f"data.path: {tmp_path} lacks 3 tables of eICU: hospital (costs region, beds and teach")
    assert "lab (costs sodium, potassium, creatinine, lactate, wbc" in warning
    assert "diagnosis (sepsis, cardiac_arrest, pneumonia, trauma only from other tables)" in warning
    assert not set(DOMAINS["labs"]) & set(records.features)
    assert set(DOMAINS["diagnosis"]) <= set(records.features)
    assert records.attributes == {}


def test_only_the_patient_table(tmp_path: Path) -> None:
    records = read(tmp_path, {"patient": [patient(1)]})
    assert list(records.features) == ["age", "sex", "bmi"]
    (warning,) = records.warnings
    assert all(f"{table} (" in warning for table in TABLES if table != "patient")


def test_mortality_leaves_out_children_and_unknown_outcomes(tmp_path: Path) -> None:
    rows = [
        patient(1, hospitaldischargestatus="Expired"),
        patient(2, uniquepid="001-1"),
        patient(3, age=17),
        patient(4, age=""),
        patient(5, hospitaldischargestatus=""),
        patient(6, hospitalid=""),
    ]
    records = read(tmp_path, {"patient": rows})
    assert records.classes == ("alive", "expired")
    assert records.y.tolist() == [1, 0]
    assert records.group is not None
    assert records.group.tolist() == ["001-1", "001-1"]
    assert records.notes[:4] == (
        "patient: 6 stays of 5 patients",
        "left out: 1 of unknown age, 1 under 18 years, 1 without a hospital, 1 without a known outcome",
        "mortality: 1 of 2 stays are expired (50.0%)",
        "prediction time: 24 hours after unit admission",
    )
    assert {name: values.tolist() for name, values in records.patients.items()} == {
        "sex": ["Female", "Female"],
        "ethnicity": ["Caucasian", "Caucasian"],
        "age": [60.0, 60.0],
    }


def test_length_of_stay_is_predicted_at_six_hours_without_apache(tmp_path: Path) -> None:
    tables = everything()
    tables["patient"] += [patient(4, unitdischargeoffset=1440), patient(5, unitdischargeoffset=1441)]
    tables["patient"] += [patient(6, unitdischargeoffset=360), patient(7, hospitaldischargestatus="")]
    tables["lab"] += [row(4, 360, "lab", labname="sodium", labresult=130)]
    tables["lab"] += [row(4, 361, "lab", labname="sodium", labresult=120)]
    records = read(tmp_path, tables, task="los")
    assert records.classes == ("up to one day", "over one day")
    assert records.y.tolist() == [1, 1, 0, 1, 1]  # stays 3 and 6 ended by the prediction time
    assert "left out: 2 that ended within 6 hours" in records.notes
    assert records.features["sodium_min"].iloc[2] == 130
    assert not [name for name in records.features if str(name).startswith("apache")]
    assert "apacheApsVar and apachePredVar: not used, their values are of the first 24 hours" in records.notes
    assert records.warnings == ()
    assert not [file for file in Eicu(path=tmp_path, task="los").files() if "apache" in file.name]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": "los", "hours": 24}, "hours: 24 must be below 24"),
        ({"task": "los", "minimum_hours": 2}, r"minimum_hours: 2 is below hours \(6\)"),
        ({"task": "aki", "hours": 49}, r"minimum_hours: 48 is below hours \(49\)"),
        ({"hours": 0}, "greater than 0"),
        ({"minimum_hours": -1}, "greater than or equal to 0"),
        ({"task": "delirium"}, "'mortality', 'los', 'los_days' or 'aki'"),
        ({"silos": "ward"}, "Extra inputs"),
    ],
)
def test_fields_that_cannot_be(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Eicu.model_validate({"path": "x", **fields})


def test_minimum_hours_leaves_out_short_stays(tmp_path: Path) -> None:
    records = read(tmp_path, everything(), minimum_hours=24)
    assert records.y.tolist() == [0, 1]
    assert "left out: 1 that ended within 24 hours" in records.notes


def test_silos(tmp_path: Path) -> None:
    tables = everything()
    tables["patient"] += [patient(4, hospitalid=3, wardid=""), patient(5, hospitalid=4), patient(6, hospitalid=9)]
    unknown = {"hospitalid": 3, "numbedscategory": "", "teachingstatus": "", "region": ""}
    midwest = {"hospitalid": 4, "numbedscategory": "100 - 249", "teachingstatus": "FALSE", "region": "Midwest"}
    tables["hospital"] += [unknown, midwest]
    write(tmp_path, tables)
    assert Eicu(path=tmp_path).read().silo.tolist() == ["1", "2", "2", "3", "4", "9"]
    wards = Eicu(path=tmp_path, silo="ward").read()
    assert wards.silo.tolist() == ["1/10", "2/10", "2/10", "3/unknown", "4/10", "9/10"]
    assert wards.attributes["2/10"] == {"region": "South", "beds": ">= 500", "teaching": "no"}
    coarse = Eicu(path=tmp_path, silo="region_beds").read()
    midwest_name = "Midwest, 100 - 249"
    assert coarse.silo.tolist() == [midwest_name, *["South, >= 500"] * 2, "unknown", midwest_name, "unknown"]
    assert coarse.attributes[midwest_name] == {"region": "Midwest", "beds": "100 - 249", "teaching": "mixed"}
    assert coarse.attributes["unknown"] == dict.fromkeys(("region", "beds", "teaching"), "unknown")


def test_notes_say_what_each_table_gave(tmp_path: Path) -> None:
    notes = read(tmp_path, everything()).notes
    for table in set(TABLES) - {"patient", "hospital"}:
        assert f"{table}: 3 rows known in time, of 3 stays" in notes


def test_the_demo(data_folder: Path) -> None:
    records = Eicu(path=data_folder / "eicu_demo").read()
    assert records.notes[:4] == (
        "patient: 2,520 stays of 1,841 patients",
        "left out: 4 of unknown age, 4 under 18 years, 28 without a known outcome",
        "mortality: 210 of 2,484 stays are expired (8.5%)",  # 212 of 2,492 with an outcome, before the adults
        "prediction time: 24 hours after unit admission; the minute before their end for 882 stays that ended sooner",
    )
    assert len(set(records.silo.tolist())) == 186
    assert records.features.shape == (2484, 75)
    assert (records.features["age"] == 90).sum() == 98
    present = records.features.notna().mean()
    assert present["apache_heart_rate"] == pytest.approx(0.858, abs=0.001)
    assert present["apache_ph"] == pytest.approx(0.162, abs=0.001)
    (warning,) = records.warnings
    assert "lacks 3 tables of eICU: vitalPeriodic (" in warning


def test_the_demo_by_region_and_beds(data_folder: Path) -> None:
    records = Eicu(path=data_folder / "eicu_demo", silo="region_beds", task="los").read()
    assert len(set(records.silo.tolist())) == 23
    assert records.y.mean() == pytest.approx(0.703, abs=0.001)
    assert records.features.shape == (2307, 57)
