"""The features of the ``eicu`` source, with their tables and the columns that are read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import yaml

TABLES: dict[str, tuple[str, ...]] = {
    name: tuple(columns)
    for name, columns in yaml.safe_load((Path(__file__).parent / "sql" / "tables.yaml").read_text()).items()
}
"""The columns that the SQL queries use of each table, by the table's official name."""

# Worst values of the first 24 hours, without a time: they are unknown at an earlier prediction time.
AT_24_HOURS = ("apacheApsVar", "apachePredVar")

_MONITORED = ("vitalPeriodic", "nurseCharting", "physicalExam")
_PRESSURE = ("vitalPeriodic", "vitalAperiodic", "nurseCharting", "physicalExam")
_BOTH_HISTORIES = ("pastHistory", "apachePredVar")
_LABS = (
    *("sodium", "potassium", "creatinine", "lactate", "wbc", "hematocrit", "albumin", "bilirubin", "bun", "glucose"),
    *("ph", "pao2", "pco2", "fio2"),
)
_PHYSIOLOGY = (
    *("gcs", "heart_rate", "mean_pressure", "respiratory_rate", "temperature", "urine", "wbc", "sodium", "ph"),
    *("hematocrit", "creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2"),
)


def _spread(name: str, tables: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {f"{name}_{statistic}": tables for statistic in ("min", "max", "mean")}


# Domain (``sql/<domain>.sql``) -> feature -> its tables. Any one of the tables is enough.
DOMAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "cohort": {"age": ("patient",), "sex": ("patient",), "bmi": ("patient",)},
    "vitals": {
        **_spread("gcs", ("nurseCharting", "physicalExam")),
        **_spread("heart_rate", _MONITORED),
        **_spread("systolic_pressure", _PRESSURE),
        **_spread("diastolic_pressure", _PRESSURE),
        **_spread("mean_pressure", ("vitalPeriodic", "vitalAperiodic", "nurseCharting")),
        **_spread("respiratory_rate", _MONITORED),
        **_spread("oxygen_saturation", _MONITORED),
        **_spread("temperature", ("vitalPeriodic", "nurseCharting")),
    },
    "labs": {feature: tables for lab in _LABS for feature, tables in _spread(lab, ("lab",)).items()},
    "output": {"urine_per_hour": ("intakeOutput",)},
    "apache": {f"apache_{name}": ("apacheApsVar",) for name in _PHYSIOLOGY},
    "history": {
        "history_aids": _BOTH_HISTORIES,
        "history_hepatic_failure": _BOTH_HISTORIES,
        "history_cirrhosis": _BOTH_HISTORIES,
        "history_lymphoma": _BOTH_HISTORIES,
        "history_leukemia": _BOTH_HISTORIES,
        "history_metastatic_cancer": _BOTH_HISTORIES,
        "history_immunosuppression": _BOTH_HISTORIES,
        "history_diabetes": _BOTH_HISTORIES,
        "history_cancer": ("pastHistory",),
        "history_heart_failure": ("pastHistory",),
        "history_myocardial_infarction": ("pastHistory",),
        "history_atrial_fibrillation": ("pastHistory",),
        "history_hypertension": ("pastHistory",),
        "history_vascular_disease": ("pastHistory",),
        "history_copd": ("pastHistory",),
        "history_asthma": ("pastHistory",),
        "history_kidney_disease": ("pastHistory",),
        "history_stroke": ("pastHistory",),
        "history_dementia": ("pastHistory",),
    },
    "diagnosis": dict.fromkeys(("sepsis", "cardiac_arrest", "pneumonia", "trauma"), ("diagnosis", "admissionDx")),
    "medication": dict.fromkeys(("antibiotics", "sedatives", "vasopressors"), ("medication", "infusionDrug")),
    "support": {
        "intubation": ("treatment", "carePlanGeneral", "respiratoryCare", "apacheApsVar"),
        "ventilation": ("treatment", "carePlanGeneral", "respiratoryCharting", "apacheApsVar"),
        "noninvasive_ventilation": ("treatment", "carePlanGeneral"),
        "dialysis": ("treatment", "apacheApsVar"),
        "surgery": ("treatment", "carePlanGeneral", "admissionDx", "apachePredVar"),
        "elective_surgery": ("admissionDx", "apachePredVar"),
    },
}

# Domains whose features are flags: 1 where there is a record, else 0.
FLAGS = ("history", "diagnosis", "medication", "support")


def available(domain: str, present: Collection[str]) -> list[str]:
    """Return the features of a clinical ``domain`` that can be computed from the tables ``present``."""
    return [feature for feature, tables in DOMAINS[domain].items() if any(table in present for table in tables)]


def missing_tables(present: Collection[str], unused: Collection[str]) -> str | None:
    """Describe the missing tables and the features that are lost without them; None if no table is missing. A table in
    ``unused`` does not count as missing.
    """
    parts = []
    for table in TABLES:
        if table in present or table in unused:
            continue
        if table == "hospital":
            parts.append("hospital (costs region, beds and teaching of the hospitals, but no feature)")
            continue
        lost: list[str] = []
        thinner: list[str] = []
        for domain in DOMAINS.values():
            for feature, sources in domain.items():
                if table in sources:
                    (thinner if any(other in present for other in sources) else lost).append(feature)
        costs = [f"costs {_stems(lost)}"] if lost else []
        costs += [f"{_stems(thinner)} only from other tables"] if thinner else []
        parts.append(f"{table} ({'; '.join(costs)})")
    number = "one table" if len(parts) == 1 else f"{len(parts)} tables"
    return f"lacks {number} of eICU: {', '.join(parts)}" if parts else None


def _stems(features: list[str]) -> str:
    return ", ".join(dict.fromkeys(_stem(feature) for feature in features))


def _stem(feature: str) -> str:
    for ending in ("_min", "_max", "_mean"):
        feature = feature.removesuffix(ending)
    return feature
