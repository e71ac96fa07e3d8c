"""The ``eicu`` source: features worked by hand; leaks are in ``test_eicu_leaks``, tasks in ``test_eicu_tasks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.data.records import Records
from raysim.data.sources.eicu.features import DOMAINS, FLAGS
from raysim.data.sources.eicu.source import Eicu
from tests.data.sources.test_eicu_folder import DX, EXAM, GCS, OUT, PAST, Rows, everything, patient, row, write

nan = float("nan")


def read(folder: Path, tables: dict[str, Rows], **fields: Any) -> Records:
    return Eicu(path=write(folder, tables), **fields).read()


def features(records: Records, stay: int = 0) -> dict[str, float]:
    return {str(name): float(value) for name, value in records.features.iloc[stay].items()}


def spread(name: str, low: float, high: float, mean: float) -> dict[str, float]:
    return {f"{name}_min": low, f"{name}_max": high, f"{name}_mean": mean}


def test_every_feature_in_its_order(tmp_path: Path) -> None:
    records = read(tmp_path, everything())
    assert list(records.features) == [feature for domain in DOMAINS.values() for feature in domain]
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


def examined(offset: int, path: str, finding: Any) -> dict[str, Any]:
    return row(1, offset, "physicalExam", physicalexampath=path, physicalexamtext=finding)


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
                examined(130, f"{GCS}/Eyes Score/1", 1),  # one part alone is not a score
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
    by_feature = features(records)
    assert {name: by_feature[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_labs(tmp_path: Path) -> None:
    results = [
        *(("sodium", 130), ("sodium", 140), ("sodium", 2000), ("potassium", 4), ("creatinine", 1.25), ("lactate", 2)),
        *(("WBC x 1000", 12.5), ("Hct", 33), ("albumin", 3), ("total bilirubin", 0.75), ("BUN", 20), ("pH", 7.375)),
        *(("paO2", 90), ("paCO2", 40), ("FiO2", 0.4), ("FiO2", 60), ("glucose", 100), ("bedside glucose", 200)),
        *(("platelets x 1000", 9), ("urinary sodium", 20)),
    ]
    labs = [row(1, -60, "lab", labname=name, labresult=result) for name, result in results]
    values = features(read(tmp_path, {"patient": [patient(1)], "lab": labs}))
    expected = {
        **spread("sodium", 130, 140, 135),
        **spread("fio2", 40, 60, 50),
        **spread("glucose", 100, 200, 150),
    }
    single = {"potassium": 4, "creatinine": 1.25, "lactate": 2, "wbc": 12.5, "hematocrit": 33, "albumin": 3, "bun": 20}
    for name, value in {**single, "bilirubin": 0.75, "ph": 7.375, "pao2": 90, "pco2": 40}.items():
        expected |= spread(name, value, value, value)
    assert {name: values[name] for name in DOMAINS["labs"]} == pytest.approx(expected)


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
    rates = read(tmp_path, {"patient": patients, "intakeOutput": rows}).features["urine_per_hour"]
    np.testing.assert_array_equal(rates, [720 / 24, 180 / 6])


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
