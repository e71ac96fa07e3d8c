"""Nothing of the future in the features of the ``eicu`` source: each leak is planted, and must change no byte.

Planted are every field of discharge and outcome, and in every table a row that came too late. The same row in time is
planted too and must be seen, so that no test passes because its row says nothing.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.data.records import Records
from raysim.data.sources.eicu.features import DOMAINS, TABLES
from raysim.data.sources.eicu.source import Eicu
from raysim.data.sources.eicu.tables import sql
from tests.data.sources.test_eicu_folder import BESIDES, DX, GCS, OUT, PAST, Rows, everything, patient, row, write


def read(folder: Path, tables: dict[str, Rows], **fields: Any) -> Records:
    return Eicu(path=write(folder, tables), **fields).read()


def same_bytes(one: Records, other: Records) -> bool:
    return list(one.features) == list(other.features) and (
        one.features.to_numpy().tobytes() == other.features.to_numpy().tobytes()
    )


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


@pytest.mark.parametrize(("table", "column", "value"), FIELDS)
def test_a_field_of_discharge_or_outcome(tmp_path: Path, clean: Records, table: str, column: str, value: Any) -> None:
    tables = everything()
    for changed in tables[table][:2]:
        assert changed.get(column) != value or column == "hospitaldischargestatus"
        changed[column] = value
    records = read(tmp_path, tables)
    assert same_bytes(records, clean)
    if column == "hospitaldischargestatus":
        assert records.y.tolist() == [1, 1, 1] != clean.y.tolist()


def test_actual_and_predicted_outcomes_of_apache(tmp_path: Path, clean: Records) -> None:
    tables = everything()
    outcomes = dict.fromkeys(BESIDES["apachePatientResult"][1:], 99)
    assert any(name.startswith("actual") for name in outcomes)
    assert any(name.startswith("predicted") for name in outcomes)
    tables["apachePatientResult"] = [{**result, **outcomes} for result in tables["apachePatientResult"]]
    assert same_bytes(read(tmp_path, tables), clean)


@pytest.mark.parametrize("table", ["apachePatientResult", "carePlanEOL"])
def test_a_table_of_outcomes_is_not_even_opened(tmp_path: Path, clean: Records, table: str) -> None:
    write(tmp_path, everything())
    (tmp_path / f"{table}.csv").write_bytes(b"\xff not a table")
    assert same_bytes(Eicu(path=tmp_path).read(), clean)


def test_comfort_care_in_the_care_plan(tmp_path: Path, clean: Records) -> None:
    tables = everything()
    for item in ("Comfort measures only", "Do not resuscitate"):
        plan = row(1, 10, "carePlanGeneral", cplgroup="Care Limitation", cplitemvalue=item)
        tables["carePlanGeneral"].append(plan)
    tables["carePlanGeneral"].append(row(1, 10, "carePlanGeneral", cplgroup="Prognosis", cplitemvalue="Terminal"))
    assert same_bytes(read(tmp_path, tables), clean)


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


def poisoned(*rows: dict[str, Any], table: str) -> dict[str, Rows]:
    tables = everything()
    tables[table] = tables[table] + copy.deepcopy(list(rows))
    return tables


@pytest.mark.parametrize("table", POISON)
def test_a_row_after_the_prediction_time(tmp_path: Path, clean: Records, table: str) -> None:
    poison = POISON[table]
    late = [row(1, 1441, table, **poison), row(2, 1500, table, **poison), row(1, 9999, table, **poison)]
    # Stay 3 ended after 300 minutes: what is charted at its end, or later, was not known before it.
    late += [row(3, 300, table, **poison), row(3, 301, table, **poison), row(3, 1440, table, **poison)]
    if table in ENTERED:
        late += [row(1, 10, table, **poison, **{ENTERED[table]: 1441})]
        late += [row(3, 10, table, **poison, **{ENTERED[table]: 300})]
    if table not in TIMELESS:
        late += [row(1, -1441, table, **poison)]
    assert same_bytes(read(tmp_path / "late", poisoned(*late, table=table)), clean)

    in_time = [row(1, 1440, table, **poison), row(3, 299, table, **poison)]
    seen = read(tmp_path / "in time", poisoned(*in_time, table=table))
    changed = (seen.features.fillna(-1) != clean.features.fillna(-1)).any(axis=1)
    assert changed.tolist() == [True, False, True]


@pytest.mark.parametrize("table", POISON)
def test_a_row_after_six_hours_of_the_task_los(tmp_path: Path, clean_los: Records, table: str) -> None:
    late = [row(1, 361, table, **POISON[table]), row(2, 1440, table, **POISON[table])]
    assert same_bytes(read(tmp_path / "late", poisoned(*late, table=table), task="los"), clean_los)


def test_apache_before_its_24_hours_are_over(tmp_path: Path, clean: Records, clean_los: Records) -> None:
    tables = everything()
    worst = dict.fromkeys(("intubated", "vent", "dialysis", "diabetes", "aids", "electivesurgery"), 1)
    for table in ("apacheApsVar", "apachePredVar"):
        of_table = {name: 1 for name in worst if name in TABLES[table]}
        tables[table] = [{**old, **of_table, **({"sodium": 180} if "sodium" in old else {})} for old in tables[table]]
    assert same_bytes(read(tmp_path, tables, task="los"), clean_los)
    before = read(tmp_path, tables, hours=23.9)
    assert not [name for name in before.features if str(name).startswith("apache")]
    assert not before.features[["intubation", "ventilation", "dialysis", "history_diabetes", "surgery"]].any(axis=None)
    assert not same_bytes(read(tmp_path, tables), clean)


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
