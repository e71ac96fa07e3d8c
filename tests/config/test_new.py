"""``raysim new``, and what a table is answered with that was given as a configuration."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import raysim
from raysim.cli import main as cli
from raysim.config.proposed import configuration, four_lines, look
from raysim.config.tried import tried
from raysim.core.errors import TableGiven
from raysim.data.sources.frame import arrow_table
from raysim.data.tables.proposal import propose
from tests.commands import refusal

N = 120

SPLIT = {"train": 0.7, "validation": 0.1, "test": 0.2}


def frame(**columns: Any) -> pd.DataFrame:
    """Rows of two hospitals with an age, a lactate and a death; ``columns`` take their place or come to them."""
    draw = np.random.default_rng(0)
    plain = {
        "hospital": np.repeat(["north", "south"], N // 2),
        "age": draw.integers(30, 90, N),
        "lactate": draw.normal(2, 1, N).round(2),
        "died": draw.random(N) < 0.3,
    }
    return pd.DataFrame({name: values for name, values in (plain | columns).items() if values is not None})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


def proposed(**columns: Any) -> Any:
    return propose(arrow_table(frame(**columns), "data"))


def new(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``raysim new`` with ``arguments``. Raises ``SystemExit`` where it refuses."""
    monkeypatch.setattr(sys, "argv", ["raysim", "new", *arguments])
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code:
            raise


EACH = [f"p{i}" for i in range(N)]


