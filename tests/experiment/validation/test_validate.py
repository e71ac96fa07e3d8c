"""An existing model at every hospital: the figures of its own predictions, pooled as those of hospitals left out."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import raysim
from raysim.cli.main import main
from raysim.core.errors import ConfigError, DataError, RaysimError
from raysim.data.sources import table as table_source
from raysim.data.tables.table_files import read_files
from raysim.experiment.validation.run import validate
from raysim.serving.export import export
from raysim.serving.exported import Exported
from raysim.serving.predictor import Predictor
from raysim.statistics.discrimination.auroc import delong_of_sums, pair_sums
from tests.experiment.test_scores import table

HOSPITALS = [f"h{h}" for h in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with its configuration, and a model of two of its hospitals, in both forms."""
    out = tmp_path_factory.mktemp("validate")
    frame = table(6)
    frame["ward"] = np.where(np.arange(len(frame)) % 3 == 0, "icu", "ward")
    frame.to_csv(out / "stays.csv", index=False)
    data = {"source": "table", "path": "stays.csv", "silo": "hospital", "label": "died", "drop": ["old", "points"]}
    tree = {"data": data, "training": {"rounds": 3}, "tracking": {"uri": "none"}}
    (out / "stays.yaml").write_text(yaml.safe_dump(tree))
    raysim.run(out / "stays.yaml", overrides={"data.hospitals": ["h0", "h1"]}, out=out / "run", in_process=True)
    for form in ("torch", "onnx", "json"):
        export(Predictor.open(out / "run"), out / form, form, None, None)
    return out


@pytest.mark.parametrize("form", ["onnx", "onnx/model.onnx", "json"])
def test_an_exported_model_is_judged_by_its_own_predictions(folder: Path, form: str, tmp_path: Path) -> None:
    found = validate(str(folder / form), folder / "stays.yaml", out=tmp_path / "out")
    frame = pd.read_csv(folder / "stays.csv")
    p = Predictor.open(folder / "run").predict(folder / "stays.csv")["probability"].to_numpy()
    of = found.hospitals.set_index("hospital")
    assert list(of.index) == HOSPITALS
    for name in HOSPITALS:
        rows = frame.index[frame["hospital"] == name]
        y = frame.loc[rows, "died"].to_numpy()
        auroc = delong_of_sums(pair_sums(p[rows], y, [0, len(rows)]))[0][0]
        assert of.loc[name, "auroc"] == pytest.approx(auroc, abs=1e-6)
        assert of.loc[name, "observed_over_expected"] == pytest.approx(y.sum() / p[rows].sum(), rel=1e-3)
        assert of.loc[name, "rows"] == len(rows)
    pooled = found.summary.set_index("figure")
    assert set(pooled.index) >= {"auroc", "observed_over_expected", "calibration_slope"}
    assert pooled.loc["auroc", "low"] < of["auroc"].mean() < pooled.loc["auroc", "high"]
    assert pooled.loc["auroc", "next_low"] < pooled.loc["auroc", "low"]
    assert (tmp_path / "out" / "report.html").read_text().count("<svg") >= 1
    assert len(pd.read_csv(tmp_path / "out" / "validation.csv")) == 6


def test_the_table_is_read_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(table_source, "read_files", lambda *a, **k: (reads.append(a), read_files(*a, **k))[1])
    frame = pd.read_csv(folder / "stays.csv")
    frame["use"] = np.where(np.arange(len(frame)) % 2, "train", "test")
    frame.to_csv(tmp_path / "other.csv", index=False)
    overrides = [f"data.path={tmp_path / 'other.csv'}", "data.split={column: use}"]
    found = validate(str(folder / "json"), folder / "stays.yaml", overrides, tmp_path / "out")
    assert found.hospitals["rows"].sum() == len(frame)
    assert len(reads) == 1


def test_a_column_is_judged_where_it_has_a_value(folder: Path, tmp_path: Path) -> None:
    found = validate("old", folder / "stays.yaml", out=tmp_path / "out")
    known = table(6).dropna(subset="old")
    assert found.hospitals.set_index("hospital")["rows"].to_dict() == known.groupby("hospital").size().to_dict()
    assert any("rows without a value were left out" in note for note in found.notes)
    ratio = known["died"].sum() / known["old"].sum()
    assert any(f"Over all rows there are {ratio:.2f}" in note for note in found.notes)
    points = validate("points", folder / "stays.yaml", out=tmp_path / "points")
    assert "observed_over_expected" not in points.hospitals
    assert any(note.startswith("The score is no probability") for note in points.notes)
    assert not any("privacy" in note for note in points.notes)


