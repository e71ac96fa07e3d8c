"""What is exported says without raysim what ``raysim predict`` says."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from raysim.core.errors import ConfigError, DataError
from raysim.data.fitted import Categorical, Numeric, Preprocessing
from raysim.data.new_rows import read_new_rows
from raysim.data.raw_columns import RawColumns
from raysim.data.sources.table import Table
from raysim.data.tables.rules import Reading
from raysim.serving import export as exporting
from raysim.serving import prepare
from raysim.serving.export import export
from raysim.serving.outputs import outputs_of
from raysim.serving.predictor import Predictor
from raysim.serving.torch_program import exported
from raysim.storage.served import ELSEWHERE
from raysim.strategies.shared.personalization import RECALIBRATED
from raysim.training.kernels.mlp import MlpModel
from tests.serving.runs import ROWS, folder_of, stays
from tests.serving.test_predict import MLP
from tests.serving.test_predict_command import command, refusal
from tests.serving.test_recalibrated import recalibrated

CHIP = {"name": "chip", "clusters": 2}
WITHOUT_RAYSIM = """
import importlib.util, sys
from pathlib import Path
import numpy as np

for absent in ("raysim", "ray", "pydantic", "mlflow"):
    sys.modules[absent] = None  # importing it raises ImportError

table, *folders = sys.argv[1:]
for folder in map(Path, folders):
    spec = importlib.util.spec_from_file_location("prepare", folder / "prepare.py")
    prepare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prepare)
    X = prepare.features(prepare.read(table))
    if (folder / "model.onnx").exists():
        import onnxruntime

        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        ((scores,), (none,)) = (session.run(None, {"features": rows}) for rows in (X, X[:0]))
    else:
        import torch

        model = torch.export.load(folder / "model.pt2").module()
        scores, none = (model(torch.from_numpy(rows)).detach().numpy() for rows in (X, X[:0]))
    assert none.shape == (0, *scores.shape[1:])
    np.save(folder / "scores.npy", scores)
"""

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "logistic": ("died", {}),
    "softmax": ("stage", {}),
    "linear": ("cost", {}),
    "mlp": ("died", {"model": MLP}),
    "mlp of three": ("stage", {"model": MLP, "training": {"rounds": 2, "batch_size": 16, "precision": "float64"}}),
    "mlp of a number": ("cost", {"model": MLP, "training": {"rounds": 2, "batch_size": 16, "learning_rate": 1e-3}}),
    "module": ("died", {"model": {"class": "tests.serving.networks.Normed"}}),
}

ONNX = ("mlp of three",)
"""What is exported to it too, which takes seconds, beside the recalibrated one. It is written from the program of
torch, whatever that is of; here are both links and both precisions."""


def opened(place: Path, name: str) -> Predictor:
    label, sections = MODELS[name]
    return Predictor.open(folder_of(place, CHIP | {"label": name.replace(" ", "-")}, label, **sections))


def without_raysim(table: Path, *folders: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAYSIM, str(table), *map(str, folders)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.surroundings
def test_exported_models_say_the_same_without_raysim(
    place: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that Python exports, a recalibrated one among them, and one of the command."""
    folders: dict[Path, tuple[Predictor, str | None]] = {}
    for name in MODELS:
        forms: list[exporting.Format] = ["torch", "onnx"] if name in ONNX else ["torch"]
        for form in forms:
            for hospital in (None, "10") if (name, form) == ("logistic", "torch") else ("10",):
                folder = tmp_path / f"{name}-{form}-{hospital}"
                predictor = opened(place, name)
                owner = export(predictor, folder, form, hospital, None)
                assert owner == ("global" if hospital is None else "personal/10")
                folders[folder] = predictor, hospital
    shifted = Predictor.open(recalibrated(place))
    for form, hospital in (("torch", "10"), ("onnx", "10"), ("torch", None)):
        folder = tmp_path / f"recalibrated-{form}-{hospital}"
        owner = export(shifted, folder, form, hospital, None)
        assert owner == (ELSEWHERE if hospital is None else f"{RECALIBRATED}/10")
        folders[folder] = shifted, hospital
    local, out = folder_of(place, "local"), tmp_path / "exported"
    said = command(
        ["export", str(local), "--out", str(out), "--hospital", "12", "--format", "torch"], capsys, monkeypatch
    )
    assert said.splitlines() == ["model: personal/12", f"files: {out}"]
    folders[out] = Predictor.open(local), "12"
    without_raysim(place / "stays.csv", *folders)
    for folder, (predictor, hospital) in folders.items():
        scored = predictor.predict(place / "stays.csv", hospital=hospital or "somewhere")
        assert len(scored) == ROWS
        names = json.loads((folder / "export.json").read_text())["outputs"]
        expected = scored[names[0]] if len(names) == 1 else scored[names]
        np.testing.assert_allclose(np.load(folder / "scores.npy"), expected, rtol=1e-5, atol=1e-6)
        assert np.ptp(np.asarray(expected)) > 0.01


