"""A run's folder is enough to score rows: its own come out as they did, others as its training rows would have."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

import raysim
from raysim.config import plugins, reading
from raysim.core.errors import ConfigError, DataError
from raysim.report.pages.again import rewritten
from raysim.serving.export import export
from raysim.serving.predictor import Predictor
from tests.serving.runs import ROWS, folder_of, stays

MLP = {"name": "mlp", "hidden": [4]}

RUNS: list[tuple[Any, str, dict[str, Any]]] = [
    ("fedavg", "died", {}),
    ("local", "died", {}),
    ("centralized", "died", {}),
    ({"name": "chip", "clusters": 2}, "died", {}),
    ({"name": "clustered", "clusters": 2}, "died", {}),
    ({"name": "ifca", "clusters": 2}, "died", {"model": MLP}),
    ({"name": "fedsoft", "clusters": 2}, "died", {}),
    ("ditto", "died", {}),
    ("fedper", "died", {"model": MLP}),
    ({"name": "fedgmc", "clusters": 2}, "died", {}),
    ({"name": "chip", "clusters": 2}, "stage", {}),
    ("fedper", "stage", {"model": MLP}),
    ("ditto", "cost", {}),
    ({"name": "fedgmc", "clusters": 2}, "cost", {"model": MLP}),
]


def ids(run: Any) -> str:
    strategy, label, _ = run
    return f"{strategy if isinstance(strategy, str) else strategy['name']}-{label}"


@pytest.fixture
def fedavg(place: Path) -> Predictor:
    return Predictor.open(folder_of(place, "fedavg"))


@pytest.fixture
def local(place: Path) -> Predictor:
    return Predictor.open(folder_of(place, "local"))


@pytest.mark.parametrize("run", RUNS, ids=ids)
def test_every_row_of_a_run_is_scored_again_from_its_files(run: Any, place: Path) -> None:
    strategy, label, sections = run
    folder = folder_of(place, strategy, label, **sections)
    predictor = Predictor.open(folder)
    written = pd.read_csv(folder / "predictions.csv", dtype={"hospital": str})
    assert list(predictor.served.owners) == written["model"].unique().tolist()
    for model in predictor.served.owners:
        theirs = written[written["model"] == model].set_index("row").loc[range(ROWS)]
        for table in (place / "stays.csv", stays()):
            scored = predictor.predict(table, model=model)
            assert scored["hospital"].tolist() == theirs["hospital"].tolist()
            for name in [name for name in theirs if name.startswith("pr")]:
                if name == "prediction" and label == "stage":
                    assert scored[name].tolist() == theirs[name].tolist()
                else:
                    np.testing.assert_allclose(scored[name], theirs[name], rtol=1e-6, atol=1e-6)
        check_figures(folder, label, model, scored[(stays()["part"] == "test").to_numpy()])


def test_a_run_that_was_finished_with_unused_keys_is_served_and_not_run_again(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folder_of(place, "fedavg"), folder)
    written = yaml.safe_load((folder / "config.yaml").read_text())
    written["strategy"]["minimum_weight"] = 0.2
    written["secure"] = {"small_clusters": "merge"}
    (folder / "config.yaml").write_text(yaml.safe_dump(written))
    assert len(Predictor.open(folder).predict(stays())) == ROWS
    assert export(Predictor.open(folder), tmp_path / "exported", "json", None, None) == "global"
    rewritten(folder, None, None)
    with pytest.raises(
        ConfigError, match=(r"^secure.small_clusters: 'merge' has no effect with fedavg; remove the key")
    ):
        raysim.run(folder / "config.yaml", out=tmp_path / "again", in_process=True)


def check_figures(folder: Path, label: str, model: str, tested: pd.DataFrame) -> None:
    """``hospitals.csv`` has the figures of the scored rows ``tested``."""
    figures = pd.read_csv(folder / "hospitals.csv", dtype={"hospital": str})
    figures = figures[figures["model"] == model].set_index("hospital")
    y = stays()[label].loc[tested.index]
    assert set(figures.index) == set(tested["hospital"])
    for hospital, rows in tested.groupby("hospital"):
        truth, row = y.loc[rows.index], figures.loc[str(hospital)]
        if label == "cost":
            assert row["rmse"] == pytest.approx(math.sqrt(((rows["prediction"] - truth) ** 2).mean()), rel=1e-5)
            continue
        classes = sorted(stays()[label].unique())
        shares = rows[[f"probability_{name}" for name in classes]].to_numpy() if len(classes) > 2 else None
        said = rows["probability"] if shares is None else shares
        assert row["log_loss"] == pytest.approx(log_loss(truth, said, labels=classes), rel=1e-5)
        if shares is None:
            assert row["auroc"] == pytest.approx(roc_auc_score(truth == "yes", rows["probability"]), abs=1e-12)


def test_a_source_that_is_no_table_is_scored_from_its_columns(place: Path) -> None:
    data = {"source": "synthetic", "hospitals": 5, "rows": 400, "split": {"train": 0.5, "validation": 0.2, "test": 0.3}}
    folder = folder_of(place, {"name": "chip", "label": "synthetic", "clusters": 2}, data=data)
    records = plugins.build_source(reading.resolve({"data": data}).data).read()
    written = pd.read_csv(folder / "predictions.csv")
    written = written[written["model"] == "personal"].sort_values("row")
    scored = Predictor.open(folder).predict(records.features.assign(hospital=records.silo))
    np.testing.assert_allclose(scored["probability"], written["probability"], atol=1e-6)
    assert scored["hospital"].tolist() == written["hospital"].tolist()


def test_a_row_by_hand(fedavg: Predictor) -> None:
    """What is missing is the training mean and flagged, an unseen category is none of the known ones."""
    rows = stays()
    training = rows[rows["part"] == "train"]
    table = pd.read_csv(fedavg.folder / "coefficients.csv").set_index("feature")["coefficient"]
    assert "unit=ZICU" not in table.index
    assert {"unit=MICU", "unit_missing", "severity_missing", "gcs=3", "gcs=15", "sex=F"} < set(table.index)
    recorded = pd.DataFrame(
        {"severity": [1.5, None], "unit": ["SICU", "ZICU"], "age": [70.0, None], "gcs": [3, 15], "sex": ["F", None]}
    ).assign(hospital=7, ventilated=[True, None])
    scored = fedavg.predict(recorded)["probability"]

    def scaled(name: str, value: float) -> float:
        values = training[name].astype(float)
        return float(table[name] * (value - values.mean()) / values.std(ddof=0))

    first = scaled("severity", 1.5) + scaled("age", 70) + scaled("ventilated", 1)
    first += table[["unit=SICU", "gcs=3", "sex=F", "(intercept)"]].sum()
    second = table[["severity_missing", "gcs=15", "(intercept)"]].sum()
    np.testing.assert_allclose(scored, [1 / (1 + math.exp(-z)) for z in (first, second)], rtol=1e-5)


@pytest.mark.parametrize("written", ["1", "1.0", "TRUE"])
def test_categories_that_are_numbers_may_be_written_otherwise(written: str, fedavg: Predictor, tmp_path: Path) -> None:
    rows = stays().astype({"gcs": object, "ventilated": object})
    rows["gcs"], rows["ventilated"] = "3", True
    expected = fedavg.predict(rows)
    rows["gcs"] = {"1": 3, "1.0": 3.0, "TRUE": "3.0"}[written]
    rows["ventilated"] = {"1": 1, "1.0": 1.0, "TRUE": "TRUE"}[written]
    rows.to_csv(tmp_path / "other.csv", index=False)
    pd.testing.assert_frame_equal(fedavg.predict(tmp_path / "other.csv"), expected)


def test_other_columns_and_their_order_do_not_matter(fedavg: Predictor, tmp_path: Path) -> None:
    rows = stays()
    expected = fedavg.predict(rows)
    kept = [column.name for column in fedavg.preprocessing.columns]
    assert "died" not in kept
    assert "part" not in kept
    moved = rows[["hospital", *reversed(kept)]].assign(extra=[{"any": k} for k in range(ROWS)])
    moved.insert(0, "mixed", [1, "a"] * (ROWS // 2))
    pd.testing.assert_frame_equal(fedavg.predict(moved), expected)
    rows.iloc[:, ::-1].to_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(fedavg.predict(str(tmp_path / "rows.parquet")), expected)


def test_names_of_hospitals_are_texts_however_they_are_kept(local: Predictor) -> None:
    rows = stays()
    expected = local.predict(rows)
    assert expected["hospital"].tolist() == rows["hospital"].astype(str).tolist()
    assert set(expected["scored_by"]) == {"personal/7", "personal/10", "personal/11", "personal/12"}
    for kind in (str, float, "Int64", "category", "int32"):
        pd.testing.assert_frame_equal(local.predict(rows.astype({"hospital": kind})), expected)


def test_whose_rows_they_are_can_be_said(local: Predictor) -> None:
    rows = stays().drop(columns="hospital")
    with pytest.raises(
        DataError, match=(r"^table: no column 'hospital' names the hospital of each row; add it, or name")
    ):
        local.predict(rows)
    scored = local.predict(rows, hospital="10")
    assert set(scored["hospital"]) == {"10"}
    assert set(scored["scored_by"]) == {"personal/10"}
    empty = stays().assign(hospital=np.where(np.arange(ROWS) % 2, np.nan, stays()["hospital"]))
    for name in ("10", "10.0"):  # a data frame's number as text
        pd.testing.assert_frame_equal(local.predict(empty, hospital=name), scored)


def test_where_one_model_serves_everybody_nobody_need_be_named(fedavg: Predictor, place: Path) -> None:
    rows = stays()
    expected = fedavg.predict(rows)
    alone = fedavg.predict(rows.drop(columns="hospital"))
    assert set(alone["hospital"]) == {""}
    pd.testing.assert_series_equal(alone["probability"], expected["probability"])
    groups = Predictor.open(folder_of(place, {"name": "fedgmc", "clusters": 2}))
    pd.testing.assert_series_equal(
        groups.predict(rows.drop(columns="hospital"))["probability"], groups.predict(rows)["probability"]
    )


def test_a_hospital_that_the_run_did_not_know(local: Predictor, place: Path, logged: list[str]) -> None:
    rows = stays().assign(hospital=["07"] * 3 + ["7"] * (ROWS - 3))
    with pytest.raises(
        DataError,
        match=r"^table: hospital '07' was not in the run, and each personal model belongs to one hospital; did you",
    ):
        local.predict(rows)
    chip = Predictor.open(folder_of(place, {"name": "chip", "clusters": 2}))
    logged.clear()
    scored = chip.predict(rows)
    assert scored["scored_by"].tolist() == ["global"] * 3 + ["personal/7"] * (ROWS - 3)
    assert logged[-1] == ("table: 3 rows of hospitals that were not in the run (07) are scored by global")
    everybody = chip.predict(rows, model="global")
    pd.testing.assert_frame_equal(scored[:3], everybody[:3])
    assert not np.allclose(scored["probability"][3:], everybody["probability"][3:])


def test_unseen_categories_are_said(fedavg: Predictor, logged: list[str]) -> None:
    fedavg.predict(stays())
    assert logged == [
        f"table: column 'unit' has 'ZICU' or other categories that training rows did not have, in 1 of {ROWS} rows; "
        "these rows are scored with 0 for every category"
    ]
    logged.clear()
    fedavg.predict(stays()[:-1].assign(unit=None))
    assert logged == ["table: no value in any row of 'unit'; all are scored as if nothing was recorded"]


@pytest.mark.parametrize("name", ["fedavg", "local", "fedper"])
def test_no_rows_are_no_scores(name: str, place: Path, tmp_path: Path) -> None:
    label = "stage" if name == "fedper" else "died"
    predictor = Predictor.open(folder_of(place, name, label, **({"model": MLP} if name == "fedper" else {})))
    stays()[:0].to_csv(tmp_path / "none.csv", index=False)
    for table in (tmp_path / "none.csv", stays()[:0]):
        scored = predictor.predict(table)
        assert len(scored) == 0
        assert list(scored.columns) == list(predictor.predict(stays()).columns)


def test_what_stands_for_a_missing_value_still_does(place: Path, tmp_path: Path) -> None:
    marked = stays().fillna({"severity": -999, "unit": "?"})
    marked.to_csv(place / "marked.csv", index=False)
    plain = Predictor.open(folder_of(place, "fedavg"))
    data = reading.resolve(plain.folder / "config.yaml").data.frozen()
    data |= {"path": str(place / "marked.csv"), "na_values": [-999, "?"]}
    predictor = Predictor.open(folder_of(place, {"name": "fedavg", "label": "marked"}, data=data))
    expected = plain.predict(stays())
    for table in (place / "marked.csv", marked, stays()):
        pd.testing.assert_frame_equal(predictor.predict(table), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"drop": "severity", "severty": 1.0},
            "table: no column 'severity' in the data frame; did you mean 'severty'?",
        ),
        (
            {"severity": "high"},
            "table: column 'severity' holds 'high' in row 1, not a number; correct it, or leave it empty",
        ),
        (
            {"age": np.inf},
            "table: column 'age' holds inf in row 1, not a finite float32 number; correct it or leave it empty",
        ),
        (
            {"age": pd.Timestamp("2020-01-01")},
            "table: column 'age' holds timestamp",
        ),
        ({"unit": [[1]] * ROWS}, "table: column 'unit' holds list<"),
        (
            {"hospital": [7.0, np.nan] * (ROWS // 2)},
            f"table: column 'hospital' has no value in {ROWS // 2} rows (first: row 2); fill in values, or name",
        ),
    ],
)
def test_columns_that_do_not_fit_are_named(changes: dict[str, Any], said: str, fedavg: Predictor) -> None:
    rows = stays().drop(columns=changes.pop("drop", []))
    with pytest.raises(DataError) as refused:
        fedavg.predict(rows.assign(**changes))
    assert str(refused.value).startswith(said)


def test_a_table_of_something_else_is_refused_in_a_line(fedavg: Predictor, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError) as refused:
        fedavg.predict(tmp_path / "other.csv")
    assert str(refused.value).startswith("table: no column 'severity' in '")


def test_three_classes_have_a_prediction_and_its_probability(place: Path) -> None:
    scored = Predictor.open(folder_of(place, {"name": "chip", "clusters": 2}, "stage")).predict(stays())
    shares = ["probability_mild", "probability_moderate", "probability_severe"]
    assert list(scored.columns) == ["hospital", "prediction", "probability", *shares, "scored_by"]
    np.testing.assert_allclose(scored[shares].sum(axis=1), 1)
    np.testing.assert_array_equal(scored["probability"], scored[shares].max(axis=1))
    assert ("probability_" + scored["prediction"]).tolist() == scored[shares].idxmax(axis=1).tolist()


def test_the_only_hospital_of_a_run_is_not_everybody(local: Predictor) -> None:
    owners = {"personal": {"7": "personal/7"}}
    alone = replace(local, served=replace(local.served, owners=owners))
    with pytest.raises(
        DataError, match=(r"^table: no column 'hospital' names the hospital of each row; add it, or name")
    ):
        alone.predict(stays().drop(columns="hospital"))


def test_groups_depend_on_rows_and_hospital(place: Path) -> None:
    @dataclass(frozen=True)
    class Odd:
        """The second group at every second hospital, counted as the run counts them."""

        count: int = 2

        def assign(self, X: Any, observed: Any, hospital: int) -> Any:
            return np.full(len(X), hospital % 2)

    groups = Predictor.open(folder_of(place, {"name": "fedgmc", "clusters": 2}))
    odd = replace(groups, served=replace(groups.served, division=Odd()))
    rows = stays().replace({"hospital": {12: 99}})
    scored = odd.predict(rows)
    # 7, 10, 11 and 12 are hospitals 0 to 3; one that the run did not know comes after them.
    expected = {"7": "cluster/0", "10": "cluster/1", "11": "cluster/0", "99": "cluster/0"}
    assert scored["scored_by"].tolist() == [expected[str(name)] for name in rows["hospital"]]


@settings(max_examples=30)
@given(data=st.data(), name=st.sampled_from(["chip", "fedgmc"]))
def test_a_row_is_scored_alike_among_any_others(data: st.DataObject, name: str, place: Path) -> None:
    predictor = Predictor.open(folder_of(place, {"name": name, "clusters": 2}))
    rows = stays()
    whole = predictor.predict(rows)
    chosen = data.draw(st.lists(st.integers(0, ROWS - 1), max_size=2 * ROWS))
    scored = predictor.predict(rows.iloc[chosen])
    for name in ("hospital", "scored_by"):
        assert scored[name].tolist() == whole[name].iloc[chosen].tolist()
    np.testing.assert_allclose(scored["probability"], whole["probability"].iloc[chosen], rtol=1e-6, atol=1e-7)
