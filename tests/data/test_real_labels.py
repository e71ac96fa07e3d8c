"""Labels that are numbers, from every kind of source to a stored federation and its description."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from rich.console import Console

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.describe import render, summarise
from raysim.data.federation import Federation
from raysim.data.records import Records
from raysim.data.sources.eicu.source import Eicu
from raysim.data.sources.synthetic import Synthetic
from raysim.data.sources.table import Table
from raysim.data.split import Split
from raysim.metrics.labels import CLASSIFICATION, REGRESSION
from raysim.report.terminal.unlikeness import unlikeness
from tests.data.in_memory_sources import Fixed, fixed, records
from tests.data.sources.test_eicu_folder import Rows, everything, patient, row, write
from tests.data.sources.test_eicu_leaks import POISON, same_bytes

HALF = Split(train=0.5, test=0.5)
LABELS = [0.25, -3.0, 1e-3, 1234.5, 0.1, 7.0, 2.5, 16777217.0]


def table(tmp_path: Path, cost: list[object], **fields: object) -> Table:
    path = tmp_path / "own.csv"
    pd.DataFrame({"site": ["a", "a", "b", "b"], "x": [1, 2, 3, 4], "cost": cost}).to_csv(path, index=False)
    return Table.model_validate({"path": path, "silo": "site", "label": "cost", "task": "regression"} | fields)


def real(y: list[float]) -> Records:
    made = records({"x": list(range(8))}, [0] * 8, ["a"] * 4 + ["b"] * 4, classes=())
    return dataclasses.replace(made, y=np.array(y))


def test_a_table_gives_its_numbers_as_they_are(tmp_path: Path) -> None:
    read = table(tmp_path, [1.5, -2, 0.1, 1e6]).read()
    assert read.y.dtype == np.float64
    assert read.y.tolist() == [1.5, -2, 0.1, 1e6]
    assert read.classes == ()
    assert list(read.features) == ["x"]
    assert "label 'cost': a number, -2 to 1e+06, mean 250000" in read.notes[0]
    assert table(tmp_path, [3, 4, 5, 6]).read().y.dtype == np.float64  # whole numbers too, where the task says so
    assert table(tmp_path, [3, 4, 5, 6], task="classification").read().classes == ("3", "4", "5", "6")


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([1.5, None, 2, 3], r"data.label: column 'cost' has no value in 1 row \(first: row 2\); fill in values"),
        ([1.5, "much", 2, 3], r"data.label: column 'cost' holds 'much' in row 2, not a number"),
        ([1.5, 2, 3, "inf"], r"data.label: column 'cost' holds inf in row 4, not a finite"),
    ],
)
def test_labels_that_are_no_numbers_are_refused(tmp_path: Path, cost: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(tmp_path, cost).read()


def test_the_remedy_for_numbers_as_classes_is_the_task(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds 1.5 in row 1; .*or set data.task: regression"):
        table(tmp_path, [1.5, 2, 3, 4], task="classification").read()
    with pytest.raises(
        ValidationError, match="positive: '1' names a class, but task regression has none; remove the key"
    ):
        table(tmp_path, [1, 2, 3, 4], positive="1")


def test_a_federation_keeps_real_labels_to_the_last_bit(tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("x")
    Fixed.reads.clear()
    for _ in range(2):  # from the source, then from the records that were kept
        federation = build(fixed(real(LABELS), "real", file), HALF, seed=len(Fixed.reads))
        assert federation.task is REGRESSION
        assert federation.y.dtype == np.float64
        assert sorted(federation.y.tolist()) == sorted(LABELS)
    assert Fixed.reads == ["real"]
    assert Federation.open(federation.folder).classes == ()
    classed = records({"x": list(range(8))}, [0, 1] * 4, ["a"] * 4 + ["b"] * 4)
    assert build(fixed(classed, "classed"), HALF).task is CLASSIFICATION


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([2.5] * 8, "data: all 8 rows have label 2.5; check the label, because no model can be learned from one label"),
        ([1.0, np.nan, *[0.0] * 6], "data.label: source fixed gives nan in row 2; give finite numbers"),
        ([*[0.0] * 7, -np.inf], "data.label: source fixed gives -inf in row 8; give finite numbers"),
        ([*[0.0] * 7, 1e300], "data.label: source fixed gives 1e\\+300 in row 8; give finite numbers"),
    ],
)
def test_labels_from_which_nothing_can_be_learned(labels: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build(fixed(real(labels), f"bad {labels}"), HALF)


def test_a_description_shows_the_label_and_how_it_differs(tmp_path: Path) -> None:
    federation = build(fixed(real([1.0, 2, 3, 4, 11, 12, 13, 14]), "described"), HALF)
    summary = summarise(federation)
    assert summary.labels is not None
    means, overall = summary.labels
    assert means.tolist() == [2.5, 12.5]
    assert overall == (1, 7.5, 7.5, 14)
    assert summary.one_class == ()
    console = Console(file=io.StringIO(), width=120)
    render(federation, console)
    console.print(unlikeness(federation).table())
    text = console.file.getvalue()
    assert "hospitals' means" in text
    assert "0 of 2 hospitals are left out of means of MAE" in text
    assert "between_share" in text
    assert "AUROC" not in text


def test_the_synthetic_score_is_the_logit_of_death_with_noise() -> None:
    """Without noise the label is the logit from which deaths are drawn; noise adds its deviation and no mean."""
    one = {"hospitals": 4, "rows": 6000, "features": 8, "missing": 0.0}
    exact = Synthetic(task="regression", noise=0.0, **one).read()
    deaths = Synthetic(label_noise=0.0, **one).read()
    noisy = Synthetic(task="regression", noise=2.0, **one).read()
    pd.testing.assert_frame_equal(exact.features, deaths.features)
    assert exact.classes == ()
    probability = 1 / (1 + np.exp(-exact.y))
    error = np.sqrt((probability * (1 - probability)).sum()) / len(exact.y)
    assert abs(deaths.y.mean() - probability.mean()) < 4 * error
    bins = np.digitize(probability, [0.05, 0.2, 0.5, 0.8])
    for b in range(5):
        inside = bins == b
        expected, seen = probability[inside].mean(), deaths.y[inside].mean()
        assert abs(seen - expected) < 4 * np.sqrt(expected * (1 - expected) / inside.sum())
    noise = noisy.y - exact.y
    assert abs(noise.mean()) < 4 * 2 / np.sqrt(len(noise))
    assert noise.std() == pytest.approx(2, rel=0.05)


def los_days(folder: Path, tables: dict[str, Rows], **fields: object) -> Records:
    return Eicu.model_validate({"path": write(folder, tables), "task": "los_days", **fields}).read()


def test_days_in_the_unit_are_the_label_of_stays_that_go_on(tmp_path: Path) -> None:
    ends = {1: 1441, 2: 1440, 3: 4320, 4: 20_000}
    stays = los_days(tmp_path, {"patient": [patient(s, unitdischargeoffset=end) for s, end in ends.items()]})
    assert stays.y.tolist() == [1441 / 1440, 3.0, 20_000 / 1440]
    assert stays.classes == ()
    assert any("1 that ended within 24 hours" in note for note in stays.notes)
    assert any("los_days: 6.0 days in the mean of 3 stays" in note for note in stays.notes)
    sooner = los_days(tmp_path / "six", {"patient": [patient(1, unitdischargeoffset=400)]}, hours=6)
    assert sooner.y.tolist() == [400 / 1440]


def test_the_length_of_a_stay_does_not_show_in_its_features(tmp_path: Path) -> None:
    tables: dict[str, Rows] = {"patient": [patient(1, unitdischargeoffset=1441), patient(2, unitdischargeoffset=9999)]}
    for name, poison in POISON.items():
        tables[name] = [row(stay, 60, name, **poison) for stay in (1, 2)]
        tables[name] += [row(2, offset, name, **poison) for offset in range(1441, 6000, 240)]
    stays = los_days(tmp_path, tables)
    first, second = stays.features.to_numpy()
    np.testing.assert_array_equal(first, second)
    assert stays.y[0] != stays.y[1]


def test_a_later_end_changes_the_label_alone(tmp_path: Path) -> None:
    tables = everything()
    before = los_days(tmp_path / "before", tables)
    for line in tables["patient"]:
        if float(line["unitdischargeoffset"]) > 1440:
            line["unitdischargeoffset"] = 99_999
    after = los_days(tmp_path / "after", tables)
    assert same_bytes(before.features, after.features)
    assert (after.y == 99_999 / 1440).all()
    assert (before.y < after.y).any()


def test_a_stay_that_ended_before_the_prediction_time_would_tell_its_length() -> None:
    with pytest.raises(
        ValidationError,
        match=r"minimum_hours: 12 is below hours \(24\); a stay .* known label \(task los_days\); give at least 24",
    ):
        Eicu.model_validate({"path": "x", "task": "los_days", "minimum_hours": 12})