def test_what_is_in_the_folder(place: Path, tmp_path: Path) -> None:
    export(opened(place, "softmax"), tmp_path / "made" / "model", "torch", "7", "cluster")
    folder = tmp_path / "made" / "model"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["export.json", "model.pt2", "prepare.py", "preprocessing.json"]
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["model"]
    described = json.loads((folder / "export.json").read_text())
    fitted = opened(place, "softmax").preprocessing
    assert described["model"].startswith("cluster/")
    assert described["features"] == list(fitted.features)
    assert described["outputs"] == ["probability_mild", "probability_moderate", "probability_severe"]
    assert Preprocessing.of(json.loads((folder / "preprocessing.json").read_text())) == fitted


def prepared(folder: Path, fitted: Preprocessing, table: Path) -> Any:
    """What ``prepare.py`` makes of a CSV file."""
    (folder / "preprocessing.json").write_text(json.dumps(fitted.tree()))
    namespace: dict[str, Any] = {"__file__": str(folder / "prepare.py"), "__name__": "prepare"}
    exec(Path(prepare.__file__).read_text(), namespace)
    return namespace["features"](namespace["read"](str(table)))


CELLS = {
    "number": ["", "0.1", "-3", "16777217", "1e-8", "NA", "<0.3", "< 2", " 7", "-1.0", " "],
    "constant": ["", "2", "5"],
    "truth": ["", "True", "FALSE", "true"],
    "text": ["", "a", "b", "A", "1", "007", "-1", "None", "<NA>", "NULL"],
    "coded": ["", "1", "1.0", "01", "2.50", "2.5", "x", "True"],
    "logical": ["", "True", "true", "FALSE", "1", "0"],
}
FITTED = Preprocessing(
    "standard",
    (
        Numeric("number", 0.3, 1.7, -0.2, flagged=True),
        Categorical("text", ("007", "a", "b"), flagged=True),
        Numeric("constant", 2.0, float("inf"), 2.0),
        Categorical("coded", ("1", "2.5")),
        Numeric("truth", 0.25, 0.5, 0.25, flagged=True),
        Categorical("logical", ("False", "True"), flagged=True),
    ),
    reading=Reading(("-1",), {"<": "half"}),
)


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(*(st.sampled_from(cells) for cells in CELLS.values())), min_size=1, max_size=12),
    form=st.sampled_from([(",", None, "utf-8"), (";", ",", "utf-16"), ("\t", ",", "cp1252")]),
)
def test_pandas_alone_prepares_rows_as_raysim_does(
    rows: list[tuple[str, ...]], form: tuple[str, Literal[","] | None, str], tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("prepared")
    separator, decimal, encoding = form
    reading = replace(FITTED.reading, separator=separator, decimal=decimal, encoding=encoding)
    fitted = replace(FITTED, reading=reading)
    cells = [["1", *row] for row in rows]
    if decimal == ",":
        cells = [[one, number.replace(".", ","), *others] for one, number, *others in cells]
    lines = [separator.join(line) for line in [["öther", *CELLS], *cells]]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding=encoding)
    X, _ = fitted.transform(read_new_rows(folder / "rows.csv", fitted).columns)
    np.testing.assert_array_equal(prepared(folder, fitted, folder / "rows.csv"), X)


