"""The features of the generated federation: named clinical features, then generic ones up to the requested number."""

from __future__ import annotations

import math

from raysim.core.streams import stream

Description = tuple[str, str, float, float, float, float, float, float, float | None]

# Fields: name; kind (linear, log, flag); centre and spread (flag: share of ones, and 0); least and greatest value;
# loading on severity; weight in the logit; rarity of measurement, in probits (None: always recorded).
FEATURES: tuple[Description, ...] = (
    ("age", "linear", 63, 16, 18, 90, 0.0, 0.45, None),
    ("heart_rate_mean", "linear", 87, 16, 25, 200, 0.4, 0.25, -1.3),
    ("sodium", "linear", 138.5, 5.2, 105, 175, 0.05, 0.1, -0.8),
    ("creatinine", "log", 1.15, 0.6, 0.2, 20, 0.35, 0.25, -0.7),
    ("lactate", "log", 1.9, 0.6, 0.3, 25, 0.5, 0.4, 0.8),
    ("gcs", "linear", 12.3, 3.2, 3, 15, -0.5, -0.6, -0.6),
    ("female", "flag", 0.46, 0, 0, 1, 0.0, -0.05, None),
    ("bmi", "log", 27.6, 0.25, 12, 80, 0.0, -0.1, -0.5),
    ("mean_arterial_pressure_mean", "linear", 80, 12, 30, 150, -0.4, -0.25, -1.1),
    ("mean_arterial_pressure_min", "linear", 62, 12, 15, 130, -0.5, -0.25, -1.1),
    ("respiratory_rate_mean", "linear", 20, 4.5, 6, 60, 0.4, 0.25, -1.0),
    ("oxygen_saturation_min", "linear", 91, 5, 40, 100, -0.4, -0.25, -1.2),
    ("temperature_mean", "linear", 36.9, 0.6, 31, 41.5, 0.0, -0.1, -0.8),
    ("potassium", "linear", 4.2, 0.65, 1.8, 9, 0.15, 0.1, -0.8),
    ("chloride", "linear", 104, 6, 70, 140, 0.0, 0.0, -0.7),
    ("bicarbonate", "linear", 24, 5, 4, 50, -0.4, -0.2, -0.6),
    ("blood_urea_nitrogen", "log", 21, 0.65, 2, 220, 0.35, 0.3, -0.7),
    ("glucose", "log", 142, 0.37, 25, 1200, 0.2, 0.05, -0.9),
    ("calcium", "linear", 8.3, 0.8, 4, 15, -0.1, 0.0, -0.4),
    ("albumin", "linear", 3.0, 0.65, 1, 5.5, -0.3, -0.2, 0.5),
    ("bilirubin", "log", 0.75, 0.8, 0.1, 50, 0.25, 0.2, 0.5),
    ("hemoglobin", "linear", 10.9, 2.1, 3, 20, -0.1, -0.05, -0.7),
    ("platelets", "log", 195, 0.45, 5, 1200, -0.15, -0.1, -0.7),
    ("white_cells", "log", 10.8, 0.5, 0.2, 150, 0.25, 0.1, -0.7),
    ("inr", "log", 1.3, 0.33, 0.7, 15, 0.3, 0.2, 0.3),
    ("ph", "linear", 7.36, 0.09, 6.7, 7.7, -0.4, -0.25, 0.7),
    ("pao2", "log", 105, 0.5, 25, 600, -0.1, -0.05, 0.7),
    ("paco2", "log", 41, 0.27, 12, 150, 0.1, 0.1, 0.7),
    ("urine_output", "log", 1500, 0.75, 5, 12000, -0.4, -0.3, 0.3),
    ("troponin", "log", 0.15, 1.6, 0.005, 100, 0.2, 0.1, 1.0),
    ("sepsis", "flag", 0.16, 0, 0, 1, 0.4, 0.2, None),
    ("cardiac_arrest", "flag", 0.05, 0, 0, 1, 0.4, 0.45, None),
    ("pneumonia", "flag", 0.13, 0, 0, 1, 0.25, 0.1, None),
    ("trauma", "flag", 0.05, 0, 0, 1, 0.0, -0.1, None),
    ("diabetes", "flag", 0.27, 0, 0, 1, 0.0, 0.0, None),
    ("metastatic_cancer", "flag", 0.03, 0, 0, 1, 0.0, 0.25, None),
    ("ventilated", "flag", 0.33, 0, 0, 1, 0.5, 0.3, None),
    ("vasopressors", "flag", 0.15, 0, 0, 1, 0.5, 0.35, None),
    ("dialysis", "flag", 0.04, 0, 0, 1, 0.25, 0.15, None),
    ("surgery", "flag", 0.2, 0, 0, 1, -0.1, -0.25, None),
)


def feature_names(count: int) -> list[str]:
    """Return the first ``count`` feature names: clinical names, then ``feature_41`` ..."""
    return [FEATURES[j][0] if j < len(FEATURES) else f"feature_{j + 1}" for j in range(count)]


def descriptions(count: int, seed: int) -> list[Description]:
    """Describe the first ``count`` features. Features beyond the clinical ones are sampled from ``seed``."""
    return [FEATURES[j] if j < len(FEATURES) else _further(seed, j) for j in range(count)]


def _further(seed: int, j: int) -> Description:
    loading, weight = stream(seed, "synthetic-feature", j).standard_normal(2)
    return (f"feature_{j + 1}", "linear", 0, 1, -1e30, 1e30, 0.3 * math.tanh(loading), 0.1 * weight, -0.3)