@pytest.mark.parametrize(
    ("columns", "key", "column"),
    [
        ({}, "hospital", "hospital"),
        ({"hospital": None, "site_id": np.repeat([3, 5, 7], N // 3)}, "hospital", "site_id"),
        ({"ward": ["a", "b"] * (N // 2)}, "hospital", "hospital"),
        ({"hospital": None, "Hôpital": ["a", "b"] * (N // 2)}, "hospital", "Hôpital"),
        ({"hospital": None, "region": ["a", "b"] * (N // 2)}, "hospital", "region"),
        ({"hospital": None, "region": ["a", "b"] * (N // 2), "ward": ["c", "d"] * (N // 2)}, "hospital", None),
        ({"hospital": None, "group": ["a", "b"] * (N // 2)}, "hospital", None),
        ({"hospital": EACH}, "hospital", None),  # no hospital has two rows
        ({"hospitaldischargeyear": [2014, 2015] * (N // 2)}, "hospital", "hospital"),
        ({}, "label", "died"),
        ({"died": None, "mortality_30d": [0, 1] * (N // 2)}, "label", "mortality_30d"),
        ({"died": None, "décès": [0, 1] * (N // 2)}, "label", "décès"),
        ({"died": None, "gestorben": [0, 1] * (N // 2)}, "label", "gestorben"),
        ({"died": None, "y": [0, 1, 2] * (N // 3)}, "label", "y"),
        ({"died": None, "predicted_mortality": np.linspace(0, 1, N)}, "label", None),
        ({"died": None, "shock": [0, 1] * (N // 2)}, "label", None),
        ({"died": [None, *[0, 1] * (N // 2 - 1), 1], "readmitted": ["no", "yes"] * (N // 2)}, "label", "readmitted"),
        ({"died": None, "los": np.linspace(1, 9, N)}, "label", "los"),
        ({}, "patient", None),
        ({"patient_id": [f"p{i // 2}" for i in range(N)], "subject": EACH}, "patient", "patient_id"),
        ({"pid": EACH}, "patient", "pid"),
        ({"stay_id": [f"s{i // 2}" for i in range(N)]}, "patient", "stay_id"),
        ({"stay_id": EACH}, "patient", None),
    ],
)
def test_what_a_column_is(columns: dict[str, Any], key: str, column: str | None) -> None:
    assert getattr(proposed(**columns), key).column == column


def test_a_single_hospital_is_not_called_absent() -> None:
    found = proposed(hospital=["Elbe"] * N, ward=["a", "b"] * (N // 2))
    assert (found.hospital.column, found.hospital.why) == (
        "ward",
        "'hospital' has one value, and this one may name hospitals",
    )
    assert found.drop == {"hospital": "one value everywhere"}


def test_what_else_could_have_been_meant_is_said() -> None:
    one = proposed(deceased=[0, 1] * (N // 2), centre=["a", "b", "c"] * (N // 3))
    assert (one.label.column, one.label.others) == ("died", ("deceased",))
    assert (one.hospital.column, one.hospital.others) == ("hospital", ("centre",))
    assert one.drop == {"deceased": "its name suggests an outcome, too"}
    none = proposed(hospital=None, died=None, shock=[0, 1] * (N // 2), unit=["a", "b"] * (N // 2), ward=["a", "b"] * 60)
    assert none.label.others == ("shock", "unit", "ward")
    assert none.hospital.others == ("unit", "ward")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (EACH, "a different value in every row"),
        (np.arange(N), "a different value in every row"),
        (pd.date_range("2020-01-01", periods=N), "dates or times"),
        (["2020-01-02"] * N, "dates or times"),
        ([1] * N, "one value everywhere"),
        ([None] * N, "no value"),
        ([[1]] * N, "dates or times"),
        ([f"note {i // 1.1}" for i in range(N)], "109 different texts"),
        ([20_200_101 + i % 28 for i in range(N)], "numbers that are probably dates, 20200101 to 20200128"),
        (np.linspace(0, 1, N), None),
        (np.arange(N) * 1000, None),
        (["a", "b"] * (N // 2), None),
    ],
)
def test_what_is_no_feature(values: Any, reason: str | None) -> None:
    assert proposed(x=values).drop.get("x") == reason


def test_what_is_said_holds_for_all_rows_of_a_long_table() -> None:
    row = np.arange(500_000)
    rows = pd.DataFrame(
        {
            "hospital": row % 7,
            "died": pd.array(np.where(row < 1_000, None, row % 2 * (row % 3 == 0)), "Int64"),
            "odd": np.where(row % 2, row % 5, 0),
            "marked": np.where(row == 1, "<0.3", np.where(row % 2, "1.5", "2.5")),
        }
    )
    found = propose(arrow_table(rows, "data"))
    assert found.rows == 500_000
    assert found.label.why == "its name suggests an outcome; 1,000 rows have no value"
    assert found.drop == {}
    died = rows["died"].dropna()
    assert found.classes == {"0": (died == 0).sum(), "1": (died == 1).sum()}
    assert found.marks == {"marked": "'<0.3' (1)"}


@pytest.mark.parametrize(
    ("label", "event"),
    [
        (["alive", "dead"], None),  # the last one is the event
        (["dead", "survived"], "dead"),
        (["died", "home"], "died"),
        ([0, 1], None),
        (["no", "yes"], None),
        (["mild", "severe"], None),
    ],
)
def test_the_event(label: list[Any], event: str | None) -> None:
    assert proposed(died=label * (N // 2)).event == event


def test_attributes() -> None:
    found = proposed(Gender=["F", "M"] * (N // 2), race=["a", "b"] * (N // 2))
    assert found.attributes == {"sex": "Gender", "age": "age", "ethnicity": "race"}
    assert proposed(age=["> 89", *["50"] * (N - 1)]).attributes == {"age": "age"}
    assert proposed(age=["old", *["50"] * (N - 1)]).attributes == {}


def test_marks_among_numbers() -> None:
    numbers = [str(i / 7)[:4] for i in range(N - 4)]
    found = proposed(
        x=["<0.3", "> 9", "?", "n.d.", *numbers], y=["-", *numbers, "1", "2", "3"], z=["old", *numbers, *"123"]
    )
    assert found.censored == {"<": "half", ">": "limit"}
    assert found.na_values == {"x": ["?", "n.d."], "y": ["-"]}
    assert set(found.marks) == {"x", "y"}  # z is left to a person


@pytest.mark.parametrize(
    ("name", "label", "dropped"),
    [
        ("unit_discharge_location", "died", True),
        ("discharge_weight", "readmitted", False),
        ("los_days", "died", True),
        ("unabridgedUnitLos", "died", True),
        ("length_of_stay", "died", True),
        ("ICU LOS (hours)", "died", True),
        ("Verweildauer", "died", True),
        ("Durée de séjour", "died", True),
        ("colostomy", "died", False),
        ("T", "event", True),
        ("days_to_death", "event", True),
        ("time", "mortality", False),
    ],
)
def test_what_is_known_later_is_no_feature(name: str, label: str, dropped: bool) -> None:
    found = proposed(**{"died": None, label: [0, 1] * (N // 2), name: np.linspace(0, 1, N)})
    assert found.label.column == label
    assert (name in found.drop) == dropped


def test_units_and_marks_of_texts() -> None:
    numbers = [str(i / 7)[:4] for i in range(N - 4)]
    found = proposed(
        x=["5 mg/l", "<0.3 mg/L", "?", "7", *numbers],
        y=["5 mg", "6 g", "7", "8", *numbers],
        z=["?", "a", "-", "none"] * (N // 4),
    )
    assert found.units == {"x": ["mg/l", "mg/L"]}  # y has two, which a person converts
    assert found.censored == {"<": "half"}
    assert found.na_values == {"x": ["?"], "z": ["?", "-"]}


def test_what_is_proposed_of_marks_is_read(tmp_path: Path, monkeypatch, capsys) -> None:
    numbers = [f"{i / 7:.2f}" for i in range(N - 3)]
    frame(
        crp=["5 mg/l", "<0.3 mg/l", "n.d.", *numbers],
        ward=["A", "?", "B"] * (N // 3),
        platelets=[f"{100 + i},000" for i in range(N)],
    ).to_csv("t.csv", index=False)
    new("t.csv", "--out", "t.yaml", monkeypatch=monkeypatch)
    said = capsys.readouterr().out.splitlines()
    settle = "to settle: data.path: column 'platelets' of 't.csv' has 120 numbers with a comma, and column"
    assert next(line for line in said if line.startswith("to settle")).replace(f"{tmp_path}/", "").startswith(settle)
    assert "data.na_values: 'ward', where '?' stands for a missing value" in said
    data = yaml.safe_load(Path("t.yaml").read_text())["data"]
    assert {key: data.get(key) for key in ("units", "na_values", "censored")} == {
        "units": {"crp": ["mg/l"]},
        "na_values": {"crp": ["n.d."], "ward": ["?"]},
        "censored": {"<": "half"},
    }
    made = raysim.describe("t.yaml", overrides={"data.decimal": "."})
    assert {column.name: column.kind for column in made.summary.columns} == {
        "age": "number",
        "lactate": "number",
        "crp": "number",
        "ward": "category",
        "platelets": "number",
    }


def test_new_writes_what_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    rows = frame(
        stay_id=range(N),
        patient=[f"p{i // 2}" for i in range(N)],
        sex=["F", "M"] * (N // 2),
        died=["dead", "survived", "survived"] * (N // 3),
        went_to=["morgue", "home", "rehab"] * (N // 3),
    )
    (tmp_path / "in").mkdir()
    text = rows.to_csv(sep=";", decimal=",", index=False)
    (tmp_path / "in" / "my stays.csv").write_text("Stays of 2024;;;;;;;\n" + text)
    new("in/my stays.csv", "--out", "stays.yaml", monkeypatch=monkeypatch)
    assert yaml.safe_load(Path("stays.yaml").read_text()) == {
        "name": "my_stays",
        "data": {
            "source": "table",
            "path": "in/my stays.csv",
            "separator": ";",
            "decimal": ",",
            "silo": "hospital",
            "label": "died",
            "positive": "dead",
            "group": "patient",
            "sex": "sex",
            "age": "age",
            "drop": ["stay_id", "went_to"],
            "split": SPLIT,
        },
        "strategy": "fedavg",
        "strategies": ["local", "centralized", "fedavg", "newton"],
    }
    said = capsys.readouterr().out.splitlines()
    assert said[:5] == [
        "in/my stays.csv: 120 rows, 8 columns",
        "'in/my stays.csv' is read with semicolons between columns and a decimal comma; data.separator and "
        "data.decimal name another",
        "'in/my stays.csv' is read without 1 line above its column names",
        "data.silo: 'hospital', because its name says so",
        "data.label: 'died', because its name suggests an outcome",
    ]
    assert sum("above its column names" in line for line in said) == 1
    assert "the event: 'dead', in 33.3% of rows; data.positive names another" in said
    assert "data.drop: 'stay_id' (a different value in every row)" in said
    assert "data.drop: 'went_to', because it alone gives the label away" in said
    assert said[-2:] == ["files: stays.yaml", "Next   raysim describe stays.yaml"]
    made = raysim.run("stays.yaml", overrides={"training.rounds": 1}, in_process=True, out="out")
    assert made.config.data.frozen()["separator"] == ";"


@pytest.mark.parametrize(("label", "last"), [([0, 1] * (N // 2), "newton"), ([0, 1, 2] * (N // 3), "fedprox")])
def test_what_is_compared_fits_the_label(label: list[int], last: str, monkeypatch, capsys) -> None:
    frame(died=label).to_csv("t.csv", index=False)
    new("t.csv", monkeypatch=monkeypatch)
    written = yaml.safe_load(capsys.readouterr().out)
    assert written["data"]["label"] == "died"
    assert written["strategies"] == ["local", "centralized", "fedavg", last]


def test_new_leaves_to_a_person_what_nothing_speaks_for(tmp_path: Path, monkeypatch, capsys) -> None:
    frame(hospital=None, died=None, shock=[0, 1] * (N // 2), unit=["a", "b"] * 60).drop(columns="age").to_csv(
        "t.csv", index=False
    )
    new("t.csv", monkeypatch=monkeypatch)
    said = capsys.readouterr()
    data = {"source": "table", "path": "t.csv", "silo": "unit", "label": "?", "split": SPLIT}
    assert yaml.safe_load(said.out)["data"] == data
    assert '  label: "?"  # fill in a column; it may be shock\n' in said.out
    assert said.err.splitlines()[-1] == (
        "to fill in: data.label is '?', because no column obviously is to be predicted; fill in a column; it may be "
        "shock"
    )
    Path("t.yaml").write_text(said.out)
    with pytest.raises(raysim.RaysimError, match=r"data.label: no column '\?' in '.*'; known: lactate, shock, unit"):
        raysim.run("t.yaml", in_process=True)


def test_new_says_what_keeps_the_table_from_being_read(monkeypatch, capsys) -> None:
    frame(died=[None, *[0, 1] * (N // 2 - 1), 1]).to_csv("t.csv", index=False)
    new("t.csv", "--out", "t.yaml", monkeypatch=monkeypatch)
    *_, settle, files = capsys.readouterr().out.splitlines()
    assert settle.startswith(
        "to settle: data.label: column 'died' has no value in 1 row (first: row 1); fill in values"
    )
    assert files == "files: t.yaml"


def test_new_of_a_file_for_each_hospital(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "sites").mkdir()
    for name, rows in frame().groupby("hospital"):
        rows.drop(columns="hospital").to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    new("sites/*.csv", "--out", "s.yaml", monkeypatch=monkeypatch)
    assert yaml.safe_load(Path("s.yaml").read_text())["data"] == {
        "source": "table",
        "path": "sites/*.csv",
        "label": "died",
        "age": "age",
        "split": SPLIT,
    }
    assert "hospitals: the names of the files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.csv"], "table: 'none.csv' does not exist"),
        (["t.csv", "--out", "there.yaml"], "--out: there.yaml exists; name a new file"),
        (["t.csv", "--out", "no/t.yaml"], "--out: no/t.yaml is in a folder that does not exist"),
        (["empty.csv"], "table: 'empty.csv' is empty"),
        (["names.csv"], "table: 'names.csv' has no rows"),
    ],
)
def test_new_refuses(arguments: list[str], said: str, monkeypatch, capsys) -> None:
    frame().to_csv("t.csv", index=False)
    for name, text in (("there.yaml", "name: mine\n"), ("empty.csv", ""), ("names.csv", "a,b\n")):
        Path(name).write_text(text)
    with pytest.raises(SystemExit) as ended:
        new(*arguments, monkeypatch=monkeypatch)
    assert ended.value.code == 2
    assert refusal(capsys.readouterr().err).startswith(said)
    assert Path("there.yaml").read_text() == "name: mine\n"


def test_a_table_given_as_a_configuration_is_answered_with_its_lines(monkeypatch, capsys) -> None:
    frame().to_csv("heart.csv", index=False)
    monkeypatch.setattr(sys, "argv", ["raysim", "run", "heart.csv"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert refusal(said.err) == (
        "heart.csv: is a table, not a configuration; a configuration describes the columns of a table, as in the next "
        "lines; 'raysim new heart.csv --out heart.yaml' writes a whole configuration"
    )
    assert said.out == "data:\n  source: table\n  path: heart.csv\n  silo: hospital\n  label: died\n"
    Path("heart.yaml").write_text(said.out)
    assert raysim.describe("heart.yaml").summary.hospitals == ("north", "south")
    with pytest.raises(TableGiven, match="is a table"):
        raysim.compare("heart.csv")


@pytest.mark.parametrize("name", ["a: b", "yes", "007", "1e5", "a #b", "'", '"', "é", "- x", "x ", "null", "*", "{a}"])
def test_names_stay_what_they_are_in_yaml(name: str, tmp_path: Path) -> None:
    frame().rename(columns={"died": f"{name} died", "hospital": f"{name}"}).rename(columns={name: "site"}).assign(
        **{f"{name}": "one value"}
    ).to_parquet(tmp_path / "t.parquet")
    looked = look(tmp_path / "t.parquet")
    data = yaml.safe_load(configuration(looked, tmp_path, {}))["data"]
    assert data["label"] == f"{name} died"
    assert data["drop"] == [name]
    assert yaml.safe_load(four_lines(looked))["data"]["label"] == f"{name} died"


HEART = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num\n"
ADULT = (
    "age,workclass,fnlwgt,education,education_num,marital,occupation,relationship,race,sex,gain,loss,hours,country,"
    "income\n"
)


def patients(folder: Path) -> pd.DataFrame:
    """The stays of the eICU demo whose end is known."""
    stays = pd.read_csv(folder / "eicu_demo" / "patient.csv.gz")
    return stays[stays["hospitaldischargestatus"].notna()]


def beside_hospitals(folder: Path, table: str) -> pd.DataFrame:
    """A table of the eICU demo with the hospital of each stay."""
    stays = pd.read_csv(folder / "eicu_demo" / "patient.csv.gz", usecols=["patientunitstayid", "hospitalid"])
    return pd.read_csv(folder / "eicu_demo" / f"{table}.csv.gz").merge(stays, on="patientunitstayid")


def regions(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(folder / "flamby" / "tcga_brca" / "brca.csv")
    centres = pd.read_csv(folder / "flamby" / "tcga_brca" / "centers.csv", keep_default_na=False)
    region = dict(zip(centres["TSS Code"], centres["Region"], strict=True))
    return rows.assign(region=[region[pid.split("-")[1]] for pid in rows["pid"]])


def adult(folder: Path) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(ADULT + (folder / "adult" / "adult.data").read_text()), skipinitialspace=True)


def hearts(folder: Path) -> pd.DataFrame:
    rows = []
    for centre in ("cleveland", "hungarian", "switzerland", "va"):
        text = HEART + (folder / "flamby" / "heart_disease" / f"processed.{centre}.data").read_text()
        rows.append(pd.read_csv(io.StringIO(text), na_values="?").assign(centre=centre))
    return pd.concat(rows)


def cohort(folder: Path) -> pd.DataFrame:
    stays = [pd.read_parquet(folder / "eicu_demo_hourly" / "mortality24" / f"{n}.parquet") for n in ("sta", "outc")]
    homes = pd.read_csv(folder / "eicu_demo" / "patient.csv.gz", usecols=["patientunitstayid", "hospitalid"])
    return stays[0].merge(stays[1]).merge(homes, left_on="stay_id", right_on="patientunitstayid")


OPEN: dict[str, tuple[Callable[[Path], pd.DataFrame], dict[str, Any], list[str]]] = {
    "impact": (
        lambda folder: pd.read_csv(folder / "impact" / "impact.csv.gz"),
        {"silo": "name", "label": "mort", "age": "age"},
        [],
    ),
    "eicu patient": (
        patients,
        {
            "silo": "hospitalid",
            "label": "hospitaldischargestatus",
            "group": "uniquepid",
            "sex": "gender",
            "age": "age",
            "censored": {">": "limit"},
        },
        ["patientunitstayid", "wardid", "apacheadmissiondx", "hospitaldischargetime24", "unitdischargestatus"],
    ),
    "eicu apachepredvar": (
        lambda folder: beside_hospitals(folder, "apachepredvar"),
        {"silo": "hospitalid", "label": "diedinhospital", "sex": "gender", "age": "age"},
        ["apachepredvarid", "patientunitstayid", "admitdiagnosis", "aids"],
    ),
    "eicu apachepatientresult": (
        lambda folder: beside_hospitals(folder, "apachepatientresult"),
        {"silo": "hospitalid", "label": "actualicumortality"},
        ["apachepatientresultsid", "predictedicumortality", "actualhospitalmortality"],
    ),
    "tcga brca": (regions, {"silo": "region", "label": "E", "group": "pid", "age": "age_at_index"}, []),
    "adult": (adult, {"silo": "country", "label": "income", "sex": "sex", "age": "age", "ethnicity": "race"}, []),
    "heart disease": (hearts, {"silo": "centre", "label": "num", "sex": "sex", "age": "age"}, []),
    "yaib mortality24": (
        cohort,
        {"silo": "hospitalid", "label": "label", "sex": "sex", "age": "age"},
        ["stay_id", "patientunitstayid"],
    ),
}
"""Open tables, the keys that are proposed for them, and some of the columns that are dropped."""

RUN = ("heart disease", "tcga brca")
"""Small ones, of one kind of columns and of both."""


@pytest.mark.parametrize("name", OPEN)
def test_the_open_tables(name: str, data_folder: Path, tmp_path: Path) -> None:
    made, keys, dropped = OPEN[name]
    made(data_folder).to_csv(tmp_path / "t.csv", index=False)
    looked = look(tmp_path / "t.csv")
    text = configuration(looked, tmp_path, {})
    data = yaml.safe_load(text)["data"]
    assert {key: value for key, value in data.items() if key in keys} == keys
    assert set(dropped) <= set(data.get("drop", []))
    found = tried(looked, text, tmp_path)
    assert found.refused == ""
    if name not in RUN:
        return
    (tmp_path / "t.yaml").write_text(configuration(looked, tmp_path, found.leaks))
    result = raysim.run(
        tmp_path / "t.yaml", overrides={"training.rounds": 1, "training.local_epochs": 1}, in_process=True, out="out"
    )
    assert result.folder.is_dir()


def test_a_folder_of_tables_is_answered(tmp_path: Path) -> None:
    (tmp_path / "my sites").mkdir()
    frame().to_csv(tmp_path / "my sites" / "a.csv")
    with pytest.raises(
        raysim.RaysimError,
        match=r"my sites: is a folder of tables; write a configuration for them: raysim new 'my sites/\*.csv' --out",
    ):
        raysim.run("my sites")