def test_rows_are_read_in_the_form_of_training_where_it_is_in_doubt(tmp_path: Path) -> None:
    plain = "hospital,Größe,unit,died\nnord,1.5,ĺ,0\nsüd,-9.9,b,1\nsüd,,b,0\nsüd,1.25,ĺ,1\n"
    german = plain.replace(",", ";").replace(".", ",")
    trained = tmp_path / "trained.csv"
    trained.write_bytes(german.encode("cp1250"))
    source = Table(path=trained, silo="hospital", label="died", na_values=["-9,9"], encoding="cp1250")
    records = source.read()
    assert (records.reading.separator, records.reading.decimal, records.reading.encoding) == (";", ",", "cp1250")
    np.testing.assert_array_equal(records.features["Größe"], np.array([1.5, np.nan, np.nan, 1.25], np.float32))
    columns = (Numeric("Größe", 1.0, 2.0, 1.0, flagged=True), Categorical("unit", ("b", "ĺ")))
    fitted = Preprocessing("standard", columns, reading=records.reading)
    expected, _ = fitted.transform(RawColumns.of(records.features))
    (tmp_path / "german.csv").write_text(german)
    (tmp_path / "plain.csv").write_text(plain)
    frame = pd.read_csv(tmp_path / "german.csv", sep=";", dtype=str)
    frame.to_parquet(tmp_path / "rows.parquet")
    for rows in (trained, *(tmp_path / name for name in ("german.csv", "plain.csv", "rows.parquet")), frame):
        np.testing.assert_array_equal(fitted.transform(read_new_rows(rows, fitted).columns)[0], expected)
    np.testing.assert_array_equal(prepared(tmp_path, fitted, trained), expected)
    notes = read_new_rows(tmp_path / "plain.csv", fitted).notes
    assert notes == (f"table: '{tmp_path / 'plain.csv'}' is read with commas between columns and a decimal point",)
    with pytest.raises(
        ValueError, match=r"there is no column 'Größe'; add it \(columns of a CSV file must be separated by ';'\)"
    ):
        prepared(tmp_path, fitted, tmp_path / "plain.csv")
    # Three digits behind each comma: thousands, but for the run's own decimal mark.
    (tmp_path / "doubt.csv").write_text("Größe;unit\n1,234;b\n2,345;b\n")
    read = read_new_rows(tmp_path / "doubt.csv", fitted)
    np.testing.assert_array_equal(read.columns.values[:, 0], np.array([1.234, 2.345], np.float32))
    assert read.notes == ()


def test_what_predict_refuses_is_not_prepared_either(tmp_path: Path) -> None:
    plain = Preprocessing("none", (Numeric("age"), Categorical("unit", ("a", "b"))))
    scaled = replace(plain, method="standard")
    for fitted, row, said in (
        (plain, ",a", "'age' lacks a value"),
        (plain, "70,", "'unit' lacks a value"),
        (scaled, "inf,a", "'age' holds a number too large for float32"),
        (scaled, "-1e39,a", "'age' holds a number too large for float32"),
    ):
        (tmp_path / "rows.csv").write_text(f"age,unit\n64,b\n{row}\n")
        with pytest.raises(DataError):
            fitted.transform(read_new_rows(tmp_path / "rows.csv", fitted).columns)
        with pytest.raises(ValueError, match=said):
            prepared(tmp_path, fitted, tmp_path / "rows.csv")


def test_points_before_three_digits_separate_thousands_in_a_run_with_decimal_commas(tmp_path: Path) -> None:
    fitted = Preprocessing("standard", (Numeric("crp", 1.0, 2.0),), reading=Reading(decimal=",", separator=";"))
    for name, text, expected in (
        ("one.csv", "crp;unit\n2.345;a\n7;b\n", [2345, 7]),
        ("decimals.csv", "crp;unit\n2.345;a\n7.25;b\n", [2.345, 7.25]),
        ("below.csv", "crp;unit\n2.345;a\n0.125;b\n", [2.345, 0.125]),
        ("another form.csv", "crp,unit\n2.345,a\n7,b\n", [2.345, 7]),
    ):
        (tmp_path / name).write_text(text)
        values = read_new_rows(tmp_path / name, fitted).columns.values[:, 0]
        np.testing.assert_array_equal(values, np.array(expected, np.float32))
    frame = pd.read_csv(tmp_path / "one.csv", sep=";", dtype=str)
    frame.to_parquet(tmp_path / "one.parquet")
    for rows in (frame, tmp_path / "one.parquet"):
        assert read_new_rows(rows, fitted).columns.values[:, 0].tolist() == [2345, 7]
    assert prepared(tmp_path, fitted, tmp_path / "one.csv")[:, 0].tolist() == [1172, 3]


