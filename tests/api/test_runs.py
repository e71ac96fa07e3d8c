"""Runs and comparisons from Python: what results hold is what is in the files, in this process and on Ray."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import ray
import yaml
from rich.console import Console

import raysim
from raysim.api.comparison_result import ComparisonResult
from raysim.api.request import alone_on_ray, console_or_warnings
from raysim.api.results import Answer, RunResult
from raysim.cli.commands import compare_all, run_one
from raysim.cli.export import export
from raysim.cli.predict import predict
from raysim.config import reading
from raysim.storage.manifest import Manifest
from raysim.strategies.one_model.fedavg import FedAvg

SMALL = {
    "name": "small",
    "data": {"source": "synthetic", "hospitals": 5, "rows": 1000},
    "training": {"rounds": 3},
    "strategy": "fedavg",
    "strategies": ["local", "fedavg"],
    "seeds": [0, 1],
    "evaluation": {"every": 1},
    "tracking": {"uri": "none"},
}


@dataclass(frozen=True)
class Halved(FedAvg):
    """Federated averaging that goes only a share of the way."""

    share: float = 0.5

    def aggregate(self, view: Any, state: Any, update: Any) -> Any:
        after = super().aggregate(view, state, update)
        return type(state)(models=state.models + self.share * (after.models - state.models))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSIM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_what_python_prints_of_a_federation_shows_no_rows():
    rows = pd.DataFrame({"site": ["a", "b"] * 20, "age": np.arange(40) + 0.7265, "died": [0, 0, 1, 1] * 10})
    described = raysim.describe({"data": {"silo": "site", "label": "died", "preprocessing": "none"}}, data=rows)
    assert repr(described.federation) == "<federation: 2 hospitals, 40 rows, 1 features>"
    assert repr(described.federation) in repr(described)
    assert ".7265" not in repr(described)
    assert "array" not in repr(described.federation)


def test_records_in_the_place_of_a_section_are_not_shown():
    with pytest.raises(raysim.RaysimError, match=r"^data: a list of 2 groups of keys is not a group of keys$"):
        raysim.run({"data": [{"age": 71}, {"age": 72}]})


@pytest.mark.parametrize("call", [raysim.run, raysim.compare, raysim.describe])
def test_a_data_frame_in_the_place_of_a_configuration_is_not_shown(call: Any):
    rows = pd.DataFrame({"site": ["a", "b"], "age": [71, 72]})
    for arguments in ({"config": rows}, {"overrides": rows}, {"overrides": [rows]}, {"seed": rows}):
        with pytest.raises(raysim.RaysimError) as refused:
            call(**arguments)
        (line,) = str(refused.value).splitlines()
        assert "a DataFrame" in line
        assert "71" not in line


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> ComparisonResult:
    listed = ["local", "fedavg", "ditto"]
    return raysim.compare(SMALL, strategies=listed, out=tmp_path_factory.mktemp("compared"), in_process=True)


def test_a_comparison_that_names_no_seed_has_three_and_says_so(tmp_path: Path):
    """One that names a seed, or goes on from a folder that says which, has those alone."""
    asked = {key: value for key, value in SMALL.items() if key != "seeds"} | {"training": {"rounds": 1}}
    said = io.StringIO()
    console = Console(file=said, width=200)
    result = raysim.compare(asked, strategies=["fedavg"], out=tmp_path / "three", in_process=True, console=console)
    assert list(result.seeds["seed"]) == [42, 43, 44]
    assert "seeds 42, 43, 44: one seed cannot demonstrate a difference" in said.getvalue()
    whole = reading.resolve(tmp_path / "three" / "config.yaml", reads=reading.COMPARISON)
    assert (whole.seeds, reading.over_seeds(whole)) == ((42, 43, 44), whole)
    for named, seeds in (({"seed": 7}, ()), ({"seeds": [1, 2]}, (1, 2))):
        config = reading.resolve(asked | named, reads=reading.COMPARISON)
        assert reading.over_seeds(config).seeds == seeds
    folds = reading.resolve(asked | {"data": SMALL["data"] | {"split": {"folds": 4}}}, reads=reading.COMPARISON)
    assert reading.over_seeds(folds).seeds == ()


def weights(result: RunResult) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(result.folder / "models.safetensors")


def same(a: RunResult, b: RunResult) -> bool:
    ours, theirs = weights(a), weights(b)
    return list(ours) == list(theirs) and all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return raysim.run(SMALL, out=tmp_path_factory.mktemp("ran") / "run", in_process=True)


def test_a_run_holds_what_is_in_its_files(ran: RunResult, tmp_path: Path):
    result, folder = ran, ran.folder
    assert folder.name == "run"
    assert (result.strategy, result.seed) == ("fedavg", 42)
    summary = json.loads((folder / "summary.json").read_text())
    assert result.metrics["auroc"] == summary["auroc"]
    assert result.metrics.name == summary["model"] == "global"
    metrics = {name: math.nan if value is None else value for name, value in summary["models"]["global"].items()}
    assert dict(result.metrics) == pytest.approx(metrics, rel=0, abs=0, nan_ok=True)
    pd.testing.assert_frame_equal(result.hospitals, pd.read_csv(folder / "hospitals.csv"))
    assert result.hospitals["auroc"].mean() == pytest.approx(result.metrics["mean_unweighted"], abs=1e-12)
    assert list(result.rounds["round"]) == [1, 2, 3]
    assert result.rounds["global_auroc"].iloc[-1] == result.metrics["auroc"]
    assert result.config.strategy.name == "fedavg"
    assert {"by_round", "by_size", "calibration", "decision_curve"} <= set(result.figures)
    drawn = result.figures["by_round"]
    assert drawn._repr_svg_() == (folder / "plots/by_round.svg").read_text(encoding="utf-8")
    assert drawn.save(tmp_path / "one.svg").read_text(encoding="utf-8") == drawn.svg
    with pytest.raises(raysim.RaysimError, match="figures: there is no 'by_rond'; did you mean 'by_round'"):
        result.figures["by_rond"]
    assert "by_rond" not in result.figures
    with pytest.raises(raysim.RaysimError, match=r"one\.gif: a figure is saved as \.svg, \.pdf or \.png"):
        drawn.save(tmp_path / "one.gif")
    if find_spec("vl_convert") is None:
        with pytest.raises(
            raysim.RaysimError, match=r"one\.png: needs the package vl_convert, which is not installed;"
        ):
            drawn.save(tmp_path / "one.png")
    else:
        assert drawn.save(tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
        assert drawn.save(tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert result.training in result._repr_html_()
    quality = result.answer.card.line("quality")
    assert quality is not None
    assert f"AUROC {result.metrics['auroc']:.3f} (" in quality.text
    assert result.training in str(result.answer).splitlines()
    assert result.answer.recommended is None
    assert (result.answer["federate"], result.answer["predicts"]) == ("not tested", "death in hospital")
    loaded = raysim.load(str(folder))
    assert isinstance(loaded, RunResult)
    pd.testing.assert_series_equal(loaded.metrics, result.metrics)
    pd.testing.assert_frame_equal(loaded.rounds, result.rounds)


def test_what_a_call_takes_is_what_the_command_line_takes(ran: RunResult, tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    ways = [
        ran,
        raysim.run(str(path), out=str(tmp_path / "text"), in_process=True),
        raysim.run(raysim.Config.model_validate(SMALL), out=tmp_path / "config", in_process=True),
    ]
    run_one(
        reading.resolve(path, reads=()), Console(file=io.StringIO()), tmp_path / "cli", in_process=True, verbose=False
    )
    ways.append(RunResult(tmp_path / "cli"))
    assert len({(way.folder / "config.yaml").read_text() for way in ways}) == 1
    assert all(same(ways[0], way) for way in ways[1:])


def test_strategy_seed_and_overrides_are_laid_over_the_configuration(tmp_path: Path):
    overrides = {"training.rounds": 1, "strategy.weights": "uniform"}
    result = raysim.run(SMALL, strategy="fedprox", seed=7, overrides=overrides, out=tmp_path, in_process=True)
    assert (result.strategy, result.seed, list(result.rounds["round"])) == ("fedprox", 7, [1])
    options = result.config.strategy.options()
    assert (options["weights"], options["mu"]) == ("uniform", 0.01)
    assert SMALL["training"] == {"rounds": 3}


def test_a_registered_strategy_is_written_by_its_name(tmp_path: Path):
    given = raysim.run(SMALL, strategy=FedAvg(weights="uniform"), out=tmp_path / "given", in_process=True)
    section = {"name": "fedavg", "weights": "uniform"}
    named = raysim.run(SMALL, strategy=section, out=tmp_path / "named", in_process=True)
    assert (given.folder / "config.yaml").read_text() == (named.folder / "config.yaml").read_text()
    assert same(given, named)


def test_a_strategy_of_ones_own_trains_and_is_written_by_its_path(tmp_path: Path):
    whole = raysim.run(
        SMALL, strategy=FedAvg, out=tmp_path / "whole", overrides={"training.rounds": 1}, in_process=True
    )
    half = raysim.run(SMALL, strategy=Halved, out=tmp_path / "half", overrides={"training.rounds": 1}, in_process=True)
    other = raysim.run(
        SMALL, strategy=Halved(share=1.0), out=tmp_path / "other", overrides={"training.rounds": 1}, in_process=True
    )
    assert same(whole, other)
    assert not same(whole, half)
    for name, tensor in weights(whole).items():  # logistic regression starts from zero
        assert np.allclose(weights(half)[name], 0.5 * tensor, rtol=0, atol=1e-7)
    tree = yaml.safe_load((half.folder / "config.yaml").read_text())
    assert tree["strategy"] == {
        "class": "tests.api.test_runs.Halved",
        "weights": "samples",
        "minimum_weight": 0.01,
        "share": 0.5,
    }
    again = raysim.run(half.folder / "config.yaml", out=tmp_path / "again", in_process=True)
    assert same(half, again)


def test_a_class_of_a_function_trains_and_cannot_be_made_again(tmp_path: Path):
    @dataclass(frozen=True)
    class Inner(Halved):
        pass

    result = raysim.run(SMALL, strategy=Inner(share=0.25), out=tmp_path / "a", in_process=True)
    assert result.strategy == "Inner"
    assert same(result, raysim.run(SMALL, strategy=Halved(0.25), out=tmp_path / "b", in_process=True))
    with pytest.raises(raysim.RaysimError, match=r"strategy.class: '.*Inner' cannot be imported") as raised:
        raysim.run(result.folder / "config.yaml", in_process=True)
    assert "\n" not in str(raised.value)


class Plain(raysim.Strategy):
    """Is no dataclass."""


@dataclass(frozen=True)
class Array(raysim.Strategy):
    """Holds what YAML cannot."""

    prior: np.ndarray


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("fedporx", "strategy.name: 'fedporx' is not a known name; did you mean 'fedprox'?"),
        (Plain, "strategy: 'Plain' takes no configuration; make it a dataclass"),
        (Array, "strategy: 'Array' cannot be constructed"),
        (Array(np.ones(2)), "strategy: 'Array' has a field that cannot be written into config.yaml"),
        (Halved(share="half"), "strategy.share: 'half' is not a number"),
        (3, "strategy: 3 is not a group of keys"),
    ],
)
def test_a_strategy_that_cannot_be_used_is_one_line(tmp_path: Path, strategy: Any, said: str):
    with pytest.raises(raysim.RaysimError) as raised:
        raysim.run(SMALL, strategy=strategy, out=tmp_path / "run", in_process=True)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_comparison_holds_what_is_in_its_files(compared: ComparisonResult):
    folder = compared.folder
    pd.testing.assert_frame_equal(compared.comparison, pd.read_csv(folder / "comparison.csv"))
    assert list(compared.metrics.index) == ["local", "fedavg", "ditto"]
    of = compared.hospitals.query("strategy == 'fedavg' and model == 'global' and auroc.notna()")
    mean = np.average(of["auroc"], weights=of["n_test"])
    assert compared.metrics.loc["fedavg", "auroc"] == pytest.approx(mean, abs=1e-12)
    assert list(compared.runs) == [(each, seed) for seed in (0, 1) for each in ("local", "fedavg", "ditto")]
    assert set(compared.hospitals["seed"]) == {0, 1}
    assert len(compared.rounds) == 6 * 3
    assert compared.rounds.columns[:3].tolist() == ["strategy", "seed", "round"]
    answer = json.loads((folder / "answer.json").read_text())
    assert compared.answer == answer
    assert compared.answer.recommended == answer["recommended"]
    assert str(compared.answer).splitlines() == answer["reasons"]
    assert answer["reasons"][0] in compared._repr_html_()
    assert compared.run().folder == folder / f"runs/{compared.answer.recommended}/seed-0"
    assert compared.run("local", 1).folder == folder / "runs/local/seed-1"
    for name in compared.figures:
        assert ElementTree.fromstring(compared.figures[name].svg).tag.endswith("svg")
    assert "forest" in compared.figures
    assert set(compared.run("local", 0).figures) >= {"by_round"}
    assert not compared.run("local", 1).figures
    with pytest.raises(raysim.RaysimError, match="'forest'; of a comparison, only runs of the first seed have figures"):
        compared.run("local", 1).figures["forest"]
    loaded = raysim.load(folder)
    assert isinstance(loaded, ComparisonResult)
    pd.testing.assert_frame_equal(loaded.metrics, compared.metrics)


def test_what_another_version_did_not_store_is_one_line(tmp_path: Path):
    folder = tmp_path / "run"
    Manifest.begin(folder, "run")
    with pytest.raises(raysim.RaysimError, match=f"^figures: there is no 'forest'; {folder} stores no figures"):
        RunResult(folder).figures["forest"]
    for read, name in (
        (lambda: RunResult(folder).answer, "answer.json"),
        (lambda: RunResult(folder).summary, "summary.json"),
        (lambda: ComparisonResult(folder).answer, "answer.json"),
    ):
        with pytest.raises(raysim.RaysimError, match=f"^{folder}: has no {name}; .* repeat the run with this version"):
            read()


def test_the_headline_model_is_the_one_in_metrics(compared: ComparisonResult):
    ditto = compared.comparison[compared.comparison["strategy"] == "ditto"]
    assert len(ditto) > 1
    runs = [compared.run("ditto", seed).metrics for seed in (0, 1)]
    assert compared.metrics.loc["ditto", "model"] == ditto["model"].iloc[-1] == runs[0].name
    worst = (runs[0]["worst_decile"] + runs[1]["worst_decile"]) / 2
    assert compared.metrics.loc["ditto", "worst_decile"] == pytest.approx(worst, abs=1e-12)


def test_predictions_are_of_the_recommended_model(tmp_path: Path, logged: list[str], capsys: Any):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300), "site": rng.choice(["x", "y"], 300)})
    frame["died"] = (frame["a"] + rng.normal(size=300) > 0).astype(int)
    config = {**SMALL, "data": {"silo": "site", "label": "died"}}
    result = raysim.compare(config, strategies=["ditto", "fedavg"], data=frame, seed=0, out=tmp_path, in_process=True)
    answer = json.loads((tmp_path / "answer.json").read_text())
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for recommended, strategy, model in (
        ("ditto (global)", "ditto", "global"),
        ("ditto (personal)", "ditto", "personal"),
        ("fedavg", "fedavg", "global"),
    ):
        (tmp_path / "answer.json").write_text(json.dumps(answer | {"recommended": recommended}))
        logged.clear()
        said = ComparisonResult(tmp_path).predict(frame)
        assert np.array_equal(said, result.run(strategy).predict(frame, model=model))
        assert logged == [f"rows are scored by the recommended model: {strategy}, {model}, seed 0"]
        predict(tmp_path, tmp_path / "rows.csv", tmp_path / "scores.csv")
        assert f"scored by the recommended strategy: {strategy}, {model}, seed 0\n" in capsys.readouterr().out
        assert np.allclose(pd.read_csv(tmp_path / "scores.csv")["probability"], said, atol=1e-6)
        export(tmp_path, tmp_path / recommended, hospital="x")
        line = f"of the recommended strategy: {strategy}, {model}, seed 0\n"
        assert capsys.readouterr().out.startswith(f"model: {'personal/x' if model == 'personal' else model}, {line}")
        export(result.run(strategy).folder, tmp_path / f"{recommended} again", hospital="x", model=model)
        one, other = (
            json.loads((tmp_path / name / "model.json").read_text()) for name in (recommended, f"{recommended} again")
        )
        assert one == other
    (tmp_path / "answer.json").write_text(json.dumps(answer | {"recommended": "ditto (personal)"}))
    export(tmp_path, tmp_path / "elsewhere")  # as of the run's folder: the model for other hospitals
    assert "model: global, of the recommended strategy: ditto, personal, seed 0\n" in capsys.readouterr().out
    (tmp_path / "answer.json").write_text(json.dumps(answer | {"recommended": None, "headline": "Do not use it."}))
    nothing = ComparisonResult(tmp_path)
    with pytest.raises(raysim.RaysimError, match=r"recommends no model \(Do not use it\.\); name a strategy"):
        nothing.predict(frame)
    with pytest.raises(raysim.RaysimError, match="recommends no model"):
        predict(tmp_path, tmp_path / "rows.csv", tmp_path / "other.csv")
    with pytest.raises(raysim.RaysimError, match="recommends no model"):
        export(tmp_path, tmp_path / "none")
    assert np.array_equal(nothing.predict(frame, strategy="fedavg"), result.run("fedavg").predict(frame))
    assert not np.array_equal(result.run("ditto").predict(frame), result.run("ditto").predict(frame, model="global"))
    with pytest.raises(raysim.RaysimError, match=r"^answer\.json: has no '.*; repeat the run with this version$"):
        Answer({"recommended": None, "reasons": ["Too few rounds."]}).card  # noqa: B018
    # An earlier version wrote no headline.
    (tmp_path / "answer.json").write_text(json.dumps({"recommended": None, "reasons": ["Too few rounds."]}))
    with pytest.raises(raysim.RaysimError, match=r"recommends no model \(Too few rounds\.\); name a strategy"):
        predict(tmp_path, tmp_path / "rows.csv", tmp_path / "scores.csv")


def test_strategies_by_label_may_be_of_one_class(tmp_path: Path):
    by_label = {"half": Halved, "all": Halved(1.0), "fedavg": {"name": "fedavg"}}
    result = raysim.compare(SMALL, strategies=by_label, seed=0, out=tmp_path, in_process=True)
    assert list(result.metrics.index) == ["half", "all", "fedavg"]
    assert same(result.run("all"), result.run("fedavg"))
    assert not same(result.run("half"), result.run("fedavg"))
    with pytest.raises(raysim.RaysimError, match=r"strategies\.1\.label: 'Halved' names two strategies"):
        raysim.compare(SMALL, strategies=[Halved(), Halved(1.0)], out=tmp_path / "b", in_process=True)
    with pytest.raises(raysim.RaysimError, match="strategies: 'fedavg' is not a list; give a list of strategies"):
        raysim.compare(SMALL, strategies="fedavg", out=tmp_path / "c", in_process=True)


def test_a_run_or_seed_that_was_not_run_is_named(compared: ComparisonResult):
    with pytest.raises(raysim.RaysimError, match="strategy: 'fedavgg' is not among those compared; did you mean"):
        compared.run("fedavgg")
    with pytest.raises(raysim.RaysimError, match=r"seed: 9 was not run; name one of \[0, 1\]"):
        compared.run(seed=9)
    with pytest.raises(raysim.RaysimError, match=r"has no table 'hospital\.csv'; did you mean 'hospitals\.csv'"):
        compared.table("hospital.csv")


def test_new_rows_are_scored_by_the_headline_model(tmp_path: Path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400), "b": rng.normal(size=400), "site": rng.choice(["x", "y"], 400)})
    frame["died"] = (frame["a"] + rng.normal(size=400) > 0).astype(int)
    config = {**SMALL, "data": {"silo": "site", "label": "died"}}
    result = raysim.run(config, data=frame, out=tmp_path / "two", in_process=True, overrides={"training.rounds": 20})
    new = frame.drop(columns="died").set_index(pd.Index(range(1000, 1400)))
    said = result.predict(new)
    assert isinstance(said, pd.Series)
    assert said.name == "probability"
    assert said.index.equals(new.index)
    theta = {name.partition("/")[2]: tensor.astype(float) for name, tensor in weights(result).items()}
    split = result.table("split.csv")
    X = frame.loc[split["row"], ["a", "b"]]
    train = X[(split["part"] == "train").to_numpy()]
    logits = ((new[["a", "b"]] - train.mean()) / train.std(ddof=0)) @ theta["weight"].ravel() + theta["bias"]
    assert np.allclose(said, 1 / (1 + np.exp(-logits)), atol=1e-5)
    new.drop(columns="site").to_csv(tmp_path / "new.csv", index=False)
    assert np.allclose(raysim.load(result.folder).predict(tmp_path / "new.csv"), said, atol=1e-6)
    compared = raysim.compare(config, data=frame, seed=1, out=tmp_path / "all", in_process=True)
    local = compared.predict(new.drop(columns="site"), "y", strategy="local")
    assert np.array_equal(local, compared.run("local").predict(new.assign(site="y")))
    with pytest.raises(raysim.RaysimError, match="table: no column 'b' in the data frame"):
        result.predict(new.drop(columns="b"))


def test_more_classes_are_columns(tmp_path: Path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300), "site": rng.choice(["x", "y"], 300)})
    frame["kind"] = np.digitize(frame["a"], [-0.5, 0.5])
    config = {**SMALL, "data": {"silo": "site", "label": "kind"}}
    said = raysim.run(config, data=frame, out=tmp_path, in_process=True).predict(frame)
    assert list(said.columns) == ["0", "1", "2"]
    assert np.allclose(said.sum(axis="columns"), 1.0)


def test_a_folder_without_results_is_refused(tmp_path: Path, compared: ComparisonResult):
    with pytest.raises(raysim.RaysimError, match="has no results of raysim"):
        raysim.load(tmp_path)
    manifest = json.loads((compared.folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"kind": "study", "files": {}}))
    with pytest.raises(raysim.RaysimError, match="results of the kind 'study' cannot be loaded"):
        raysim.load(tmp_path)


def test_what_was_stopped_goes_on_and_then_loads(ran: RunResult, tmp_path: Path):
    stopped = tmp_path / "stopped"
    with pytest.raises(ZeroDivisionError):
        raysim.run(SMALL, overrides={"checkpoint.every": 1, "strategy": Stopping(2)}, out=stopped, in_process=True)
    with pytest.raises(raysim.RaysimError, match="is not finished; continue with 'raysim resume"):
        raysim.load(stopped)
    Stopping.stops = False
    try:
        result = raysim.resume(stopped, in_process=True)
    finally:
        Stopping.stops = True
    assert isinstance(result, RunResult)
    assert same(result, ran)
    assert raysim.resume(stopped).folder == raysim.load(stopped).folder


@dataclass(frozen=True)
class Stopping(FedAvg):
    """Federated averaging that breaks off in a round."""

    at: int = 1
    stops = True

    def select(self, view: Any, state: Any, round: int) -> Any:
        if self.stops and round > self.at:
            raise ZeroDivisionError
        return super().select(view, state, round)


def test_nothing_is_printed_unless_it_is_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    raysim.compare(SMALL, strategies=["fedavg"], seed=0, out=tmp_path / "a", in_process=True)
    assert capfd.readouterr() == ("", "")
    raysim.run(SMALL, out=tmp_path / "b", in_process=True, verbose=True)
    assert "5 hospitals, 1,000 rows" in capfd.readouterr().out
    shown = io.StringIO()
    raysim.run(SMALL, out=tmp_path / "c", in_process=True, console=Console(file=shown, width=160))
    assert "5 hospitals, 1,000 rows" in shown.getvalue()
    assert capfd.readouterr() == ("", "")


def in_another_thread(act: Callable[[], Any]) -> Any:
    """What ``act`` returns on a thread of its own, or the error that it raises."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(act).result()


