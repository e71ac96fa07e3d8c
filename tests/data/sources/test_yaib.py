"""The ``yaib`` source on small cohorts written in that layout, and on the demo's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.sources.yaib import STATISTICS, Yaib
from raysim.data.split import Split
from tests.data.sources.test_eicu_folder import patient, write

nan = float("nan")

# Stay, hour, heart rate, creatinine.
HOURS: list[tuple[int, int, float, float]] = [
    (1, 0, 80.0, nan),
    (1, 1, 90.0, 1.25),
    (1, 2, nan, 1.5),
    (1, 3, 500.0, 9.0),  # after three hours
    (2, 0, 60.0, nan),
    (2, 2, 65.5, nan),
    (3, 3, 70.0, 1.0),
    (9, 0, 99.0, 9.0),  # not in the patient table
]


@pytest.fixture
def eicu(tmp_path: Path) -> Path:
    tables = {
        "patient": [
            patient(1, uniquepid="p"),
            patient(2, uniquepid="p", hospitalid=2),
            patient(3, hospitaldischargestatus="", age=17),  # whom the cohort has is for the cohort to say
            patient(4, hospitalid=""),
        ],
        "hospital": [{"hospitalid": 2, "region": "South", "numbedscategory": ">= 500", "teachingstatus": "t"}],
    }
    return write(tmp_path / "eicu", tables)


def cohort(folder: Path, labels: pd.DataFrame, unit: Any = 3600, **frames: pd.DataFrame) -> Path:
    """Write a cohort; ``unit`` is an hour."""
    folder.mkdir(exist_ok=True)
    dyn = pd.DataFrame(HOURS, columns=["stay_id", "time", "hr", "crea"])
    sta = pd.DataFrame(
        {
            "stay_id": [3, 2, 1, 4, 9],
            "age": [17.0, 90.0, nan, 50.0, 50.0],
            "sex": [None, "Male", "Female", "Male", "Male"],
        }
    )
    for name, frame in {"dyn": dyn, "sta": sta, "outc": labels, **frames}.items():
        timed = frame.assign(time=frame["time"] * unit) if "time" in frame else frame
        timed.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def per_stay(label: Any = (1, 0, 1, 0, 1)) -> pd.DataFrame:
    return pd.DataFrame({"stay_id": [1, 2, 3, 4, 9], "label": label})


def read(folder: Path, eicu: Path, **fields: Any) -> Any:
    return Yaib(path=folder, eicu=eicu, **fields).read()


def test_one_row_a_stay(tmp_path: Path, eicu: Path) -> None:
    records = read(cohort(tmp_path / "death", per_stay()), eicu, hours=3)
    X = records.features
    assert list(X) == ["age", "sex", *(f"{name}_{statistic}" for name in ("hr", "crea") for statistic in STATISTICS)]
    np.testing.assert_array_equal(X["age"], np.float32([nan, 90, 17]))
    assert X["sex"].tolist()[:2] == ["Female", "Male"]
    assert X["sex"].isna().tolist() == [False, False, True]
    expected = [
        [90, 85, 80, 90, 2, 1.5, 1.375, 1.25, 1.5, 2],
        [65.5, 62.75, 60, 65.5, 2, nan, nan, nan, nan, 0],
        [nan, nan, nan, nan, 0, nan, nan, nan, nan, 0],
    ]
    np.testing.assert_array_equal(X.iloc[:, 2:].to_numpy(), np.float32(expected))
    assert records.y.tolist() == [1, 0, 1]
    assert records.classes == ("no death", "death")
    assert records.silo.tolist() == ["1", "2", "1"]
    assert records.group.tolist() == ["p", "p", "001-3"]
    assert records.attributes["2"] == {"region": "South", "beds": ">= 500", "teaching": "yes"}
    assert records.patients["sex"].tolist() == ["Female", "Male", "unknown"]
    np.testing.assert_array_equal(records.patients["age"], [nan, 90, 17])
    assert records.patients["ethnicity"].tolist() == ["Caucasian"] * 3
    assert records.notes == (
        f"yaib: 3 of 5 stays of {tmp_path / 'death'}, as known 3 hours after admission",
        "left out: 0 without a label, 2 without a hospital",
        "dyn.parquet: time is a number, taken as seconds after admission (data.time_unit sets another unit)",
        "death: 2 of 3 stays (66.7%)",
    )
    assert read(tmp_path / "death", eicu, silo="ward", hours=3).silo.tolist() == ["1/10", "2/10", "1/10"]
    assert build(Yaib(path=tmp_path / "death", eicu=eicu), Split(train=0.5, test=0.5), "standard", 0).hospitals == (
        "1",
        "2",
    )


def test_nothing_after_the_hours_is_a_feature(tmp_path: Path, eicu: Path) -> None:
    clean = read(cohort(tmp_path / "a", per_stay()), eicu, hours=3).features
    dyn = pd.DataFrame(HOURS, columns=["stay_id", "time", "hr", "crea"])
    late = dyn[dyn["time"] >= 3].assign(hr=-1.0, crea=99.0)
    more = late.assign(stay_id=2, time=7)
    changed = pd.concat([dyn[dyn["time"] < 3], late, more])
    assert read(cohort(tmp_path / "b", per_stay(), dyn=changed), eicu, hours=3).features.equals(clean)
    assert not read(tmp_path / "b", eicu, hours=4).features.equals(read(tmp_path / "a", eicu, hours=4).features)


def test_order_of_rows_does_not_matter(tmp_path: Path, eicu: Path) -> None:
    rng = np.random.default_rng(0)
    dyn = pd.DataFrame(
        {"stay_id": np.repeat([1, 2, 3], 400), "time": np.tile(np.arange(400), 3), "hr": rng.normal(size=1200)}
    )
    first = read(cohort(tmp_path / "a", per_stay(), dyn=dyn), eicu, hours=400).features
    second = read(cohort(tmp_path / "b", per_stay(), dyn=dyn.sample(frac=1, random_state=1)), eicu, hours=400).features
    assert first.equals(second)
    np.testing.assert_allclose(first["hr_mean"], dyn.groupby("stay_id")["hr"].mean(), rtol=1e-6)


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
def test_hours_are_hours_whatever_the_step(tmp_path: Path, eicu: Path, resolution: str) -> None:
    """Of a grid of four hours, hours 0 to 20 are known after 24, and hour 92 is not."""
    hours = np.arange(0, 96, 4)
    dyn = pd.DataFrame({"stay_id": 1, "time": pd.to_timedelta(hours, unit="h").as_unit(resolution), "hr": hours + 0.0})
    records = read(cohort(tmp_path / "grid", per_stay(), unit=1, dyn=dyn), eicu)
    assert records.features.loc[0, ["hr_last", "hr_count"]].tolist() == [20, 6]
    assert "dyn.parquet: a row only every 4 hours" in records.notes
    assert not any("is a number" in note for note in records.notes)


def test_the_unit_of_numbers_is_assumed_aloud_or_named(tmp_path: Path, eicu: Path) -> None:
    grid = pd.DataFrame({"stay_id": 1, "time": np.arange(0, 480, 60), "hr": 1.0})
    path = cohort(tmp_path / "c", per_stay(), unit=1, dyn=grid)
    assumed = read(path, eicu)
    assert assumed.features["hr_count"][0] == 8
    assert (
        "dyn.parquet: time is a number, taken as minutes after admission (data.time_unit sets another unit)"
        in assumed.notes
    )
    named = read(path, eicu, time_unit="hours")
    assert named.features["hr_count"][0] == 1
    assert not any("taken as" in note for note in named.notes)
    with pytest.raises(
        DataError, match=r"dyn.parquet has 7 rows between full hours .*; export the cohort by the hour$"
    ):
        read(path, eicu, time_unit="seconds")
    minutes = cohort(tmp_path / "m", per_stay(), unit=1, dyn=grid.assign(time=np.arange(8) * 1435))
    with pytest.raises(
        DataError, match=r"a row every 1,435 hours up to hour 10,045, which is implausible; set data.time_unit"
    ):
        read(minutes, eicu)
    typed = cohort(tmp_path / "t", per_stay(), unit=pd.Timedelta(hours=1))
    with pytest.raises(DataError, match=r"^data.time_unit: hours, but column time holds durations"):
        read(typed, eicu, time_unit="hours")


def test_what_no_hour_has_is_left_out_and_counted(tmp_path: Path, eicu: Path) -> None:
    dyn = pd.DataFrame(
        {"stay_id": [1, 1, 1, 1, 7], "time": [-2.0, -1.0, 0.0, nan, 1.0], "hr": [1.0, 2.0, 4.0, 8.0, 16.0]}
    )
    records = read(cohort(tmp_path / "c", per_stay(), unit=1, dyn=dyn), eicu)
    assert records.features.loc[0, ["hr_min", "hr_max", "hr_count"]].tolist() == [4, 4, 1]
    assert "left out of dyn.parquet: 2 rows before admission, 1 without a time" in records.notes
    assert records.notes[:2] == (  # stay 7 has measurements, and no label
        f"yaib: 3 of 6 stays of {tmp_path / 'c'}, as known 24 hours after admission",
        "left out: 1 without a label, 2 without a hospital",
    )


@pytest.mark.parametrize("unit", [1, 60, 3600, 1.0, pd.Timedelta(hours=1)])
def test_labels_by_the_hour_in_any_unit_of_time(tmp_path: Path, eicu: Path, unit: Any) -> None:
    hourly = pd.DataFrame(
        {
            "stay_id": [1, 1, 1, 1, 2, 2, 3, 3, 9],
            "time": [0, 2, 3, 4, 2, 3, 0, 2, 3],
            "label": [True, True, False, True, False, True, True, True, True],
        }
    )
    records = read(cohort(tmp_path / "aki", hourly, unit=unit), eicu, hours=3)
    assert records.y.tolist() == [0, 1]  # stay 3 ended before
    assert records.group.tolist() == ["p", "p"]
    assert records.notes[1] == "left out: 2 without a label at hour 3, 1 without a hospital"  # 4 has none at all
    np.testing.assert_array_equal(records.features["hr_last"], [90, 65.5])


def test_a_label_of_decimal_numbers_is_real(tmp_path: Path, eicu: Path) -> None:
    records = read(cohort(tmp_path / "los", per_stay([12.5, 3.0, 7.0, nan, 1.0])), eicu, hours=3)
    assert records.classes == ()
    assert records.y.tolist() == [12.5, 3.0, 7.0]
    assert records.y.dtype == np.float64
    assert records.notes[-1] == "los: a number, 3 to 12.5, mean 7.5"


def test_what_cannot_be_read_is_one_line(tmp_path: Path, eicu: Path) -> None:
    good = cohort(tmp_path / "c", per_stay())

    def message(**fields: Any) -> str:
        with pytest.raises(DataError) as caught:
            read(fields.pop("path", good), fields.pop("eicu", eicu), **fields)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "data.path: " in message(path=tmp_path)
    assert "has no dyn.parquet; name the folder of one YAIB task" in message(path=tmp_path)
    assert message(eicu=tmp_path / "none").startswith(f"data.eicu: {tmp_path / 'none'} is not a folder")
    assert "is in the patient table" in message(path=cohort(tmp_path / "other", per_stay().iloc[4:]))
    assert "of 0 stays with a label at hour 50" in message(
        path=cohort(tmp_path / "h", per_stay().assign(time=1)), hours=50
    )
    assert "outc.parquet has 5 rows more than stays" in message(
        path=cohort(tmp_path / "t", pd.concat([per_stay()] * 2))
    )
    twice = pd.DataFrame({"stay_id": [1, 1], "age": [1.0, 2.0]})
    assert "sta.parquet has 1 row more than stays" in message(path=cohort(tmp_path / "s", per_stay(), sta=twice))
    assert "holds values other than 0 and 1" in message(path=cohort(tmp_path / "m", per_stay([0, 1, 2, 0, 0])))
    assert "holds values other than 0 and 1" in message(path=cohort(tmp_path / "x", per_stay(list("abcde"))))
    uneven = pd.DataFrame(HOURS, columns=["stay_id", "time", "hr", "crea"])
    uneven["time"] = [0, 2, 2.5, 4, 2, 4, 6, 0]
    half = cohort(tmp_path / "u", per_stay(), dyn=uneven)
    assert "would have a row every 30 hours up to hour 360" in message(path=half)  # in minutes
    assert "has 1 row between full hours" in message(path=half, time_unit="seconds")
    for k, (kind, times) in enumerate(
        {"string": ["0"], "timestamp": pd.to_datetime(["2150-01-01"]), "bool": [True]}.items()
    ):
        odd = pd.DataFrame({"stay_id": [1], "time": times, "hr": [80.0]})
        path = cohort(tmp_path / f"odd{k}", per_stay())
        odd.to_parquet(path / "dyn.parquet", index=False)
        assert re.search(
            rf"column time of '.*dyn.parquet' holds \w*{kind}.*; export the cohort with", message(path=path)
        )
    words = pd.DataFrame({"stay_id": [1], "time": [0], "note": ["calm"]})
    assert "string, not numbers" in message(path=cohort(tmp_path / "w", per_stay(), dyn=words))
    assert "outc.parquet' has no column label" in message(path=cohort(tmp_path / "l", per_stay().drop(columns="label")))
    (tmp_path / "l" / "dyn.parquet").write_text("no parquet")
    assert "dyn.parquet' is not readable Parquet" in message(path=tmp_path / "l")
    (eicu / "hospital.csv").unlink()
    assert message(silo="region_beds").startswith("data.silo: region_beds needs hospital.csv")
    write(eicu, {"patient": [patient(1), patient(1), patient(2)]})
    assert "eicu lists stays more than once; keep one row for each stay" in message()


@pytest.mark.parametrize(
    ("task", "rows", "hospitals", "note"),
    [
        ("mortality24", 1367, 185, "mortality24: 70 of 1,367 stays (5.1%)"),
        ("aki", 1123, 178, "aki: 184 of 1,123 stays (16.4%)"),
        ("kidney_function", 801, 176, "kidney_function: a number, 0.21 to 12.2, mean 1.477"),
    ],
)
def test_the_demo(data_folder: Path, task: str, rows: int, hospitals: int, note: str) -> None:
    path = data_folder / "eicu_demo_hourly" / task
    records = read(path, data_folder / "eicu_demo")
    assert records.features.shape == (rows, 48 * 5 + 4)
    assert len(set(records.silo.tolist())) == hospitals
    assert records.notes[-1] == note
    # Against pandas, on the whole cohort.
    dyn = pd.read_parquet(path / "dyn.parquet", columns=["stay_id", "time", "hr", "na"])
    early = dyn[dyn["time"] < pd.Timedelta(hours=24)].sort_values("time")
    grouped = early.groupby("stay_id")[["hr", "na"]]
    stays = sorted(pd.read_parquet(path / "outc.parquet")["stay_id"].unique())
    wanted = grouped.agg(["last", "mean", "min", "max", "count"]).reindex(stays)
    if task == "aki":
        outc = pd.read_parquet(path / "outc.parquet")
        wanted = wanted.loc[sorted(outc.loc[outc["time"] == pd.Timedelta(hours=24), "stay_id"])]
    for name in ("hr", "na"):
        for statistic in STATISTICS:
            values = wanted[name, statistic].fillna(0) if statistic == "count" else wanted[name, statistic]
            np.testing.assert_allclose(records.features[f"{name}_{statistic}"], values, rtol=1e-6)