def test_rows_of_several_files_are_those_of_the_hospitals_that_name_them(tmp_path: Path) -> None:
    for name, ages in (("north", "71\n64\n"), ("south", "50\n")):
        (tmp_path / f"{name}.csv").write_text("age\n" + ages)
    rows = read_new_rows(tmp_path / "*.csv", Preprocessing("standard", (Numeric("age"),), "hospital"))
    assert rows.hospitals.tolist() == ["north", "north", "south"]
    assert rows.columns.values[:, 0].tolist() == [71, 64, 50]


def test_prepared_rows_of_a_frame_are_those_of_its_file(place: Path, tmp_path: Path) -> None:
    fitted = opened(place, "logistic").preprocessing
    X, _ = fitted.transform(read_new_rows(stays(), fitted).columns)
    np.testing.assert_array_equal(prepared(tmp_path, fitted, place / "stays.csv"), X)
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "prepare.py"), "__name__": "prepare"}
    exec(Path(prepare.__file__).read_text(), namespace)
    np.testing.assert_array_equal(namespace["features"](stays()), X)
    np.testing.assert_array_equal(namespace["features"](stays().astype({"unit": "category", "gcs": int})), X)
    assert namespace["features"](stays()[:0]).shape == (0, X.shape[1])


def test_a_model_that_is_no_program_is_refused(place: Path, tmp_path: Path) -> None:
    run = folder_of(
        place, {"name": "fedavg", "label": "branching"}, model={"class": "tests.serving.networks.Branching"}
    )
    with pytest.raises(ConfigError, match=r"^model: ModuleModel cannot be exported \(.*\); use raysim predict$"):
        export(Predictor.open(run), tmp_path / "model", "torch", None, None)
    assert not (tmp_path / "model").exists()


def test_a_full_disk_is_one_line_and_leaves_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    predictor = Predictor.open(folder_of(place, "fedavg"))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        ConfigError, match=r"^--out: .*out cannot be written \(No space left on device\); name a writable"
    ):
        export(predictor, tmp_path / "out", "torch", None, None)
    assert list(tmp_path.iterdir()) == []


def test_what_says_other_numbers_is_not_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = opened(place, "mlp")
    right = MlpModel.as_module

    def wrong(model: Any, theta: Any) -> Any:
        return right(model, theta + 0.01)

    monkeypatch.setattr(MlpModel, "as_module", wrong)
    with pytest.raises(ConfigError, match=r"^model: MlpModel gives other numbers when it is exported \(up to 0\.0"):
        exported(predictor, "global")
    other: Any = object()
    with pytest.raises(ConfigError, match=r"^model: object cannot be converted to a torch module; give it a"):
        export(replace(predictor, model=other), place / "never", None, None, None)