def test_no_guarantee_of_the_configuration_is_taken_for_one_of_the_figures(folder: Path, tmp_path: Path) -> None:
    found = validate("old", folder / "stays.yaml", ["privacy={unit: patient, epsilon: 1}"], tmp_path / "out")
    said = "These figures are exact: the configuration's guarantee of privacy does not cover them."
    assert said in found.notes
    assert said in (tmp_path / "out" / "report.html").read_text().replace("&#39;", "'")


def test_from_python_on_a_data_frame(folder: Path, tmp_path: Path) -> None:
    from_file = validate("old", folder / "stays.yaml", out=tmp_path / "file")
    keys = {"data": {"silo": "hospital", "label": "died", "drop": ["points"]}, "tracking": {"uri": "none"}}
    found = raysim.validate("old", keys, data=table(6), overrides={"seed": 3}, out=tmp_path / "frame")
    pd.testing.assert_frame_equal(found.hospitals, from_file.hospitals)
    assert repr(found) == f"<validated: {from_file.headline}>"
    assert str(found).splitlines() == [from_file.headline, *from_file.notes]
    assert raysim.validate(folder / "json", folder / "stays.yaml", out=tmp_path / "json").name == "json"
    with pytest.raises(RaysimError, match="olde: is neither a folder, a file nor a column"):
        raysim.validate("olde", folder / "stays.yaml", out=tmp_path / "none")


