"""Which columns of a table are suspected of giving its label away, and that innocent tables are left in peace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from raysim.data.build import build
from raysim.data.checks.leaks import check, unusually_high
from raysim.data.checks.suspects import Leaks
from raysim.data.derived.rearranged import Added, random_half, rearranged
from raysim.data.raw_columns import RawColumns
from raysim.data.sources.bundled import BreastCancer, Digits
from raysim.data.sources.patient_types import PatientTypes
from raysim.data.sources.synthetic import Synthetic
from raysim.data.sources.table import Table
from raysim.data.split import Split
from raysim.report.terminal.progress import UNSAID, data_warnings

H, ROWS = 6, 60


def table(seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64], np.random.Generator]:
    """The hospital and label of each row: ``H`` hospitals of ``ROWS`` rows, a fifth of them events."""
    rng = np.random.default_rng(seed)
    home = np.repeat(np.arange(H), ROWS)
    return home, (rng.random(len(home)) < 0.2).astype(np.int64), rng


def checked(columns: dict[str, Any], home: NDArray[np.int64], y: NDArray[Any], classes: tuple[str, ...]) -> Leaks:
    frame = pd.DataFrame(columns)
    names = [f"hospital {h}" for h in range(int(home.max()) + 1)]
    return check(RawColumns.of(frame), np.arange(len(y)), home, names, y, classes)


def found(columns: dict[str, Any], home: NDArray[np.int64], y: NDArray[np.int64]) -> dict[str, str]:
    listed = checked(columns, home, y, ("alive", "died")).suspects
    assert len({suspect.feature for suspect in listed}) == len(listed)
    return {suspect.feature: suspect.level for suspect in listed}


def test_a_column_that_is_the_label_is_warned_of() -> None:
    home, y, rng = table()
    columns = {
        "noise": rng.normal(size=len(y)),
        "copy": y + 0.0,
        "reversed": 1.0 - y + rng.normal(size=len(y)) * 0.01,
        "text": pd.Categorical(np.where(y == 1, "dead at discharge", "home")),
    }
    assert found(columns, home, y) == {"copy": "warn", "reversed": "warn", "text": "warn"}
    text = checked(columns, home, y, ("alive", "died")).suspects[0].text
    assert text == (
        "feature 'copy' alone ranks 1.000 of pairs within hospitals right: it is almost the label; drop it "
        "(data.drop: ['copy']) unless it is known beforehand"
    )


def test_days_until_death_or_the_end_of_follow_up_are_warned_of() -> None:
    """Survivors are followed for a year or more, the dead for days: .975 to .99, as in SUPPORT2."""
    rng = np.random.default_rng(1)
    home = np.repeat(np.arange(8), 400)
    y = (rng.random(len(home)) < 0.3).astype(np.int64)
    days = np.where(y == 1, rng.exponential(60, len(y)), rng.uniform(200, 2000, len(y)))
    days[rng.random(len(y)) < 0.02] = 1.0
    result = checked({"days": days, "age": rng.normal(60, 10, len(y))}, home, y, ("alive", "died"))
    assert [(each.feature, each.level) for each in result.suspects] == [("days", "warn")]
    assert "'days' ranks best, AUROC 0.9" in result.note


@pytest.mark.parametrize(("right", "level"), [(0.93, "ask"), (0.85, "list"), (0.7, None)])
def test_weaker_columns_are_asked_about_or_listed(right: float, level: str | None) -> None:
    rng = np.random.default_rng(2)
    home, y = np.repeat(np.arange(10), 300), np.tile([0, 1], 1500)
    value = np.where(rng.random(3000) < right, y, 1 - y)  # a test of this sensitivity and specificity
    assert found({"x": value.astype(float)}, home, y) == ({} if level is None else {"x": level})
    coded = pd.Categorical(np.where(value == 1, "b", "a"))
    assert found({"x": coded}, home, y) == ({} if level is None else {"x": level})


def test_few_rows_raise_no_alarm() -> None:
    """Of 1,000 columns of noise at one hospital with five rows of each class, several separate these."""
    rng = np.random.default_rng(3)
    columns = {f"x{j}": rng.normal(size=10) for j in range(1000)}
    home, y = np.zeros(10, np.int64), np.repeat([0, 1], 5)
    assert max(abs(np.corrcoef(values, y)[0, 1]) for values in columns.values()) > 0.9
    assert "warn" not in found(columns, home, y).values()


@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize("lacking", [0, 1])
def test_a_value_that_is_missing_by_outcome_is_warned_of(kind: str, lacking: int) -> None:
    home, y, rng = table()
    values: Any = np.where(y == lacking, np.nan, rng.normal(size=len(y)))
    if kind == "category":
        values = pd.Categorical(np.where(y == lacking, None, "measured"))
    (suspect,) = checked({"lactate": values, "x": rng.normal(size=len(y))}, home, y, ("alive", "died")).suspects
    name = ("alive", "died")[lacking]
    assert suspect.text.startswith(
        f"feature 'lactate' is missing in all {(y == lacking).sum()} rows of '{name}' and in no other; drop it"
    )
    assert suspect.level == "warn"


def test_missing_by_outcome_needs_ten_rows_of_each() -> None:
    home = np.repeat(np.arange(3), 20)
    for events, level in ((9, {}), (10, {"x": "warn"})):
        y = np.zeros(60, np.int64)
        y[np.linspace(0, 59, events).astype(int)] = 1  # at no hospital five
        assert found({"x": np.where(y == 1, np.nan, 0.0)}, home, y) == level


def test_a_value_that_is_mostly_missing_by_outcome_is_warned_of() -> None:
    rng = np.random.default_rng(4)
    home, y = np.repeat(np.arange(10), 300), np.tile([0, 1], 1500)
    for right, level in ((0.88, {"x": "warn"}), (0.7, {})):
        missing = np.where(rng.random(3000) < right, y, 1 - y) == 1
        assert found({"x": np.where(missing, np.nan, rng.normal(size=3000))}, home, y) == level


def test_whole_numbers_that_are_codes_are_asked_about() -> None:
    rng = np.random.default_rng(5)
    home = np.repeat(np.arange(10), 200)
    code = rng.integers(1, 5, 2000)
    y = (rng.random(2000) < np.array([0.4, 0.15, 0.2, 0.7])[code - 1]).astype(np.int64)
    score = rng.binomial(5, np.where(y == 1, 0.6, 0.4))  # few whole numbers too, along which the share rises
    assert found({"pain": code + 0.0, "score": score + 0.0}, home, y) == {"pain": "ask"}


def test_each_of_several_classes_is_compared_with_the_rest() -> None:
    rng = np.random.default_rng(6)
    home, y = np.repeat(np.arange(5), 90), np.tile([0, 1, 2], 150)
    result = checked({"is b": (y == 1) + 0.0, "x": rng.normal(size=450)}, home, y, ("a", "b", "c"))
    (suspect,) = result.suspects
    assert (suspect.feature, suspect.level) == ("is b", "warn")
    assert "('b' against the rest)" in suspect.text
    assert "one class against the rest" in result.note


def test_labels_that_no_column_is_compared_with() -> None:
    home, y, rng = table()
    real = checked({"copy": y + 0.0}, home, y.astype(float), ())
    assert real == Leaks((), "the label is a number: no column is compared with it")
    many = checked({"x": rng.normal(size=len(y))}, home, np.arange(len(y)) % 30, tuple(map(str, range(30))))
    assert many.note == "30 classes are more than 20: no column is compared with them"
    one = checked({"copy": y + 0.0}, home, np.zeros_like(y), ("alive", "died"))
    assert one.note.startswith("no hospital has 5 rows of a class")
    assert not one.suspects


def test_of_a_large_table_evenly_spaced_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    home, _, rng = table()
    y = (rng.random(len(home)) < 0.5).astype(np.int64)
    columns = {"copy": y + 0.0, "x": rng.normal(size=len(y))}
    monkeypatch.setattr("raysim.data.checks.suspects._MOST", 200)
    monkeypatch.setattr("raysim.data.checks.suspects._OF_HOSPITAL", 30)
    result = checked(columns, home, y, ("alive", "died"))
    assert [each.feature for each in result.suspects] == ["copy"]
    assert "on 180 of 360 rows" in result.note
    monkeypatch.setattr("raysim.data.checks.suspects._MOST", 100)
    assert "on 90 of 360 rows" in checked(columns, home, y, ("alive", "died")).note  # three of six hospitals


def test_a_model_that_is_too_good() -> None:
    assert unusually_high(0.979) == (
        "An AUROC of 0.979 is unusually high: look for a column that gives the label away."
    )
    assert unusually_high(0.97) == unusually_high(float("nan")) == ""


def leaking(tmp_path: Path) -> Table:
    """The file ``leak.csv``, of which one column is the label and one is 0 at a whole hospital."""
    home, y, rng = table()
    columns = {"site": [f"s{h}" for h in home], "died": y, "age": rng.normal(60, 10, len(y)).round(1), "outcome": y * 2}
    columns["chol"] = np.where(home == 2, 0.0, rng.normal(230, 40, len(y)).round())
    pd.DataFrame(columns).to_csv(tmp_path / "leak.csv", index=False)
    return Table.model_validate({"path": tmp_path / "leak.csv", "silo": "site", "label": "died"})


def test_a_federation_keeps_what_was_found(tmp_path: Path) -> None:
    federation = build(leaking(tmp_path), Split())
    assert [(each.feature, each.level) for each in federation.leaks.suspects] == [("outcome", "warn")]
    assert [(each.feature, each.level) for each in federation.quality] == [("chol", "ask")]
    folder = tmp_path / "halves"
    folder.mkdir()
    again = rearranged(federation, random_half(federation, np.random.default_rng(0)), Added.none(federation), folder)
    assert (again.leaks, again.quality) == (federation.leaks, federation.quality)
    lines = data_warnings([federation, again], private=False)
    assert lines == [
        f"warning: {federation.leaks.suspects[0].text}",
        "look at 'chol': raysim describe says what is odd",
    ]


def test_nothing_is_named_where_privacy_is_asked_for(tmp_path: Path) -> None:
    innocent = build(Synthetic(hospitals=5), Split())
    private = data_warnings([build(leaking(tmp_path), Split())], private=True)
    assert private == data_warnings([innocent], private=True)
    assert private == [UNSAID]


def test_pictures_are_not_checked() -> None:
    assert build(Digits(clients=5), Split()).leaks == Leaks()


@pytest.mark.parametrize("source", [Synthetic(hospitals=20), PatientTypes()])
def test_generated_tables_are_innocent(source: Any) -> None:
    assert build(source, Split()).leaks.suspects == ()


def test_measurements_that_rank_well_by_nature_are_asked_about_alone() -> None:
    levels = {each.level for each in build(BreastCancer(clients=10), Split()).leaks.suspects}
    assert levels == {"ask", "list"}


HEART = [
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
    "num",
]
ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]


def test_open_tables_raise_no_false_alarm(data_folder: Path, tmp_path: Path) -> None:
    """The only two suspects are right: heart disease codes a kind of pain, and writes 0 for no cholesterol."""

    def of(frame: pd.DataFrame, silo: str, label: str) -> dict[str, str]:
        path = tmp_path / f"{silo}.csv"
        frame.to_csv(path, index=False)
        federation = build(Table.model_validate({"path": path, "silo": silo, "label": label}), Split())
        return {each.feature: each.level for each in (*federation.leaks.suspects, *federation.quality)}

    impact = pd.read_csv(data_folder / "impact" / "impact.csv.gz", keep_default_na=False)
    assert of(impact, "name", "mort") == {}
    centres = sorted((data_folder / "flamby" / "heart_disease").glob("processed.*.data"))
    assert len(centres) == 4
    heart = pd.concat([pd.read_csv(f, names=HEART, na_values="?").assign(centre=f.stem) for f in centres])
    assert of(heart.assign(num=(heart["num"] > 0).astype(int)), "centre", "num") == {"cp": "ask", "chol": "ask"}
    adult = pd.read_csv(data_folder / "adult" / "adult.data", names=ADULT, skipinitialspace=True, na_values="?")
    gains = of(adult.fillna({"occupation": "unknown"}), "occupation", "income")
    assert gains == {"capital-gain": "ask"}  # of which 99,999 is the highest that was written down
    tcga = pd.read_csv(data_folder / "flamby" / "tcga_brca" / "brca.csv")
    tcga["site"] = tcga.pop("pid").str.split("-").str[1]
    assert of(tcga, "site", "E") == {}
