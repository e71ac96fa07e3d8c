"""What is odd between hospitals is named before training, and innocent tables are left in peace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.data.checks.quality import check
from raysim.data.checks.suspects import Suspect
from raysim.data.raw_columns import RawColumns
from raysim.data.sources.eicu.source import Eicu

H, ROWS = 6, 60
HOME = np.repeat(np.arange(H), ROWS)
NAMES = [f"hospital {h}" for h in range(H)]


def found(columns: dict[str, Any], **asked: Any) -> tuple[Suspect, ...]:
    rows = len(next(iter(columns.values())))
    y = asked.pop("y", np.arange(rows) % 4 // 3)
    home = asked.pop("home", HOME)
    classes, patients = asked.pop("classes", ("alive", "died")), asked.pop("patients", None)
    table = RawColumns.of(pd.DataFrame(columns))
    return check(table, np.arange(rows), home, NAMES, y, classes, patients, **asked)


def levels(columns: dict[str, Any], **asked: Any) -> dict[str, str]:
    return {suspect.feature: suspect.level for suspect in found(columns, **asked)}


def normal(mean: float, deviation: float, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(mean, deviation, H * ROWS).astype(np.float32)


def test_an_impossible_value_at_a_hospital_is_asked_about() -> None:
    cholesterol = np.round(normal(230, 40))
    third = np.arange(H * ROWS) % 3 == 0
    columns = {
        "cholesterol": np.where(HOME == 2, 0.0, cholesterol),
        "a third": np.where((HOME == 2) & third, 0.0, cholesterol),
        "albumin": np.where(HOME == 3, -1.0, normal(4, 0.5)),
        "everywhere": np.where(third, 0.0, cholesterol),  # a share that all have
        "doses": np.where(HOME == 1, 0.0, np.random.default_rng(1).poisson(4, H * ROWS)),  # a count may be 0
        "beds": 100.0 * (HOME + 1),  # the same at all rows of every hospital
    }
    assert levels(columns) == {"cholesterol": "ask", "a third": "ask", "albumin": "ask"}
    assert [suspect.text for suspect in found(columns)][:2] == [
        "feature 'cholesterol' is 0 in all 60 rows of hospital 2 and far from it elsewhere: does 0 stand for a missing "
        "value?",
        "feature 'a third' is 0 in 20 of 60 rows of hospital 2 and far from it elsewhere: does 0 stand for a missing "
        "value?",
    ]


def test_a_number_for_a_missing_value_is_asked_about() -> None:
    third = np.arange(H * ROWS) % 3 == 0
    positive, age = np.abs(normal(4, 0.5)) + 1, np.round(normal(60, 9).clip(20, 90))
    columns = {
        "minus": np.where(third, -999.0, positive),
        "one": np.where(third, -1.0, positive),
        "age": np.where(third, 999.0, age),
        "excess": np.where(third, -1.0, normal(0, 3)),  # other values are negative, too
        "ninety-nine": np.where(third, 99.0, age),
        "cost": np.where(third, 999.0, 10 * age),  # no further from the others than these from each other
        "grade": np.where(third, -1.0, np.arange(H * ROWS) % 5),  # levels
        "rare": np.where(np.arange(H * ROWS) < 9, -999.0, positive),
    }
    asked = {suspect.feature: suspect for suspect in found(columns)}
    assert {name: suspect.level for name, suspect in asked.items()} == dict.fromkeys(("minus", "one", "age"), "ask")
    low, high = age[~third].min(), age[~third].max()
    said = f"feature 'age' is 999 in 120 rows and {low:g} to {high:g} elsewhere: does 999 stand for a missing value?"
    assert asked["age"].text == said


def test_a_measurement_of_one_value_at_a_hospital_is_asked_about() -> None:
    columns = {
        "height": np.where(HOME == 4, 170.0, normal(170, 9)),
        "usual": np.where(HOME == 4, 1.0, np.where(np.arange(H * ROWS) % 2, 1.0, normal(1, 0.2))),
    }
    (suspect,) = found(columns)
    assert suspect.text == (
        "feature 'height' has one value in all 60 rows of hospital 4 and varies elsewhere: was it filled in?"
    )


@pytest.mark.parametrize("factor", [1.8, 10, 17.1, 18.02, 38.67, 88.4, 100, 1000])
def test_units_that_differ_between_hospitals(factor: float) -> None:
    spread = 0.05 if factor < 8 else 0.3  # a small factor shows where hospitals do not overlap
    value = np.exp(normal(0, spread))
    for odd, scale in (([2], factor), ([1, 4], factor), ([3], 1 / factor)):
        (suspect,) = found({"lab": np.where(np.isin(HOME, odd), value * scale, value), "age": normal(60, 15)})
        assert suspect.level == ("warn" if factor > 8 else "ask")
        named = " and ".join(NAMES[h] for h in odd)
        assert f"the smaller group is {named}: convert all to one unit" in suspect.text
    assert not found({"lab": np.where(HOME == 2, value * 3, value)})  # of no usual units


def test_degrees_celsius_and_fahrenheit() -> None:
    celsius = normal(37, 0.5)
    (suspect,) = found({"temperature": np.where(HOME == 5, celsius * 1.8 + 32, celsius)})
    assert suspect.level == "warn"
    assert suspect.text.startswith("feature 'temperature' has medians near 37 and near 98.6, as degrees Celsius and")


def test_columns_that_a_hospital_lacks_are_named_together() -> None:
    half = np.random.default_rng(0).random(H * ROWS) < 0.5
    columns = {
        "lactate": np.where(HOME == 1, np.nan, normal(2, 1)),
        "ward": pd.Categorical(np.where(HOME == 1, None, np.where(half, "a", "b"))),
        "glucose": np.where(np.isin(HOME, [1, 2]) | half, np.nan, normal(6, 1)),
        "rare": np.where(np.arange(H * ROWS) < 355, np.nan, 1.0),  # five of 360 have it, all at one hospital
        "never": np.full(H * ROWS, np.nan),
    }
    assert [(suspect.feature, suspect.level, suspect.text) for suspect in found(columns)] == [
        (
            "lactate",
            "ask",
            "features 'lactate' and 'ward' have no value at hospital 1: training there lacks this information",
        ),
        (
            "glucose",
            "ask",
            "feature 'glucose' has no value at hospital 1 and hospital 2: training there lacks this information",
        ),
    ]


def test_patients_of_several_hospitals() -> None:
    x = {"x": normal(0, 1)}
    own = np.tile(np.arange(ROWS), H)  # each hospital counts from 0
    assert [(suspect.level, suspect.text) for suspect in found(x, patients=own)] == [
        (
            "warn",
            "60 of 60 patients have rows at several hospitals: if each hospital numbers its own patients, these are "
            "different people; add the hospital to the number",
        )
    ]
    moved = np.arange(H * ROWS)
    moved[-1] = 0
    assert [(suspect.level, suspect.text) for suspect in found(x, patients=moved)] == [
        ("list", "1 of 359 patients have rows at several hospitals; all rows of a patient are in one part")
    ]
    assert not found(x, patients=np.arange(H * ROWS).astype(str))


def test_hospitals_that_are_nearly_copies() -> None:
    x, sex, number = normal(0, 1), np.arange(H * ROWS) % 2 + 0.0, np.arange(H * ROWS) + 0.0
    copied = x.copy()
    copied[HOME == 4] = x[HOME == 1]
    copied[(HOME == 4) & (np.arange(H * ROWS) % 4 == 0)] += 1  # a fourth was changed
    (suspect,) = found({"x": copied, "sex": sex, "number": number}, unlike=["number"])
    assert (suspect.level, suspect.feature) == ("warn", "")
    assert suspect.text.startswith("45 of 60 different rows of hospital 1 and hospital 4 are the same: is one a copy")
    assert not found({"x": copied, "number": number})
    assert not found({"sex": sex, "stage": np.arange(H * ROWS) % 30 + 0.0})  # rows of few kinds are everywhere


def test_a_label_that_may_be_another_than_meant() -> None:
    x = {"x": normal(0, 1)}
    (suspect,) = found(x, y=np.arange(H * ROWS) % 10 // 1 > 0)
    assert suspect == Suspect(
        "",
        "warn",
        "the event 'died' is the commoner class (90.0% of rows): if 'alive' is what is predicted, name it "
        "(data.positive)",
    )
    ages = [str(age) for age in range(30, 80)]
    (suspect,) = found(x, y=np.arange(H * ROWS) % 50, classes=ages)
    assert suspect.text == (
        "the label has 50 classes, all of them numbers: if it is a quantity, set data.task: regression"
    )
    assert not found(x, y=np.arange(H * ROWS) % 50, classes=[f"ward {age}" for age in ages])
    assert not found(x, y=normal(0, 1), classes=())


def test_the_demo_raises_no_false_alarm(data_folder: Any) -> None:
    """Three measurements are not taken at a hospital each, and patients were moved."""
    records = Eicu(path=data_folder / "eicu_demo", task="mortality").read()
    names, home = np.unique(records.silo, return_inverse=True)
    table, rows = RawColumns.of(records.features), np.arange(len(home))
    odd = check(table, rows, home, names.tolist(), records.y, records.classes, records.group)
    assert [(suspect.feature, suspect.level) for suspect in odd] == [
        ("gcs_min", "ask"),
        ("mean_pressure_min", "ask"),
        ("urine_per_hour", "ask"),
        ("", "list"),
    ]