def test_the_command_refuses_in_a_line(
    place: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    local, chip = str(folder_of(place, "local")), str(folder_of(place, CHIP))
    groups = str(folder_of(place, {"name": "fedgmc", "clusters": 2}))

    def line(*arguments: str) -> str:
        return refusal(["export", *arguments], capsys, monkeypatch)

    assert line(local, "--out", "m") == (
        "--hospital: there is no single personal model for all hospitals; name one hospital of 7, 10, 11, 12"
    )
    assert line(chip, "--out", "m", "--model", "cluster").startswith(
        "--hospital: there is no single cluster model for all"
    )
    assert line(chip, "--out", "m", "--hospital", "1") == (
        "--hospital: '1' is not a hospital of the run; did you mean '12'?"
    )
    assert line(chip, "--out", "m", "--model", "clusters").startswith(
        "--model: 'clusters' was not used at any hospital in "
    )
    assert line(groups, "--out", "m").endswith("and each row's values decide its group; use raysim predict")
    assert line(chip, "--out", "taken") == "--out: taken exists; name a new folder"
    assert line(chip, "--out", "/proc/model").startswith("--out: /proc/model cannot be written (")
    assert line("absent", "--out", "m") == "absent: no such folder; name the folder of a finished run"
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    assert line(chip, "--out", "m", "--format", "onnx") == (
        "--format: onnx needs the package onnx; pip install 'raysim[onnx]'"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_linear_model_is_plain_json(place: Path, tmp_path: Path) -> None:
    for name in ("logistic", "softmax", "linear"):
        predictor, folder = opened(place, name), tmp_path / name
        export(predictor, folder, "json", "10", None)
        tree = json.loads((folder / "model.json").read_text())
        X = prepared(folder, predictor.preprocessing, place / "stays.csv")
        z = np.array(tree["intercept"]) + X @ np.array(list(tree["coefficients"].values()))
        links = {"logit": expit, "softmax": lambda each: softmax(each, axis=1), "identity": lambda each: each}
        expected = outputs_of(predictor, "personal/10", X)
        np.testing.assert_allclose(links[tree["link"]](z), expected, rtol=1e-5, atol=1e-6)
        assert list(tree["coefficients"]) == list(predictor.preprocessing.features)


def test_trees_of_a_run_say_the_same_without_raysim(place: Path, tmp_path: Path) -> None:
    xgboost, onnxruntime = pytest.importorskip("xgboost"), pytest.importorskip("onnxruntime")
    grown = {"model": {"name": "boosted_trees", "trees": 6, "depth": 2}, "training": {}}
    predictor = Predictor.open(folder_of(place, {"name": "local", "label": "grown"}, **grown))
    expected = predictor.predict(place / "stays.csv", hospital="10")["probability"]
    for form, file in (("onnx", "model.onnx"), ("xgboost", "model.xgb.json"), (None, "model.json")):
        folder, chosen = tmp_path / file, cast(Any, form)
        export(predictor, folder, chosen, "10", None)
        X = prepared(folder, predictor.preprocessing, place / "stays.csv")
        if form == "onnx":
            said_by = onnxruntime.InferenceSession(folder / file).run(None, {"features": X})[0]
        elif form == "xgboost":
            booster = xgboost.Booster(model_file=folder / file)
            names, types = booster.feature_names, booster.feature_types
            said_by = booster.predict(
                xgboost.DMatrix(X, feature_names=names, feature_types=types, enable_categorical=True)
            )
        else:
            assert json.loads((folder / file).read_text())["columns"] == list(predictor.preprocessing.features)
            continue
        np.testing.assert_allclose(said_by, expected, rtol=2e-6, atol=1e-6)
    assert np.ptp(expected) > 0.1


def test_only_formats_that_a_model_has_are_written(place: Path, tmp_path: Path) -> None:
    for name, form, there in (("mlp", "json", "torch, onnx"), ("logistic", "xgboost", "json, torch, onnx")):
        chosen: Any = form
        with pytest.raises(ConfigError, match=rf"^--format: \w+ cannot be written as {form}; use {there}$"):
            export(opened(place, name), tmp_path / "out", chosen, "10", None)
    assert not (tmp_path / "out").exists()


def test_positions_of_categories_are_prepared_for_trees(tmp_path: Path) -> None:
    tree = Preprocessing("raw", (Numeric("x"), Categorical("u", ("a", "b")), Categorical("v", ("1", "2.5")))).tree()
    tree["columns"][0]["fill"] = None
    for column in tree["columns"][1:]:
        column["coded"] = True
    (tmp_path / "preprocessing.json").write_text(json.dumps(tree))
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "prepare.py"), "__name__": "prepare"}
    exec(Path(prepare.__file__).read_text(), namespace)
    frame = pd.DataFrame({"x": ["1.5", "", "3"], "u": ["b", "a", "c"], "v": ["", "2.50", "1"]})
    nan = np.nan
    np.testing.assert_array_equal(namespace["features"](frame), [[1.5, 1, nan], [nan, 0, 1], [3, nan, 0]])


def test_frames_with_an_index_are_prepared_row_by_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, None, 3.0], "u": ["a", "b", None]}, index=[5, 5, 1])
    fitted = Preprocessing("standard", (Numeric("x", 1.0, 2.0, 1.0, flagged=True), Categorical("u", ("a", "b"))))
    (tmp_path / "preprocessing.json").write_text(json.dumps(fitted.tree()))
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "prepare.py"), "__name__": "prepare"}
    exec(Path(prepare.__file__).read_text(), namespace)
    assert namespace["features"](frame).tolist() == [[0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]]
