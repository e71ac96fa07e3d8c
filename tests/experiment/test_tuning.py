"""Comparisons that tune first: what is tried and taken, what it costs, going on, and what is refused."""

from __future__ import annotations

import html
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.api import running
from raysim.config import reading
from raysim.config.schema import Config
from raysim.config.sections.training import TuneSection
from raysim.core.errors import ConfigError
from raysim.experiment import tuning
from raysim.experiment.tuning import GridPoint, TrialResult, table
from raysim.report.terminal.progress import RunProgress
from raysim.strategies.references.local import Local
from tests.conftest import run_strategy

SMALL: dict[str, Any] = {
    "data": {
        "source": "synthetic",
        "hospitals": 8,
        "rows": 600,
        "features": 4,
        "split": {"train": 0.6, "validation": 0.2, "test": 0.2},
    },
    "training": {"rounds": 4, "batch_size": 32, "local_epochs": 1},
    "selection": "all",
    "strategies": ["fedavg", "local"],
    "seeds": [1, 2],
    "tracking": {"uri": "none"},
    "tune": {"training.learning_rate": [0.001, 0.3]},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))


def compare(tree: dict[str, Any], out: str) -> None:
    console = Console(file=io.StringIO())
    path = Path(f"{out}.yaml")
    path.write_text(yaml.safe_dump(tree))
    config = reading.resolve(path, reads=())
    running.execute_comparison(config, Path(out).absolute(), console, in_process=True, verbose=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that has tuned and ended."""
    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("RAYSIM_CACHE", str(home.parent / "cache"))
        compare(SMALL, "out")
    return home / "out"


def section(**values: Any) -> TuneSection:
    return TuneSection.model_validate(values)


def tried(figures: dict[str, list[list[float]]], rates: list[float], per: str = "strategy") -> pd.DataFrame:
    """The table of trials of strategies at these rates; a figure a rate and seed."""
    runs = [
        TrialResult(GridPoint(strategy, {"training.learning_rate": rate}, Config()), figure, 10, 1)
        for strategy, of_rate in figures.items()
        for rate, of_seed in zip(rates, of_rate, strict=True)
        for figure in of_seed
    ]
    return table(section(per=per, **{"training.learning_rate": rates}), runs)


def taken(frame: pd.DataFrame) -> dict[str, float]:
    return dict(frame[frame["chosen"]][["strategy", "training.learning_rate"]].to_numpy().tolist())


def test_each_takes_what_is_best_over_seeds_and_of_equal_ones_the_first():
    figures = {"a": [[0.5, 0.7], [0.4, 0.9], [0.6, 0.6]], "b": [[0.9, 0.9], [0.3, math.inf], [0.8, 0.6]]}
    frame = tried(figures, [0.1, 0.2, 0.3])
    assert taken(frame) == {"a": 0.1, "b": 0.3}  # .6, .65, .6; .9, diverged, .7
    assert frame["validation"].tolist()[:4] == pytest.approx([0.6, 0.65, 0.6, 0.9])
    assert np.isnan(frame["validation"][4])
    assert frame["validation_std"][0] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert frame["bytes_down"].tolist() == [20] * 6
    assert taken(tried(figures, [0.1, 0.2, 0.3], "comparison")) == {"a": 0.3, "b": 0.3}  # 1.5, diverged, 1.3


@pytest.mark.parametrize(
    ("seeds", "taken"), [(None, (42, 0, 1)), (1, (42,)), (3, (42, 0, 1)), ([1], (1,)), ([1, 42], (1, 42))]
)
def test_trials_have_the_seeds_that_are_asked_for(seeds: Any, taken: tuple[int, ...]):
    assert section(seeds=seeds, **{"training.learning_rate": [0.1]}).of_seeds([42, 0, 1]) == taken


def test_trials_of_one_seed_are_judged_by_the_log_loss_over_validation_rows_and_choose_for_all(whole: Path):
    compare({**SMALL, "tune": {**SMALL["tune"], "seeds": [2]}}, "out")
    frame, every = pd.read_csv("out/tuning.csv"), pd.read_csv(whole / "tuning.csv")
    assert frame["seeds"].tolist() == [1] * 4
    assert every["seeds"].tolist() == [2] * 4
    trial = "runs/fedavg_learning_rate_0.3/"
    hospitals = pd.read_csv(f"out/{trial}seed-2/hospitals.csv")
    expected = np.average(hospitals["log_loss"], weights=hospitals["n_validation"])
    assert frame["validation"][1] == pytest.approx(expected)
    assert frame["bytes_up"][1] == pd.read_csv(f"out/{trial}seed-2/rounds.csv")["bytes_up"].sum()
    assert not Path(f"out/{trial}seed-1").exists()
    assert {path.name for path in Path("out/runs/fedavg").iterdir()} == {"seed-1", "seed-2"}
    # A trial is there for its figure: nothing is drawn, and nothing measured that it does not need.
    written = {path.name for path in Path(f"out/{trial}seed-2").iterdir()}
    assert not written & {"report.html", "models.safetensors", "coefficients.csv", "calibration.csv", "patients.csv"}
    assert Path("out/runs/fedavg/seed-1/report.html").exists()
    assert pd.read_csv(f"out/{trial}seed-2/rounds.csv")["training_loss"].isna().all()


def test_where_all_diverge_there_is_nothing_to_take():
    with pytest.raises(ConfigError, match=r"^tune: every setting made a or another strategy diverge; list smaller"):
        tried({"a": [[math.inf], [math.inf]]}, [1.0, 2.0])
    with pytest.raises(ConfigError, match="diverge"):
        tried({"a": [[math.inf], [0.5]], "b": [[0.5], [math.inf]]}, [1.0, 2.0], "comparison")


def test_a_comparison_tunes_and_then_compares_with_what_was_best(whole: Path):
    frame = pd.read_csv(whole / "tuning.csv")
    assert frame["strategy"].tolist() == ["fedavg", "fedavg", "local", "local"]
    assert frame["training.learning_rate"].tolist() == [0.001, 0.3] * 2
    assert taken(frame) == {"fedavg": 0.3, "local": 0.3}
    for label in ("fedavg", "local"):
        for seed in (1, 2):
            config = yaml.safe_load((whole / f"runs/{label}/seed-{seed}/config.yaml").read_text())
            assert config["training"]["learning_rate"] == 0.3
            assert config["evaluation"]["part"] == "test"
            assert "tune" not in config
    compared = pd.read_csv(whole / "comparison.csv")
    assert compared["strategy"].tolist() == ["fedavg", "local"]  # no trial among them
    said = json.loads((whole / "answer.json").read_text())["reasons"]
    (sentence,) = (text for text in said if text.startswith("Tuned on validation rows, 2 trials a strategy: "))
    assert "FedAvg learning rate 0.3; Training alone learning rate 0.3." in sentence
    assert sentence in html.unescape((whole / "report.html").read_text())
    # A run with a given rate has the same files: tuning leaves nothing behind.
    plain = {key: value for key, value in SMALL.items() if key != "tune"}
    compare(plain | {"training": SMALL["training"] | {"learning_rate": 0.3}}, "plain")
    for name in ("hospitals.csv", "runs/fedavg/seed-1/hospitals.csv"):
        assert (whole / name).read_bytes() == Path("plain", name).read_bytes()
    assert not Path("plain/tuning.csv").exists()


@pytest.mark.faults
def test_one_that_is_stopped_repeats_no_finished_trial(whole: Path, monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []
    begin, show = RunProgress.begin, RunProgress.round

    def noted(self: RunProgress, label: str, rounds: int) -> None:
        begun.append(label)
        begin(self, label, rounds)

    def stopped(self: RunProgress, row: Any) -> None:
        if len(begun) == 4:
            raise KeyboardInterrupt
        show(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "begin", noted)
        patch.setattr(RunProgress, "round", stopped)
        with pytest.raises(KeyboardInterrupt):
            compare(SMALL, "out")
    first = Path("out/runs/fedavg_learning_rate_0.001/seed-1/hospitals.csv")
    made = first.stat().st_mtime_ns
    running.resume(Path("out"), in_process=True)
    assert first.stat().st_mtime_ns == made
    for name in ("tuning.csv", "hospitals.csv"):
        assert Path("out", name).read_bytes() == (whole / name).read_bytes()
    assert not list(Path("out").rglob("finished.safetensors"))


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({}, "tune: names no key; write for example training.learning_rate: [0.03, 0.1, 0.3]"),
        ({"training.learning_rat": [1]}, "tune.training.learning_rat: is not a key of training or model to tune"),
        ({"strategy.mu": [1]}, "tune.strategy.mu: is not a key of training or model to tune"),
        ({"training.stop": [{}]}, "tune.training.stop: is not a key of training or model to tune"),
        ({"training.learning_rate": []}, "tune.training.learning_rate: [] is not a list of different values"),
        ({"training.learning_rate": 0.1}, "tune.training.learning_rate: 0.1 is not a list of different values"),
        (
            {"training.learning_rate": [0.1, 0.1]},
            "tune.training.learning_rate: [0.1, 0.1] is not a list of different values",
        ),
        ({"training.learning_rate": [-1]}, "tune.training.learning_rate: -1 is not greater than 0"),
        (
            {"training.learning_rate": [1], "seeds": 0},
            "tune.seeds: 0 is neither a whole number of at least 1 nor a list of seeds",
        ),
        (
            {"training.learning_rate": [1], "seeds": True},
            "tune.seeds: true is neither a whole number of at least 1 nor a list of seeds",
        ),
        ({"training.learning_rate": [1], "seeds": [1, 1]}, "tune.seeds: [1, 1] is not a list of different whole"),
        ({"training.learning_rate": [1], "seeds": []}, "tune.seeds: [] is not a list of different whole"),
        ({"training.learning_rate": [1], "seeds": [-1]}, "tune.seeds: [-1] is not a list of different whole"),
        ({"training.learning_rate": [1], "per": "seed"}, "tune.per: 'seed' is not one of 'strategy' or 'comparison'"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_a_line(tune: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as error:
        reading.resolve({**SMALL, "tune": tune})
    assert str(error.value).startswith(message)
    assert len(str(error.value).splitlines()) == 1


def test_without_validation_rows_it_is_refused():
    tree = SMALL | {"data": {"source": "synthetic", "hospitals": 8, "rows": 600}}
    with pytest.raises(ConfigError, match=r"^tune: no hospital has validation rows, on which trials are judged; give"):
        compare(tree, "out")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (3, r"^tune\.seeds: 3, but the comparison has only seeds 1, 2; give at most 2$"),
        ([2, 7], r"^tune\.seeds: 7 is not a seed of the comparison; name some of 1, 2$"),
    ],
)
def test_seeds_that_the_comparison_lacks_are_refused(seeds: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        compare({**SMALL, "tune": {**SMALL["tune"], "seeds": seeds}}, "out")
    assert not Path("out").exists()


def test_set_and_yaml_say_the_same():
    alone = reading.resolve({**SMALL, "tune": None}, ["tune.training.learning_rate=[0.001, 0.3]"])
    assert alone.tune == reading.resolve(SMALL).tune
    assert alone.tune is not None
    assert alone.tune.grid("mlp") == {"training.learning_rate": [0.001, 0.3]}
    again = Config.model_validate(reading.resolve(SMALL).frozen())
    assert again.tune == alone.tune
    assert tuning.FILE == "tuning.csv"


@pytest.mark.parametrize(
    ("grid", "best", "said"),
    [
        (
            [0.01, 0.1, 0.3],
            [0.3, 0.3, 0.1],
            "training.learning_rate at the edge of the grid for 2 of 3: also try values beyond it",
        ),
        (
            [0.3, 0.01, 0.1],
            [0.01, 0.1, 0.1],
            "training.learning_rate at the edge of the grid for 1 of 3: also try values beyond it",
        ),
        ([0.01, 0.1, 0.3], [0.1, 0.1, 0.1], ""),
        ([0.1], [0.1, 0.1, 0.1], ""),
    ],
)
def test_a_value_at_the_edge_of_its_grid_is_said(grid: list[float], best: list[float], said: str):
    figures = {f"s{k}": [[0.5 - 0.1 * (rate == at)] for rate in grid] for k, at in enumerate(best)}
    frame = tried(figures, grid)
    assert tuning.at_the_edge(frame) == said
    assert tuning.sentence(frame).endswith(
        f" Caution: {said}." if said else "the bytes of the strategies do not include."
    )


def test_the_bound_of_a_key_is_no_edge():
    """One epoch is the least that there is, eight are not the most."""
    frame = pd.DataFrame(
        {"strategy": "a", "training.local_epochs": [1, 4, 8], "chosen": [True, False, False], "bytes_up": 0}
    )
    assert tuning.at_the_edge(frame) == ""
    frame["chosen"] = [True, False, True]
    assert tuning.at_the_edge(frame) == (
        "training.local_epochs at the edge of the grid for 1 of 2: also try values beyond it"
    )


def test_hospitals_whose_model_nobody_trained_are_left_out_of_a_trials_figure(federate):
    federation = federate([9, 0, 13], [4, 5, 6])
    outcome = run_strategy(federation, Local())
    loss = outcome.figures["personal"][:, federation.task.figures.index("log_loss")]
    assert np.isnan(loss[1])
    assert tuning.figure(outcome, federation) == pytest.approx(np.average(loss[[0, 2]], weights=[4, 6]))
    assert tuning.figure(run_strategy(federation, Local(), rounds=0), federation) == math.inf


def test_keys_of_the_model_tune_what_takes_no_steps():
    tree = SMALL | {
        "model": {"name": "boosted_trees", "trees": 3},
        "strategies": ["federated_trees", "local"],
        "reference": "local",
        "tune": {"model.depth": [1, 3], "seeds": 1},
        "training": {},
    }
    compare(tree, "trees")
    tried = pd.read_csv("trees/tuning.csv")
    assert tried["model.depth"].tolist() == [1, 3, 1, 3]
    assert tried.groupby("strategy")["chosen"].sum().tolist() == [1, 1]
    for value, said in (("deep", "model.deep"), ("depth", "depth: 40")):
        with pytest.raises(ConfigError, match=said):
            compare(tree | {"tune": {f"model.{value}": [1, 40]}}, value)
    assert TuneSection.model_validate({"model": {"depth": [1, 2]}}).grid("") == {"model.depth": [1, 2]}
