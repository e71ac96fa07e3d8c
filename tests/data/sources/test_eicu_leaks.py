"""Nothing of the future in the features of the ``eicu`` source: each leak is planted, and must change no byte.

Planted are every field of discharge and outcome, and in every table a row that came too late. The same row in time is
planted too and must be seen, so that no test passes because its row says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.data.records import Records
from raysim.data.sources.eicu.features import DOMAINS, TABLES
from raysim.data.sources.eicu.source import Eicu
from raysim.data.sources.eicu.tables import sql
from tests.data.sources.test_eicu_folder import (
    BESIDES,
    DX,
    GCS,
    OUT,
    PAST,
    Rows,
    copied,
    everything,
    features_of_copies,
    of_copy,
    patient,
    row,
    stay_of,
    write,
)


def read(folder: Path, tables: dict[str, Rows], **fields: Any) -> Records:
    return Eicu(path=write(folder, tables), **fields).read()


def same_bytes(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return list(one) == list(other) and one.to_numpy().tobytes() == other.to_numpy().tobytes()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return read(tmp_path_factory.mktemp("eicu") / "clean", everything())


@pytest.fixture(scope="module")
def clean_los(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return read(tmp_path_factory.mktemp("eicu") / "clean", everything(), task="los")


# A discharge or outcome field, and what it is changed to. The window is over for the stays changed (1 and 2), so that
# even the end of the stay, which decides the window of shorter stays, must not matter.
FIELDS: list[tuple[str, str, Any]] = [
    ("patient", "hospitaldischargestatus", "Expired"),
    ("patient", "hospitaldischargeyear", 2099),
    ("patient", "hospitaldischargetime24", "23:59:59"),
    ("patient", "hospitaldischargeoffset", 1441),
    ("patient", "hospitaldischargelocation", "Death"),
    ("patient", "unitdischargestatus", "Expired"),
    ("patient", "unitdischargetime24", "23:59:59"),
    ("patient", "unitdischargeoffset", 99_999),
    ("patient", "unitdischargelocation", "Death"),
    ("patient", "dischargeweight", 300),
    ("apachePredVar", "diedinhospital", 1),
    ("apachePredVar", "dischargelocation", 9),
    ("apachePredVar", "var03hspxlos", 90),
    ("diagnosis", "activeupondischarge", "False"),
    ("treatment", "activeupondischarge", "False"),
    ("carePlanGeneral", "activeupondischarge", "False"),
    ("carePlanEOL", "activeupondischarge", "True"),
    ("carePlanEOL", "cpleolsaveoffset", 5),
    ("respiratoryCare", "ventendoffset", 5000),
    ("respiratoryCare", "priorventendoffset", 5000),
    ("medication", "drugordercancelled", "Yes"),
    ("medication", "drugstopoffset", 5000),
]


def test_a_field_of_discharge_or_outcome(tmp_path: Path, clean: Records) -> None:
    """Each is changed in a copy of all stays of its own."""
    tables = copied(everything(), len(FIELDS))
    for copy, (table, column, value) in enumerate(FIELDS):
        stays = {stay_of(copy, 1), stay_of(copy, 2)}
        rows = [each for each in tables[table] if each["patientunitstayid"] in stays]
        assert len(rows) == 2
        for changed in rows:
            assert changed.get(column) != value or column == "hospitaldischargestatus"
            changed[column] = value
    records = read(tmp_path, tables)
    fields = [f"{table}.{column}" for table, column, _ in FIELDS]
    features = features_of_copies(records, fields)
    assert [field for field in fields if not same_bytes(features[field], clean.features)] == []
    labels = dict(zip(fields, records.y.reshape(len(fields), 3).tolist(), strict=True))
    assert labels["patient.hospitaldischargestatus"] == [1, 1, 1] != clean.y.tolist()


def test_actual_and_predicted_outcomes_of_apache(tmp_path: Path, clean: Records) -> None:
    tables = everything()
    outcomes = dict.fromkeys(BESIDES["apachePatientResult"][1:], 99)
    assert any(name.startswith("actual") for name in outcomes)
    assert any(name.startswith("predicted") for name in outcomes)
    tables["apachePatientResult"] = [{**result, **outcomes} for result in tables["apachePatientResult"]]
    assert same_bytes(read(tmp_path, tables).features, clean.features)


@pytest.mark.parametrize("table", ["apachePatientResult", "carePlanEOL"])
def test_a_table_of_outcomes_is_not_even_opened(tmp_path: Path, clean: Records, table: str) -> None:
    write(tmp_path, everything())
    (tmp_path / f"{table}.csv").write_bytes(b"\xff not a table")
    assert same_bytes(Eicu(path=tmp_path).read().features, clean.features)


def test_comfort_care_in_the_care_plan(tmp_path: Path, clean: Records) -> None:
    tables = everything()
    for item in ("Comfort measures only", "Do not resuscitate"):
        plan = row(1, 10, "carePlanGeneral", cplgroup="Care Limitation", cplitemvalue=item)
        tables["carePlanGeneral"].append(plan)
    tables["carePlanGeneral"].append(row(1, 10, "carePlanGeneral", cplgroup="Prognosis", cplitemvalue="Terminal"))
    assert same_bytes(read(tmp_path, tables).features, clean.features)


# A row of every table with a time, which changes a feature of a stay of ``everything`` where it is known in time.
POISON: dict[str, dict[str, Any]] = {
    "vitalPeriodic": {"heartrate": 200},
    "vitalAperiodic": {"noninvasivesystolic": 40},
    "nurseCharting": {
        "nursingchartcelltypevallabel": "Glasgow coma score",
        "nursingchartcelltypevalname": "GCS Total",
        "nursingchartvalue": 3,
    },
    "physicalExam": {"physicalexampath": f"{GCS}/3", "physicalexamtext": 3},
    "lab": {"labname": "lactate", "labresult": 20},
    "intakeOutput": {"cellpath": f"{OUT}|Urine", "celllabel": "Urine", "cellvaluenumeric": 4000},
    "pastHistory": {"pasthistorypath": f"{PAST}/Neurologic/Dementia/dementia"},
    "diagnosis": {"diagnosisstring": "cardiovascular|cardiac arrest|cardiac arrest"},
    "admissionDx": {"admitdxname": "Cardiac arrest", "admitdxpath": f"{DX}|Trauma|Head only trauma"},
    "medication": {"drugname": "VANCOMYCIN"},
    "infusionDrug": {"drugname": "Norepinephrine", "drugrate": 30},
    "treatment": {"treatmentstring": "pulmonary|ventilation and oxygenation|mechanical ventilation"},
    "carePlanGeneral": {"cplgroup": "Airway", "cplitemvalue": "Intubated/oral ETT"},
    "respiratoryCare": {"airwaytype": "Oral ETT"},
    "respiratoryCharting": {"respchartvaluelabel": "RT Vent On/Off", "respchartvalue": "Start"},
}

# The offsets at which a row of the table can only come to be known later than it was recorded.
ENTERED = {
    "nurseCharting": "nursingchartentryoffset",
    "lab": "labresultrevisedoffset",
    "intakeOutput": "intakeoutputentryoffset",
    "pastHistory": "pasthistoryenteredoffset",
    "medication": "drugorderoffset",
    "respiratoryCharting": "respchartentryoffset",
}

# History and the reasons of admission are older than a day by nature.
TIMELESS = ("pastHistory", "admissionDx")


def test_every_table_with_a_time_is_poisoned() -> None:
    timed = {table for table, read in TABLES.items() if any(name.endswith("offset") for name in read)} - {"patient"}
    assert timed == set(POISON)
    assert set(TABLES) - timed == {"patient", "hospital", "apacheApsVar", "apachePredVar"}
    several = {table for table in timed if sum(name.endswith("offset") for name in TABLES[table]) > 1}
    assert several == set(ENTERED)


def poisoned(rows: Callable[[str], Rows]) -> dict[str, Rows]:
    """:func:`everything` once for each table of ``POISON``, in whose copy the table has ``rows`` of it more."""
    tables = copied(everything(), len(POISON))
    for copy, table in enumerate(POISON):
        tables[table] += [of_copy(copy, fields) for fields in rows(table)]
    return tables


def late(table: str) -> Rows:
    poison = POISON[table]
    rows = [row(1, 1441, table, **poison), row(2, 1500, table, **poison), row(1, 9999, table, **poison)]
    # Stay 3 ended after 300 minutes: what is charted at its end, or later, was not known before it.
    rows += [row(3, 300, table, **poison), row(3, 301, table, **poison), row(3, 1440, table, **poison)]
    if table in ENTERED:
        rows += [row(1, 10, table, **poison, **{ENTERED[table]: 1441})]
        rows += [row(3, 10, table, **poison, **{ENTERED[table]: 300})]
    if table not in TIMELESS:
        rows += [row(1, -1441, table, **poison)]
    return rows


def test_a_row_after_the_prediction_time(tmp_path: Path, clean: Records) -> None:
    features = features_of_copies(read(tmp_path / "late", poisoned(late)), list(POISON))
    assert [table for table in POISON if not same_bytes(features[table], clean.features)] == []

    def in_time(table: str) -> Rows:
        return [row(1, 1440, table, **POISON[table]), row(3, 299, table, **POISON[table])]

    seen = features_of_copies(read(tmp_path / "in time", poisoned(in_time)), list(POISON))
    changed = {table: (seen[table].fillna(-1) != clean.features.fillna(-1)).any(axis=1).tolist() for table in POISON}
    assert changed == {table: [True, False, True] for table in POISON}


def test_a_row_after_six_hours_of_the_task_los(tmp_path: Path, clean_los: Records) -> None:
    def late(table: str) -> Rows:
        return [row(1, 361, table, **POISON[table]), row(2, 1440, table, **POISON[table])]

    features = features_of_copies(read(tmp_path / "late", poisoned(late), task="los"), list(POISON))
    assert [table for table in POISON if not same_bytes(features[table], clean_los.features)] == []


def test_apache_before_its_24_hours_are_over(tmp_path: Path, clean: Records, clean_los: Records) -> None:
    tables = everything()
    worst = dict.fromkeys(("intubated", "vent", "dialysis", "diabetes", "aids", "electivesurgery"), 1)
    for table in ("apacheApsVar", "apachePredVar"):
        of_table = {name: 1 for name in worst if name in TABLES[table]}
        tables[table] = [{**old, **of_table, **({"sodium": 180} if "sodium" in old else {})} for old in tables[table]]
    assert same_bytes(read(tmp_path, tables, task="los").features, clean_los.features)
    before = read(tmp_path, tables, hours=23.9)
    assert not [name for name in before.features if str(name).startswith("apache")]
    assert not before.features[["intubation", "ventilation", "dialysis", "history_diabetes", "surgery"]].any(axis=None)
    assert not same_bytes(read(tmp_path, tables).features, clean.features)


def test_the_length_of_a_longer_stay_does_not_show_in_los(tmp_path: Path) -> None:
    """Stays that differ only in their end, and in what was charted after six hours, have the same features."""
    tables: dict[str, Rows] = {"patient": [patient(1, unitdischargeoffset=361), patient(2, unitdischargeoffset=9999)]}
    for table, poison in POISON.items():
        tables[table] = [row(stay, 60, table, **poison) for stay in (1, 2)]
        tables[table] += [row(2, offset, table, **poison) for offset in range(361, 2000, 60)]
    records = read(tmp_path, tables, task="los")
    assert records.y.tolist() == [0, 1]
    first, second = records.features.to_numpy()
    np.testing.assert_array_equal(first, second)


def test_no_discharge_or_outcome_column_is_read_but_for_label_and_end() -> None:
    leaks = re.compile(
        "discharge|died|death|actual|predict|status|los$|activeupon|stop|cancel|ventend|eol", re.IGNORECASE
    )
    read_columns = {name for table in TABLES.values() for name in table if leaks.search(name)}
    expected = {"unitdischargeoffset", "hospitaldischargestatus", "teachingstatus", "respcarestatusoffset"}
    assert read_columns == expected
    assert not {table for table in TABLES if leaks.search(table)}
    for domain in set(DOMAINS) - {"cohort"}:
        code = re.sub("--.*", "", sql(domain)).replace("respcarestatusoffset", "")
        assert not leaks.search(code.replace("predictors", "")), domain
        assert not re.search(r"\bFROM patient\b", code), domain
    assert not {feature for domain in DOMAINS.values() for feature in domain if leaks.search(feature)}
