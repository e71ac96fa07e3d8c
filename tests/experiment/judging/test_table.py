"""What is wrong with a table of predictions, said in one line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from raysim.core.errors import RaysimError
from raysim.experiment.judging.table import Reading, checked


def table(
    hospitals: int = 3, rows: int = 6, seeds: int = 2, models: tuple[str, ...] = ("fedavg", "flower")
) -> pd.DataFrame:
    """A row a model, seed and test row; the same rows in all seeds."""
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "hospital": f"h{h}",
            "row": row,
            "label": (h + row) % 2,
            "model": model,
            "seed": seed,
            "probability": float(rng.uniform(0.05, 0.95)),
        }
        for model in models
        for seed in range(seeds)
        for h in range(hospitals)
        for row in range(rows)
    )


def test_a_good_table_is_taken() -> None:
    found = checked(table(), Reading(), "fedavg")
    assert found.models == ("fedavg", "flower")
    assert found.event == "1"
    assert found.warnings == ("No column 'patient': each row counts as a patient.",)
    p = found.frame["probability"]
    assert found.frame["margin"].to_numpy() == pytest.approx(np.log(p / (1 - p)))
    assert found.frame["identity"].nunique() == 18


def test_texts_kept_by_a_formula_are_these_texts() -> None:
    kept = table().assign(hospital=lambda frame: '="00' + frame["hospital"].str[1:] + '"')
    assert set(checked(kept, Reading(), "fedavg").frame["hospital"]) == {"000", "001", "002"}


Change = Callable[[pd.DataFrame], pd.DataFrame]


def changed(column: str, at: int, value: object) -> Change:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.astype({column: object})
        frame.loc[at, column] = value
        return frame.infer_objects()

    return change


WRONG: dict[str, tuple[Change, str]] = {
    "a row that another model has": (
        lambda frame: frame.drop(index=71),
        "flower seed 1 lacks 1 row that another model has, the first at hospital h2; .*--common",
    ),
    "a row twice": (
        lambda frame: pd.concat([frame, frame.iloc[:1]]),
        "row 73 of the table: model fedavg with seed 0 has a second prediction for row 0 of h0",
    ),
    "another label": (changed("label", 40, 1), "label: has different values for the same row of h0"),
    "three labels": (changed("label", 0, 2), "label: has 3 values; it needs two values"),
    "one label": (lambda frame: frame.assign(label=1), r"label: has 1 value \('1'\)"),
    "labels in words": (
        lambda frame: frame.assign(label=np.where(frame["label"] == 1, "died", "alive")),
        "--event: the label is 'alive' or 'died'; name the event",
    ),
    "log-odds": (changed("probability", 3, -4.1), "row 4: probability -4.1 is neither from 0 to 1 nor in per cent"),
    "per cent": (lambda frame: frame.assign(probability=100 * frame["probability"]), "is above 1; give --percent"),
    "no test rows": (lambda frame: frame.assign(part="train"), "part: has train and no 'test'; give test rows"),
    "no seed": (lambda frame: frame.drop(columns="seed"), "column 'seed' is missing"),
    "no row": (lambda frame: frame.drop(columns="row"), "column 'row' is missing"),
    "an empty hospital": (changed("hospital", 5, None), "row 6: 'hospital' is empty"),
    "a text for a probability": (
        changed("probability", 2, "<0.01"),
        "row 3: probability '<0.01' is not a number; corr",
    ),
    "hospitals that are one": (
        changed("hospital", 5, "h0 "),
        r"hospital: 'h0' \(23\), 'h0 ' \(1\) differ only in blanks or",
    ),
    "models that are one": (
        changed("model", 5, "FedAvg"),
        r"model: 'fedavg' \(35\), 'FedAvg' \(1\) differ only in blanks or",
    ),
    "an unknown role": (lambda frame: frame.assign(role="boss"), r"row 1: role 'boss' is neither empty nor reference"),
    "a column twice": (lambda frame: pd.concat([frame, frame[["label"]]], axis=1), "column 'label' occurs twice"),
    "a word": (
        changed("probability", 4, "high"),
        "row 5: probability 'high' is not a number; correct it",
    ),
    "a patient of two groups": (
        lambda frame: frame.assign(group_sex=np.where(frame["model"] == "flower", "F", "M")),
        "group_sex: has different values for the same row of h0",
    ),
    "a row that one model used lacks": (
        lambda frame: pd.concat(
            [
                frame.assign(strategy=frame["model"], model="global"),
                frame[frame["row"] > 0].assign(strategy=lambda f: f["model"], model="cluster"),
            ]
        ),
        r"fedavg \(cluster\) seed 0 lacks 3 rows that another model has",
    ),
    "bytes in words": (lambda frame: frame.assign(bytes="many"), "row 1: the value of column 'bytes' is not a number"),
    "a group a row": (
        lambda frame: pd.concat([frame, frame.assign(seed=frame["seed"] + 7)]).assign(group_ward=range(144)),
        "group_ward: has 144 values",
    ),
    "nothing": (lambda frame: frame.iloc[:0], "the table has no rows"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_broken_table_is_refused_in_a_line(fault: str) -> None:
    change, said = WRONG[fault]
    with pytest.raises(RaysimError, match=said) as refused:
        checked(change(table()), Reading(), "fedavg")
    assert "\n" not in str(refused.value)


def test_an_unknown_reference_is_answered_with_the_nearest() -> None:
    with pytest.raises(RaysimError, match="--reference: 'fedagv' is not a model of the table; did you mean 'fedavg'"):
        checked(table(), Reading(), "fedagv")


def test_common_rows_are_judged_and_the_others_counted() -> None:
    found = checked(table().drop(index=[71, 70]), Reading(common=True), "fedavg")
    assert "2 rows that not every model has were left out." in found.warnings
    assert len(found.frame) == 2 * 18 + 2 * 16


def test_rows_are_counted_as_in_the_file_also_where_some_were_for_training() -> None:
    frame = table().assign(part=lambda f: np.where(f["row"] < 3, "train", " Test"))
    frame.loc[9, "probability"] = 7.0
    with pytest.raises(RaysimError, match="row 10: probability 7 is above 1"):
        checked(frame, Reading(), "fedavg")


def test_seeds_of_other_names_are_paired_in_order() -> None:
    frame = table(seeds=3)
    other = frame["model"] == "flower"
    frame.loc[other, "seed"] = frame.loc[other, "seed"].replace({0: 7, 2: 9})
    found = checked(frame, Reading(), "fedavg")
    assert "flower was trained with other seeds than fedavg: these are paired in order." in found.warnings
    pd.testing.assert_frame_equal(
        found.frame.drop(columns="margin"), checked(table(seeds=3), Reading(), "fedavg").frame.drop(columns="margin")
    )


def test_probabilities_are_written_in_one_way() -> None:
    with pytest.raises(RaysimError, match="--logits, --percent: probabilities cannot be log-odds and per cent at"):
        checked(table(), Reading(logits=True, percent=True), "fedavg")
    for reading, taken in ((Reading(logits=True), "log-odds"), (Reading(percent=True), "per cent")):
        said = checked(table(), reading, "fedavg").warnings
        assert f"All probabilities lie between 0 and 1, and are taken as {taken}: are they shares?" in said


def test_log_odds_and_per_cent() -> None:
    plain = checked(table(), Reading(), "fedavg").frame["margin"]
    percent = checked(table().assign(probability=lambda f: 100 * f["probability"]), Reading(percent=True), "fedavg")
    assert percent.frame["margin"].to_numpy() == pytest.approx(plain.to_numpy())
    logits = checked(table().assign(probability=plain), Reading(logits=True), "fedavg")
    assert logits.frame["margin"].to_numpy() == pytest.approx(plain.to_numpy())


def test_the_event_is_the_one_that_was_named() -> None:
    words = table().assign(label=lambda f: np.where(f["label"] == 1, "died", "alive"))
    found = checked(words, Reading(event="died"), "fedavg")
    assert found.frame["event"].tolist() == table()["label"].tolist()
    assert found.event == "died"


def test_labels_and_groups_are_read_as_in_any_table() -> None:
    plain = table()
    words = {"0": [" 0", "0.0", "False", "FALSE"], "1": ["1 ", "1", "True", "TRUE"]}
    for no, yes in zip(words["0"], words["1"], strict=True):
        found = checked(plain.assign(label=np.where(plain["label"] == 1, yes, no)), Reading(), "fedavg")
        assert found.frame["event"].tolist() == plain["label"].tolist()
    two = checked(plain.assign(label=plain["label"] + 1.0), Reading(event="2"), "fedavg")
    assert (two.event, two.frame["event"].tolist()) == ("2", plain["label"].tolist())
    sexes = checked(plain.assign(group_sex=["F", "M", "f", "M", None, "F"] * 12), Reading(), "fedavg")
    said = "Groups 'F' (24), 'f' (12) of 'group_sex' differ only in blanks or capitals: each counts alone."
    assert said in sexes.warnings


def test_missing_predictions_and_decisions_are_said() -> None:
    frame = table()
    frame.loc[36, "probability"] = np.nan
    frame.loc[frame["model"] == "fedavg", "probability"] = frame["label"].astype(float)
    found = checked(frame, Reading(), "fedavg")
    said = found.warnings
    assert found.decisions == {"fedavg"}
    assert "flower has rows without a prediction at 1 hospital: it is not judged there." in said
    assert "fedavg has 2 values: decisions, not probabilities. It is ranked, and has no calibration." in said


def test_patients_are_the_same_in_all_seeds() -> None:
    frame = table().assign(patient=lambda f: f["hospital"] + (f["row"] // 2).astype(str))
    found = checked(frame, Reading(), "fedavg")
    assert found.frame["person"].nunique() == 9
    assert not any("each row counts" in text for text in found.warnings)
    only = checked(frame.drop(columns="row"), Reading(), "fedavg")
    assert only.frame["identity"].nunique() == 18
