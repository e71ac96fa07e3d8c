"""Six features of eICU stays: from tables written here, and from the demo."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.sources.eicu.brief import EicuBrief
from raysim.data.split import Split

PATIENT = (
    "patientunitstayid,uniquepid,hospitalid,wardid,age,gender,ethnicity,admissionheight,admissionweight,"
    "unitdischargeoffset,hospitaldischargestatus\n"
)


def tables(folder: Path) -> Path:
    """Stays 1 to 4 at hospital 7, 5 at hospital 8; 3 left before six hours, 4 has no score."""
    folder.mkdir()
    rows = [
        "1,p1,7,1,> 89,Female,Asian,,,2000,Alive",
        "2,p2,7,1,60,Male,Caucasian,,,900,Alive",
        "3,p3,7,1,50,Male,Asian,,,300,Alive",
        "4,p4,7,1,40,Male,Asian,,,1441,Alive",
        "5,p5,8,1,70,Unknown,,,,1441,Expired",
    ]
    (folder / "patient.csv").write_text(PATIENT + "\n".join(rows) + "\n")
    (folder / "medication.csv").write_text(
        "patientunitstayid,drugorderoffset,drugstartoffset,drugname,drughiclseqno\n"
        "1,10,20,ASPIRIN 81 MG,1820\n1,15,20,ASPIRIN CHEW,1820\n1,10,400,HEPARIN,2810\n1,10,20,Insulin,\n"
        "2,400,20,ASPIRIN,1820\n"
    )
    (folder / "infusionDrug.csv").write_text(
        "patientunitstayid,infusionoffset,drugname,drugrate,infusionrate\n1,30,Propofol,5,\n2,30,Propofol,0,\n"
    )
    (folder / "apacheApsVar.csv").write_text("patientunitstayid,heartrate\n1,88\n2,120\n4,70\n5,60\n")
    (folder / "apachePatientResult.csv").write_text(
        "patientunitstayid,apachescore,apacheversion\n1,47,IV\n1,46,IVa\n2,81,IV\n4,-1,IV\n5,20,IV\n"
    )
    return folder


def test_the_six_features_by_hand(tmp_path: Path):
    records = EicuBrief(path=tables(tmp_path / "eicu"), hospitals=2, smallest=1).read()
    frame = records.features
    assert list(frame.columns) == ["sex", "ethnicity", "age", "medicines", "heart_rate", "apache_score"]
    assert records.silo.tolist() == ["7", "7", "8"]
    assert records.y.tolist() == [1, 0, 1]
    # Two names of one ingredient are one medicine; what is ordered or due later, or stands at rate 0, is none.
    assert frame["medicines"].tolist() == [3, 0, 0]
    assert frame["age"].tolist() == [90, 60, 70]
    assert frame["sex"].tolist()[:2] == [0, 1]
    assert np.isnan(frame["sex"].iloc[2])
    assert frame["ethnicity"].tolist() == ["Asian", "Caucasian", "unknown"]
    assert frame["heart_rate"].tolist() == [88, 120, 60]
    assert frame["apache_score"].tolist() == [47, 81, 20]
    assert records.notes[0] == "eicu_brief: 4 stays beyond 6 hours, 1 without APACHE score or rate"


def test_the_largest_hospitals_are_kept_and_too_few_are_refused(tmp_path: Path):
    folder = tables(tmp_path / "eicu")
    assert set(EicuBrief(path=folder, hospitals=1, smallest=1).read().silo) == {"7"}
    with pytest.raises(
        DataError, match=r"data.hospitals: 2, but the number of hospitals with 2 stays or more is 1; lower"
    ):
        EicuBrief(path=folder, hospitals=2, smallest=2).read()
    (folder / "apachePatientResult.csv").unlink()
    with pytest.raises(DataError, match=r"has no apachePatientResult.csv\(.gz\), which source eicu_brief needs"):
        list(EicuBrief(path=folder).files())


def test_a_damaged_table_is_named(tmp_path: Path):
    folder = tables(tmp_path / "eicu")
    whole = gzip.compress((folder / "medication.csv").read_bytes())
    (folder / "medication.csv").unlink()
    (folder / "medication.csv.gz").write_bytes(whole[:-8])
    with pytest.raises(DataError, match=r"medication.csv.gz is a damaged gzip file"):
        EicuBrief(path=folder, hospitals=1, smallest=1).read()


def test_the_demo(data_folder: Path):
    source = EicuBrief(path=data_folder / "eicu_demo")
    federation = build(source, Split(train=0.7, validation=0.0, test=0.3))
    assert len(federation.hospitals) == 20
    assert federation.totals.min() >= 10
    assert federation.X.shape == (300, 11)
    assert set(federation.attributes) == {"region", "beds", "teaching"}