def test_the_event_of_the_model_is_that_of_the_data(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        validate(str(folder / "json"), folder / "stays.yaml", ["data.positive='0'"], tmp_path / "out")
    said = "data.positive: the event is '0', but the model predicts '1'; set data.positive to '1'"
    assert str(caught.value) == said
    assert not (tmp_path / "out").exists()
    renamed = table(6).assign(died=lambda rows: rows["died"].map({0: "no", 1: "yes"}), ward="ward")
    keys = {"data": {"silo": "hospital", "label": "died", "drop": ["old", "points"], "positive": "no"}}
    raysim.validate(folder / "json", keys, data=renamed, out=tmp_path / "renamed")  # other names may mean anything


def test_a_model_of_a_number_is_refused_in_either_form(folder: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load((folder / "stays.yaml").read_text())
    tree["data"] |= {"task": "regression", "path": str(folder / "stays.csv")}
    tree |= {"model": {"name": "linear_regression"}}
    raysim.run(tree, out=tmp_path / "run", in_process=True)
    for form in ("onnx", "json"):
        export(Predictor.open(tmp_path / "run"), tmp_path / form, form, None, None)
        with pytest.raises(ConfigError, match="is not a model of two classes"):
            validate(str(tmp_path / form), folder / "stays.yaml", out=tmp_path / "out")


def test_of_a_bare_file_nothing_says_what_trained_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    for name in ("model.onnx", "preprocessing.json"):
        (tmp_path / "bare" / name).write_bytes((folder / "onnx" / name).read_bytes())
    found = raysim.validate(tmp_path / "bare" / "model.onnx", folder / "stays.yaml", out=tmp_path / "out")
    assert found.notes[0].startswith("It is not known which rows trained the model")


def test_no_mean_of_a_ratio_where_many_hospitals_have_no_event(folder: Path, tmp_path: Path) -> None:
    """A hospital without events has no logarithm: the mean of the others would be too high."""
    frame = table(6)
    frame.loc[frame["hospital"] == "h0", "died"] = 0
    frame.to_csv(tmp_path / "stays.csv", index=False)
    found = validate("old", folder / "stays.yaml", [f"data.path={tmp_path / 'stays.csv'}"], tmp_path / "out")
    assert np.isnan(found.summary.set_index("figure").loc["observed_over_expected", "estimate"])
    assert "At a hospital events" not in found.headline
    assert found.hospitals.set_index("hospital").loc["h0", "observed_over_expected"] == 0


def test_the_command_says_it_in_sixteen_lines(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(folder / "stays.yaml")
    monkeypatch.setattr(sys, "argv", ["raysim", "validate", "old", config, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 16
    assert shown[0].startswith("old: died, 6 hospitals, ")
    assert shown[-1].startswith("Report ")


@pytest.mark.parametrize(
    ("model", "overrides", "error", "message"),
    [
        ("nowhere.onnx", [], ConfigError, "nowhere.onnx: is neither a folder, a file nor a column"),
        ("olde", [], DataError, "olde: is neither a folder, a file nor a column of the table; "),
        ("{folder}/run", [], ConfigError, "{folder}/run: holds no exported model"),
        ("{folder}/stays.csv", [], ConfigError, "{folder}/stays.csv: is not a model"),
        (
            *("{folder}/torch", [], ConfigError),
            "{folder}/torch/model.pt2: is a program, which can execute any code of its author when it is loaded; "
            "export the model again with --format onnx, or json for a regression or trees",
        ),
        ("{folder}/json", ["data.drop=[old, points, x]"], DataError, "table: no column 'x'"),
    ],
)
def test_what_is_refused(
    model: str, overrides: list[str], error: type[RaysimError], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(error) as raised:
        validate(model.format(folder=folder), folder / "stays.yaml", overrides, tmp_path / "out")
    assert str(raised.value).startswith(message.format(folder=folder))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ('{"file": "../json/model.json"}', "names {made}/../json/model.json, which is not a file of the same folder"),
        ('{"file": 3, "trained_on": []}', "does not describe an exported model"),
        ("[]", "does not describe an exported model"),
        ("{", "cannot be read"),
    ],
)
def test_a_strangers_folder_names_files_of_its_own_alone(
    described: str, why: str, folder: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    shutil.copytree(folder / "json", made)
    (made / "export.json").write_text(described)
    with pytest.raises(ConfigError) as raised:
        Exported.open(made)
    assert str(raised.value).startswith(f"{made}/export.json: {why.format(made=made)}")


def test_a_pipe_in_place_of_a_model_holds_nothing_up(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match=r"model.onnx: is not a file"):
        validate(str(tmp_path / "model.onnx"), folder / "stays.yaml", out=tmp_path / "out")


def test_a_bare_onnx_file_takes_the_columns_as_they_are(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "bare.onnx"
    moved.write_bytes((folder / "onnx" / "model.onnx").read_bytes())
    with pytest.raises(DataError, match=r"MODEL: column 'ward' has no numbers"):
        validate(str(moved), folder / "stays.yaml", out=tmp_path / "out")
    with pytest.raises(DataError, match=r"MODEL: cannot score 2 features"):
        validate(str(moved), folder / "stays.yaml", ["data.drop=[old, points, ward]"], tmp_path / "out")


def test_rows_that_trained_the_model_are_not_judged_in_silence(folder: Path, tmp_path: Path) -> None:
    other = validate(str(folder / "json"), folder / "stays.yaml", out=tmp_path / "all")
    assert other.notes[0].startswith("Rows of this table trained the model")
    own = validate(str(folder / "json"), folder / "stays.yaml", ["data.hospitals=[h0, h1]"], tmp_path / "own")
    assert "only the test rows" in own.notes[0]
    every = other.hospitals.set_index("hospital").loc[["h0", "h1"], "rows"].to_numpy()
    assert (own.hospitals["rows"].to_numpy() < every / 2).all()
    shown = (tmp_path / "own" / "report.html").read_text()
    assert "only the test rows" in shown


def test_trees_are_judged_as_json_and_not_as_xgboost(folder: Path, tmp_path: Path) -> None:
    given = {"data.hospitals": ["h0", "h1"], "model.name": "boosted_trees", "model.trees": 5, "model.depth": 2}
    given |= {"strategy.name": "federated_trees", "training.rounds": 50}  # trees do not use the file's rounds
    raysim.run(folder / "stays.yaml", overrides=given, out=tmp_path / "run", in_process=True)
    predictor = Predictor.open(tmp_path / "run")
    export(predictor, tmp_path / "json", None, None, None)  # the default
    export(predictor, tmp_path / "xgboost", "xgboost", None, None)
    p = predictor.predict(folder / "stays.csv")["probability"].to_numpy()
    with pytest.raises(ConfigError, match=r"^--format: boosted_trees cannot be written as torch; use json, xgboost"):
        export(predictor, tmp_path / "torch", "torch", None, None)
    columns = pd.read_csv(folder / "stays.csv", dtype=str, keep_default_na=False)
    risks = Exported.open(tmp_path / "json").risks(columns)[0]
    assert len(np.unique(p)) > 2
    assert risks == pytest.approx(p, abs=1e-6)
    with pytest.raises(ConfigError, match="export it as json or onnx"):
        validate(str(tmp_path / "xgboost"), folder / "stays.yaml", out=tmp_path / "out")
