"""The ``eicu`` source: features worked by hand, tasks, silos and what it says; leaks are in ``test_eicu_leaks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from raysim.data.records import Records
from raysim.data.sources.eicu.features import DOMAINS, FLAGS, TABLES, all_features
from raysim.data.sources.eicu.source import Eicu
from tests.data.test_eicu_folder import DX, EXAM, GCS, OUT, PAST, Rows, everything, patient, row, write

nan = float("nan")


def read(folder: Path, tables: dict[str, Rows], **fields: Any) -> Records:
    return Eicu(path=write(folder, tables), **fields).read()


def features(records: Records, stay: int = 0) -> dict[str, float]:
    return {str(name): float(value) for name, value in records.features.iloc[stay].items()}


def spread(name: str, low: float, high: float, mean: float) -> dict[str, float]:
    return {f"{name}_min": low, f"{name}_max": high, f"{name}_mean": mean}


def test_every_feature_in_its_order(tmp_path: Path) -> None:
    records = read(tmp_path, everything())
    assert list(records.features) == list(all_features())
    assert set(records.features.dtypes) == {np.dtype(np.float32)}
    assert records.warnings == ()
    assert len(records.features.columns) == 120


def test_age_sex_and_body_mass_index(tmp_path: Path) -> None:
    rows = [
        patient(1),
        patient(2, age="> 89", gender="Male", admissionheight=200, admissionweight=100),
        patient(3, age=18, gender="", admissionheight=0.3),
        patient(4, age="89", gender="Other", admissionweight=515),
    ]
    X = read(tmp_path, {"patient": rows}).features
    np.testing.assert_array_equal(X["age"], [60, 90, 18, 89])
    np.testing.assert_array_equal(X["sex"], [0, 1, nan, nan])
    np.testing.assert_array_equal(X["bmi"], [25, 25, nan, nan])


def charted(offset: int, label: str, name: str, value: Any) -> dict[str, Any]:
    return row(
        1,
        offset,
        "nurseCharting",
        nursingchartcelltypevallabel=label,
        nursingchartcelltypevalname=name,
        nursingchartvalue=value,
    )


def examined(offset: int, path: str, found: Any) -> dict[str, Any]:
    return row(1, offset, "physicalExam", physicalexampath=path, physicalexamtext=found)


def test_vitals_of_four_tables(tmp_path: Path) -> None:
    signs = ("heartrate", "systemicsystolic", "systemicdiastolic", "systemicmean", "respiration", "sao2", "temperature")
    monitored = {
        0: (80, 120, 60, 80, 16, 98, 37),
        600: (-1, 999, 0, 5, 0, 0, 0),  # artefacts: outside what is plausible, so missing
        1440: (100, "", "", "", 24, 92, 100.4),  # 100.4 °F is 38 °C
    }
    vital = f"{EXAM}/Constitutional/Vital Sign and Physiological Data"
    records = read(
        tmp_path,
        {
            "patient": [patient(1)],
            "vitalPeriodic": [
                row(1, offset, "vitalPeriodic", **dict(zip(signs, values, strict=True)))
                for offset, values in monitored.items()
            ],
            "vitalAperiodic": [
                row(1, 30, "vitalAperiodic", noninvasivesystolic=150, noninvasivediastolic=90, noninvasivemean=110)
            ],
            "nurseCharting": [
                charted(60, "Heart Rate", "Heart Rate", 90),
                charted(60, "Non-Invasive BP", "Non-Invasive BP Systolic", 90),
                charted(60, "MAP (mmHg)", "Value", 70),
                charted(60, "Respiratory Rate", "Respiratory Rate", 20),
                charted(60, "O2 Saturation", "O2 Saturation", 95),
                charted(60, "Temperature", "Temperature (F)", 95),  # 35 °C
                charted(60, "Temperature", "Temperature Location", 36),
                charted(60, "Glasgow coma score", "GCS Total", 14),
                charted(70, "Glasgow coma score", "GCS Total", "Unable to score due to medication"),
                charted(70, "Glasgow coma score", "Eyes", 3),
            ],
            "physicalExam": [
                *(
                    examined(120, f"{GCS}/{part} Score/{n}", n)
                    for part, n in (("Eyes", 3), ("Motor", 5), ("Verbal", 4))
                ),
                examined(130, f"{GCS}/Eyes Score/1", 1),  # one part alone is no score
                examined(140, f"{GCS}/10", 10),
                examined(120, f"{vital}/HR/HR Current", 70),
                examined(120, f"{vital}/FiO2%/FiO2%", 40),
            ],
        },
    )
    expected = {
        **spread("heart_rate", 70, 100, 85),
        **spread("systolic_pressure", 90, 150, 120),
        **spread("diastolic_pressure", 60, 90, 75),
        **spread("mean_pressure", 70, 110, 260 / 3),
        **spread("respiratory_rate", 16, 24, 20),
        **spread("oxygen_saturation", 92, 98, 95),
        **spread("temperature", 35, 38, 110 / 3),
        **spread("gcs", 10, 14, 12),
    }
    found = features(records)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_labs(tmp_path: Path) -> None:
    results = [
        *(("sodium", 130), ("sodium", 140), ("sodium", 2000), ("potassium", 4), ("creatinine", 1.25), ("lactate", 2)),
        *(("WBC x 1000", 12.5), ("Hct", 33), ("albumin", 3), ("total bilirubin", 0.75), ("BUN", 20), ("pH", 7.375)),
        *(("paO2", 90), ("paCO2", 40), ("FiO2", 0.4), ("FiO2", 60), ("glucose", 100), ("bedside glucose", 200)),
        *(("platelets x 1000", 9), ("urinary sodium", 20)),
    ]
    labs = [row(1, -60, "lab", labname=name, labresult=result) for name, result in results]
    found = features(read(tmp_path, {"patient": [patient(1)], "lab": labs}))
    expected = {
        **spread("sodium", 130, 140, 135),
        **spread("fio2", 40, 60, 50),
        **spread("glucose", 100, 200, 150),
    }
    single = {"potassium": 4, "creatinine": 1.25, "lactate": 2, "wbc": 12.5, "hematocrit": 33, "albumin": 3, "bun": 20}
    for name, value in {**single, "bilirubin": 0.75, "ph": 7.375, "pao2": 90, "pco2": 40}.items():
        expected |= spread(name, value, value, value)
    assert {name: found[name] for name in DOMAINS["labs"]} == pytest.approx(expected)


def test_oxygen_is_in_percent_also_where_it_was_charted_as_a_fraction(tmp_path: Path) -> None:
    """Room air is 21 %, and 1.0 is pure oxygen; between the two ways of writing it nothing can be meant."""
    cases = [
        (1.0, 100),
        (0.21, 21),
        (0.5, 50),
        (21, 21),
        (100, 100),
        (0.2, nan),
        (1.01, nan),
        (20.9, nan),
        (100.1, nan),
    ]
    tables = {
        "patient": [patient(stay) for stay in range(1, 10)],
        "lab": [row(s, 60, "lab", labname="FiO2", labresult=value) for s, (value, _) in enumerate(cases, 1)],
        "apacheApsVar": [row(s, 0, "apacheApsVar", fio2=value) for s, (value, _) in enumerate(cases, 1)],
    }
    X = read(tmp_path, tables).features
    for name in ("fio2_min", "fio2_max", "fio2_mean", "apache_fio2"):
        np.testing.assert_array_equal(X[name], [percent for _, percent in cases])


def test_urine_is_a_rate(tmp_path: Path) -> None:
    def output(stay: int, offset: int, label: str, ml: float) -> dict[str, Any]:
        fields = {"cellpath": f"{OUT}|{label}", "celllabel": label, "cellvaluenumeric": ml}
        return row(stay, offset, "intakeOutput", **fields)

    rows = [
        output(1, 60, "Urine", 240),
        output(1, 600, "Foley cath", 480),
        output(1, -60, "Urine", 500),  # before the unit
        output(1, 60, "Urine Count", 3),
        output(1, 60, "Stool", 100),
        output(2, 60, "Urine", 180),
    ]
    patients = [patient(1), patient(2, unitdischargeoffset=361)]
    found = read(tmp_path, {"patient": patients, "intakeOutput": rows}).features["urine_per_hour"]
    np.testing.assert_array_equal(found, [720 / 24, 180 / 6])


def test_apache_physiology_where_minus_one_is_missing(tmp_path: Path) -> None:
    names = ("urine", "wbc", "temperature", "respiratoryrate", "sodium", "heartrate", "meanbp", "ph", "hematocrit")
    rest = ("creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2")
    values = (1500, 12.5, 36.5, 30, 140, 120, 60, 7.25, 30, 1.5, 3, 80, 40, 20, 150, 1, 50)
    scores = {"eyes": 3, "motor": 5, "verbal": 4, "meds": 0}
    tables = {
        "patient": [patient(1), patient(2), patient(3)],
        "apacheApsVar": [
            row(1, 0, "apacheApsVar", **dict(zip(names + rest, values, strict=True)), **scores),
            row(2, 0, "apacheApsVar", **dict.fromkeys((*names, *rest, *scores, "vent", "intubated", "dialysis"), -1)),
            row(3, 0, "apacheApsVar", **{**scores, "meds": 1}),
        ],
    }
    X = read(tmp_path, tables).features[list(DOMAINS["apache"])]
    expected = (12, 120, 60, 30, 36.5, 1500, 12.5, 140, 7.25, 30, 1.5, 3, 80, 40, 20, 150, 1, 50)
    np.testing.assert_array_equal(X.iloc[0], expected)
    assert X.iloc[1].isna().all()
    assert X.iloc[2].isna().all()  # scored under sedation


FLAG_CASES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("apachePredVar", {"aids": 1, "hepaticfailure": 1}, {"history_aids", "history_hepatic_failure"}),
    ("apachePredVar", {"lymphoma": 1, "leukemia": 1}, {"history_lymphoma", "history_leukemia"}),
    ("apachePredVar", {"cirrhosis": 1, "diabetes": 1}, {"history_cirrhosis", "history_diabetes"}),
    ("apachePredVar", {"metastaticcancer": 1}, {"history_metastatic_cancer"}),
    ("apachePredVar", {"immunosuppression": 1, "diabetes": -1}, {"history_immunosuppression"}),
    ("apachePredVar", {"electivesurgery": 1}, {"surgery", "elective_surgery"}),
    ("apachePredVar", {"diedinhospital": 1, "dischargelocation": 9}, set()),
    ("apacheApsVar", {"intubated": 1, "vent": 1}, {"intubation", "ventilation"}),
    ("apacheApsVar", {"dialysis": 1}, {"dialysis"}),
    *(
        ("pastHistory", {"pasthistorypath": f"{PAST}/{path}"}, {f"history_{name}" for name in names})
        for path, names in (
            ("Infectious Disease (R)/AIDS/AIDS", ["aids"]),
            ("Infectious Disease (R)/HIV (only)/HIV positive", []),
            ("Gastrointestinal (R)/Cirrhosis/encephalopathy", ["cirrhosis", "hepatic_failure"]),
            ("Hematology/Oncology (R)/Cancer/Hematologic Malignancy/non-Hodgkins lymphoma", ["lymphoma"]),
            ("Hematology/Oncology (R)/Cancer/Hematologic Malignancy/CLL", ["leukemia"]),
            ("Hematology/Oncology (R)/Cancer/Hematologic Malignancy/multiple myeloma", []),
            ("Hematology/Oncology (R)/Cancer/Metastases/liver", ["metastatic_cancer"]),
            ("Hematology/Oncology (R)/Cancer/Cancer-Primary Site/lung", ["cancer"]),
            ("Endocrine (R)/Insulin Dependent Diabetes/insulin dependent diabetes", ["diabetes"]),
            ("Cardiovascular (R)/Congestive Heart Failure/CHF", ["heart_failure"]),
            ("Cardiovascular (R)/Myocardial Infarction/MI - remote", ["myocardial_infarction"]),
            ("Cardiovascular (R)/Arrhythmias/atrial fibrillation - chronic", ["atrial_fibrillation"]),
            (
                "Cardiovascular (R)/Hypertension Requiring Treatment/hypertension requiring treatment",
                ["hypertension"],
            ),
            ("Cardiovascular (R)/Peripheral Vascular Disease/peripheral vascular disease", ["vascular_disease"]),
            ("Pulmonary/COPD/COPD  - severe", ["copd"]),
            ("Pulmonary/Asthma/asthma", ["asthma"]),
            ("Renal  (R)/Renal Failure/renal failure - hemodialysis", ["kidney_disease"]),
            ("Neurologic/Strokes/stroke - remote", ["stroke"]),
            ("Neurologic/TIA(s)/TIA(s) - remote", []),
            ("Neurologic/Dementia/dementia", ["dementia"]),
        )
    ),
    ("diagnosis", {"diagnosisstring": "cardiovascular|shock / hypotension|sepsis|severe"}, {"sepsis"}),
    ("diagnosis", {"diagnosisstring": "infectious diseases|systemic/other infections|septic shock"}, {"sepsis"}),
    ("diagnosis", {"diagnosisstring": "cardiovascular|shock / hypotension|signs and symptoms of sepsis (SIRS)"}, set()),
    ("diagnosis", {"diagnosisstring": "infectious diseases|skin, bone and joint infections|septic arthritis"}, set()),
    ("diagnosis", {"diagnosisstring": "cardiovascular|cardiac arrest|cardiac arrest"}, {"cardiac_arrest"}),
    ("diagnosis", {"diagnosisstring": "pulmonary|pulmonary infections|pneumonia|aspiration"}, {"pneumonia"}),
    ("diagnosis", {"diagnosisstring": "burns/trauma|trauma - chest|pneumothorax"}, {"trauma"}),
    ("diagnosis", {"diagnosisstring": "burns/trauma|dermatology|pressure sore"}, set()),
    ("admissionDx", {"admitdxname": "Sepsis, pulmonary"}, {"sepsis"}),
    ("admissionDx", {"admitdxname": "Cardiac arrest (with or without respiratory arrest)"}, {"cardiac_arrest"}),
    ("admissionDx", {"admitdxname": "Arrest, respiratory (without cardiac arrest)"}, set()),
    ("admissionDx", {"admitdxname": "Pneumonia, viral"}, {"pneumonia"}),
    ("admissionDx", {"admitdxname": "Hemorrhage (for trauma see Trauma)"}, set()),
    ("admissionDx", {"admitdxpath": f"{DX}|Trauma|Head only trauma"}, {"trauma"}),
    ("admissionDx", {"admitdxpath": "admission diagnosis|All Diagnosis|Operative|Diagnosis|X|Y"}, {"surgery"}),
    ("admissionDx", {"admitdxpath": "admission diagnosis|Elective|Yes"}, {"elective_surgery"}),
    ("medication", {"drugname": "Piperacillin/Tazobactam 3.375 G"}, {"antibiotics"}),
    ("medication", {"drugname": "", "drughiclseqno": 4042}, {"antibiotics"}),
    ("medication", {"drugname": "CEPHULAC (lactulose)"}, set()),
    ("medication", {"drugname": "LORazepam 2 mg/ml"}, {"sedatives"}),
    ("medication", {"drugname": "", "drughiclseqno": 2051}, {"vasopressors"}),
    ("medication", {"drugname": "LIDOCAINE 1% - EPINEPHRINE"}, set()),
    ("infusionDrug", {"drugname": "Norepinephrine (mcg/min)", "drugrate": 5}, {"vasopressors"}),
    ("infusionDrug", {"drugname": "Norepinephrine (mcg/min)", "drugrate": 0}, set()),
    ("infusionDrug", {"drugname": "Propofol (ml/hr)", "drugrate": "", "infusionrate": 12}, {"sedatives"}),
    ("treatment", {"treatmentstring": "pulmonary|x|endotracheal tube|insertion"}, {"intubation"}),
    ("treatment", {"treatmentstring": "pulmonary|x|endotracheal tube removal"}, set()),
    ("treatment", {"treatmentstring": "pulmonary|x|mechanical ventilation|pressure support"}, {"ventilation"}),
    ("treatment", {"treatmentstring": "pulmonary|x|non-invasive ventilation"}, {"noninvasive_ventilation"}),
    ("treatment", {"treatmentstring": "renal|dialysis|C V V H D"}, {"dialysis"}),
    ("treatment", {"treatmentstring": "renal|dialysis|insertion of venous catheter for hemodialysis"}, set()),
    ("treatment", {"treatmentstring": "cardiovascular|cardiac surgery|CABG"}, {"surgery"}),
    ("treatment", {"treatmentstring": "cardiovascular|consultations|Cardiac surgery consultation"}, set()),
    ("carePlanGeneral", {"cplgroup": "Airway", "cplitemvalue": "Intubated/oral ETT"}, {"intubation"}),
    ("carePlanGeneral", {"cplgroup": "Airway", "cplitemvalue": "Not intubated/normal airway"}, set()),
    ("carePlanGeneral", {"cplgroup": "Ventilation", "cplitemvalue": "Ventilated - rapid wean"}, {"ventilation"}),
    (
        "carePlanGeneral",
        {"cplgroup": "Ventilation", "cplitemvalue": "Non-invasive ventilation"},
        {"noninvasive_ventilation"},
    ),
    ("carePlanGeneral", {"cplgroup": "Planned Procedures", "cplitemvalue": "Surgery"}, {"surgery"}),
    ("respiratoryCare", {"airwaytype": "Oral ETT"}, {"intubation"}),
    ("respiratoryCharting", {"respchartvaluelabel": "RT Vent On/Off", "respchartvalue": "Start"}, {"ventilation"}),
]


def test_flags(tmp_path: Path) -> None:
    """Each case is a stay of its own in one folder; a flag that nothing raises is 0, never missing."""
    tables: dict[str, Rows] = {"patient": [patient(stay) for stay in range(len(FLAG_CASES) + 1)]}
    for stay, (table, fields, _) in enumerate(FLAG_CASES):
        tables.setdefault(table, []).append(row(stay, 100, table, **fields))
    X = read(tmp_path, tables).features
    flags = [name for domain in FLAGS for name in DOMAINS[domain]]
    for stay, (table, fields, expected) in enumerate(FLAG_CASES):
        raised = {name for name in flags if X[name].iloc[stay] == 1}
        assert raised == expected, (table, fields)
    assert set(np.unique(X[flags])) == {0, 1}
    assert not X[flags].iloc[-1].any()


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
    assert warning.startswith(f"data.path: {tmp_path} lacks 3 tables of eICU: hospital (costs no feature")
    assert "lab (costs sodium, potassium, creatinine, lactate, wbc" in warning
    assert "diagnosis (leaves sepsis, cardiac_arrest, pneumonia, trauma to other tables)" in warning
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
        ({"task": "los", "hours": 24}, "hours: 24 is not below 24"),
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
