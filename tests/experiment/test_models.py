"""Comparisons that cross strategies with models: which pairs are run, what they are called, and one answer over all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raysim
from raysim.core.errors import ConfigError

SMALL: dict[str, Any] = {
    "name": "models",
    "data": {"source": "synthetic", "hospitals": 8, "rows": 1600, "features": 4},
    "models": [{"name": "mlp", "hidden": [4]}, "logistic_regression"],
    "strategies": ["newton", "fedavg", "moon", "local"],
    "seeds": [0, 1],
    "training": {"rounds": 2},
    "evaluation": {"predictions": True},
    "tracking": {"uri": "none"},
}

LABELS = [
    "newton, logistic_regression",
    "fedavg, logistic_regression",
    "local, logistic_regression",
    "fedavg, mlp",
    "moon, mlp",
    "local, mlp",
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("models")
    raysim.compare(SMALL, out=home / "compared", in_process=True)
    return home / "compared"


def test_pairs_that_do_not_go_together_are_left_out_and_said(compared: Path) -> None:
    table = pd.read_csv(compared / "comparison.csv")
    assert list(table["strategy"]) == LABELS
    assert list(table["learner"]) == [label.partition(", ")[2] for label in LABELS]
    left = (
        "Left out, because they cannot be combined: MOON with logistic regression; Newton (exact regression) with MLP."
    )
    assert left in json.loads((compared / "answer.json").read_text())["reasons"]
    assert left in (compared / "report.html").read_text()


def test_runs_are_found_and_have_their_model(compared: Path) -> None:
    result = raysim.load(compared)
    assert [label for label, _ in result.runs] == [*LABELS, *LABELS]
    assert result.config.reference == "fedavg, logistic_regression"
    network = result.run("fedavg, mlp", 1)
    assert (network.config.model.name, network.config.model.options()) == ("mlp", {"hidden": [4]})
    alone = raysim.run(
        {**SMALL, "models": [], "model": SMALL["models"][0], "strategy": "fedavg", "seed": 1},
        in_process=True,
        out=compared.parent / "alone",
    )
    pd.testing.assert_frame_equal(alone.hospitals, network.hospitals, check_exact=True)


def test_names_are_words_of_way_and_model(compared: Path) -> None:
    page = (compared / "report.html").read_text()
    for name in ("FedAvg with logistic regression", "FedAvg with MLP", "MOON with MLP"):
        assert name in page


def test_its_predictions_are_judged_alike(compared: Path) -> None:
    raysim.judge(compared / "predictions.csv", "fedavg, logistic_regression", out=compared.parent / "judged")
    answers = [json.loads((compared.parent / name / "answer.json").read_text()) for name in ("compared", "judged")]
    for key in ("recommended", "difference_shown", "not_dominated", "federate"):
        assert answers[0][key] == answers[1][key]
    figures = [next(line["figure"] for line in answer["lines"] if line["fact"] == "which") for answer in answers]
    assert figures[0] == figures[1]
    assert figures[0]["learner"] == "logistic_regression"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"models": ["mlp"]}, r"newton"),
        (
            {"models": ["logistic_regression", "linear_regression"]},
            r"^model.name: 'linear_regression' predicts a number",
        ),
        ({"reference": "nobody"}, r"^reference: 'nobody' is not among the strategies compared"),
    ],
)
def test_a_strategy_or_model_without_a_pair_is_refused(tmp_path: Path, keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        raysim.compare({**SMALL, **keys}, out=tmp_path / "out", in_process=True)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_curve_takes_one_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^models: raysim curve"):
        raysim.curve({**SMALL, "curve": {"field": "mu", "values": [0.1, 1.0]}}, out=tmp_path / "out", in_process=True)


def test_a_model_has_a_grid_of_its_own_with_as_many_trials(tmp_path: Path) -> None:
    trees = {"name": "boosted_trees", "trees": 3, "depth": 2}
    tree = SMALL | {
        "data": {**SMALL["data"], "split": {"train": 0.6, "validation": 0.2, "test": 0.2}},
        "models": ["logistic_regression", trees],
        "strategies": ["federated_trees", "fedavg", "local"],
        "seeds": [0],
        "tune": {"training.learning_rate": [0.01, 0.5], "models": {"boosted_trees": {"model.depth": [1, 3]}}},
    }
    raysim.compare(tree, out=tmp_path / "out", in_process=True)
    table = pd.read_csv(tmp_path / "out" / "tuning.csv")
    assert list(table.groupby("strategy", sort=False).size().items()) == [
        ("fedavg, logistic_regression", 2),
        ("local, logistic_regression", 2),
        ("federated_trees, boosted_trees", 2),
        ("local, boosted_trees", 2),
    ]
    compared = pd.read_csv(tmp_path / "out" / "comparison.csv")
    references = compared.loc[compared["yardstick"], "strategy"]
    assert list(references) == ["local, logistic_regression", "local, boosted_trees"]
    of_trees = table[table["strategy"] == "federated_trees, boosted_trees"]
    assert list(of_trees["model.depth"]) == [1, 3]
    assert of_trees["training.learning_rate"].isna().all()
    (depth,) = of_trees.loc[of_trees["chosen"], "model.depth"]
    run = raysim.load(tmp_path / "out").run("federated_trees, boosted_trees")
    assert run.config.model.options()["depth"] == depth
    assert depth == of_trees.sort_values("validation", kind="stable")["model.depth"].iloc[0]


@pytest.mark.parametrize(
    ("tune", "line"),
    [
        (
            {"models": {"mlp": {"model.hidden": [[4]]}}},
            r"^tune.models.mlp: has 1 settings, but the other models have 2",
        ),
        ({"models": {"mlp": {"rate": [1, 2]}}}, r"^tune.models.mlp.rate: is not a key of model or training"),
        (
            {"models": {"mpl": {"model.hidden": [[4], [8]]}}},
            r"^tune.models.mpl: is not a model of the comparison; did you",
        ),
        ({"models": {"mlp": {"model.hidden": [[4], [8]]}}, "per": "comparison"}, r"^tune.per: comparison"),
        ({"models": {"mlp": {"model.hiden": [[4], [8]]}}}, r"^model.hiden: is not an option of MLP"),
    ],
)
def test_a_bad_grid_of_a_model_is_one_line(tmp_path: Path, tune: dict[str, Any], line: str) -> None:
    data = {**SMALL["data"], "split": {"train": 0.6, "validation": 0.2, "test": 0.2}}
    tree = SMALL | {"data": data, "tune": {"training.learning_rate": [0.01, 0.5], **tune}}
    with pytest.raises(ConfigError, match=line) as error:
        raysim.compare(tree, out=tmp_path / "out", in_process=True)
    assert "\n" not in str(error.value)