def test_one_thread_at_a_time_connects_the_process_to_ray(compared: ComparisonResult, tmp_path: Path, monkeypatch):
    """As Ray knows one connection for all threads; what needs none, and what goes on by itself, is not kept."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    refused = (
        r"^resources: another call in this process has connected to Ray.*; wait until then, pass in_process=True, or"
    )
    with alone_on_ray(in_process=False):
        with alone_on_ray(in_process=False):  # a call within its own
            pass
        for call in (
            lambda: raysim.run(SMALL, out=tmp_path / "a"),
            lambda: raysim.compare(SMALL, out=tmp_path / "a"),
            lambda: raysim.sweep(SMALL | {"sweep": {}}, out=tmp_path / "a"),
            lambda: raysim.curve(SMALL | {"curve": {}}, out=tmp_path / "a"),
            lambda: raysim.resume(compared.folder),
        ):
            with pytest.raises(raysim.RaysimError, match=refused):
                in_another_thread(call)
        assert in_another_thread(lambda: raysim.run(SMALL, out=tmp_path / "b", in_process=True)).metrics is not None
        monkeypatch.setattr(ray, "is_initialized", lambda: True)  # by the call that is at work
        with pytest.raises(raysim.RaysimError, match=refused):
            in_another_thread(lambda: raysim.run(SMALL, out=tmp_path / "a"))
    assert not (tmp_path / "a").exists()

    def enter() -> bool:
        with alone_on_ray(in_process=False):
            return True

    with alone_on_ray(in_process=False):  # on a Ray that is the caller's
        assert in_another_thread(enter)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert in_another_thread(enter)


def test_a_warning_is_logged_where_nothing_is_shown(logged: list[str]):
    silent = console_or_warnings(None, False)
    long = "no more " * 50
    for text in ("[1/1] fedavg: 0.1 s", f"warning: {long}", "a line with warning: in it"):
        silent.print(text, soft_wrap=True, highlight=False, markup=False)
    assert logged == [long]
    assert not silent.is_terminal


def test_a_notebook_shows_progress_as_lines(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    shown = console_or_warnings(None, False)
    shown.print("[1/1] fedavg: 0.1 s", soft_wrap=True, highlight=False, markup=False)
    assert capfd.readouterr().out == "[1/1] fedavg: 0.1 s\n"
    assert not shown.is_jupyter
    given = Console(file=io.StringIO())
    assert console_or_warnings(given, False) is given


def test_the_command_prints_what_is_in_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # which would say how wide a block may be
    shown = Console(file=io.StringIO(), width=160)
    captured = Console(file=io.StringIO(), width=160)
    asked = reading.resolve(SMALL | {"seeds": [0]}, reads=())
    manner = {"in_process": True, "verbose": False}
    compare_all(asked, shown, None, **manner, details=True, progress=captured)
    (folder,) = Path("runs/small").iterdir()
    text = shown.file.getvalue()
    loaded = raysim.load(folder)
    assert isinstance(loaded, ComparisonResult)
    block, tables = text.split("\n\n", 1)
    assert len(block.splitlines()) <= 16
    assert max(map(len, block.splitlines())) <= 80
    assert f"\nReport {folder / 'report.html'}\nNext   raysim compare" in block
    first, *_ = block.splitlines()
    assert first.startswith(f"small: {loaded.answer['what']}"[:60])
    assert " ".join(block.split()).find(loaded.answer["headline"]) > 0
    assert all(sentence.split(":")[0] in tables for sentence in loaded.answer["reasons"])
    assert text.rstrip().endswith(loaded.answer["headline"]), "the answer stands first and last"
    progress = captured.file.getvalue()
    assert "reading data" in progress
    assert "reading data" not in text
