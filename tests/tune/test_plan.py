"""What is refused before anything starts: exit code 2 and one line."""

from __future__ import annotations

import sys

import pytest

from raysim.cli import main as cli
from raysim.core.errors import ConfigError
from raysim.metrics.labels import CLASSIFICATION, REGRESSION
from raysim.tune.plan import make_plan
from raysim.tune.settings import Sweep, better, fitted
from tests.commands import refusal
from tests.tune.conftest import small_tree

ASHA = {"name": "asha", "objective": "auroc"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep__space": {"strategy.lamb": {"uniform": [0, 1]}}}, "sweep.space.strategy.lamb: unknown key; did you"),
        (
            {"sweep__space": {"training.learning_rate": {"uniform": [0.1, 1]}, "strategy.lamb": {"uniform": [0, 1]}}},
            "sweep.space.strategy.lamb: unknown key; did you",
        ),
        ({"sweep__space": {"training.rate": {"uniform": [0, 1]}}}, "sweep.space.training.rate: unknown key; known:"),
        ({"sweep__space": {"stratgy.lam": {"uniform": [0, 1]}}}, "unknown key; did you mean 'strategy'?"),
        ({"sweep__space": {"strategy.lam": {"uniform": [1, 0]}}}, "the lower end 1 is not below the upper end 0"),
        ({"sweep__space": {"strategy.lam": {"loguniform": [0, 1]}}}, "0 has no logarithm"),
        ({"sweep__space": {"strategy.alpha": {"uniform": [0, 2]}}}, "is not between 0 and 1"),
        ({"sweep__space": {"strategy.clusters": {"randint": [2, 40]}}}, "39 is more than the 12 hospitals"),
        ({"sweep__space": {"strategy.name": {"choice": ["fedporx"]}}}, "'fedporx' is not a known name"),
        ({"sweep__space": {"strategy.name": {"choice": ["fedavg"]}}}, "'fedavg' is refused: strategy.clusters"),
        ({"sweep__objectives": {"aurocc": "max"}}, "sweep.objectives.aurocc: no run reports this metric; did you mean"),
        ({"sweep__objectives": {"auroc": "more"}}, "sweep.objectives.auroc: 'more' is not one of"),
        ({"sweep__objectives": {}}, "sweep.objectives: is empty"),
        ({"sweep__reference": {"std": 1}}, "sweep.reference.std: is not an objective of the sweep"),
        ({"sweep__trials": 0}, "sweep.trials: 0 is not at least 1"),
        ({"sweep__trials": 10**12}, "sweep.trials: 1000000000000 is not at most 1000000"),
        ({"sweep__trials": None}, "sweep.trials: searcher random has no end"),
        ({"sweep__searcher": "optna"}, "sweep.searcher: 'optna' is not a searcher; did you mean 'optuna'?"),
        ({"sweep__searcher": "grid"}, "has infinitely many values, which searcher grid cannot list"),
        ({"sweep__scheduler": "ahsa"}, "sweep.scheduler: 'ahsa' is not a scheduler; did you mean 'asha'?"),
        (
            {"sweep__scheduler": "asha"},
            "sweep.scheduler.objective: asha cannot use several objectives (auroc, worst_decile",
        ),
        ({"sweep__scheduler": {"name": "asha", "objective": "std"}}, "'std' is not among the sweep's objectives"),
        ({"sweep__scheduler": ASHA | {"grce": 3}}, "sweep.scheduler.grce: unknown key; did you mean 'grace'?"),
        (
            {"sweep__scheduler": ASHA | {"name": "pbt"}, "sweep__searcher": "optuna"},
            "cannot be combined with scheduler pbt",
        ),
        (
            {"sweep__scheduler": ASHA | {"name": "pbt"}, "sweep__space": {"strategy.clusters": {"choice": [2]}}},
            "pbt changes training.learning_rate and continuous keys of strategy",
        ),
        ({"sweep__scheduler": ASHA, "training__rounds": 0}, "training.rounds: 0 trains in no round, but the scheduler"),
        (
            {"sweep__scheduler": "asha", "sweep__objectives": {"bytes_up": "min"}},
            "sweep.scheduler.objective: bytes_up is computed only at the end",
        ),
        ({"strategy": {"from": "rec.yaml"}}, "only run, compare and plan accept this key"),
        (
            {"sweep__space": {"strategy": {"choice": [{"name": "chip"}, {"from": "rec.yaml"}]}}},
            "sweep.space.strategy.from: only run, compare and plan accept this key",
        ),
        ({"sweep__reference": {"auroc": float("nan")}}, "sweep.reference.auroc: nan is not a finite number"),
        ({"system": {"target": {"aurocc": 0.5}}}, "system.target: 'aurocc' is not a metric to reach"),
        ({"sweep__scheduler": ASHA, "evaluation__every": 0}, "evaluation.every: 0 evaluates no round"),
        ({"sweep__trails": 3}, "sweep.trails: unknown key; did you mean 'trials'?"),
        (
            {"data__split": {"train": 0.8, "test": 0.2}},
            "data.split.validation: is 0, but trials are compared on validation rows",
        ),
        ({"training__rounds": -1}, "training.rounds: -1 is not at least 0"),
        (
            {"strategies": ["fedavg"]},
            "strategies: has no effect in a sweep, which searches one 'strategy'; remove the key",
        ),
        ({"reference": "fedavg"}, "reference: has no effect in a sweep"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(changes, message, sweep_file, monkeypatch, capsys, tmp_path):
    path = sweep_file(**changes)
    monkeypatch.setattr(sys, "argv", ["raysim", "sweep", str(path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 2
    assert message in refusal(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_file_without_the_section_says_so(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("name: x\n")
    monkeypatch.setattr(sys, "argv", ["raysim", "sweep", str(path)])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "sweep: missing" in capsys.readouterr().err


def test_a_plan_knows_its_trials_seeds_and_objectives():
    plan, config = make_plan(small_tree(seeds=[1, 2]))
    assert plan.trials() == 4
    assert plan.seeds == (1, 2)
    # Three hospitals have no tenth, and no slope on their size.
    assert plan.sweep.objectives == {"auroc": "max", "gini": "min"}
    assert plan.sweep.larger == (True, False)
    assert config.training.rounds == 3
    grid, _ = make_plan(small_tree(sweep={"searcher": "grid", "space": {"strategy.lam": {"grid": [0, 1, 2]}}}))
    assert grid.trials() == 3


def test_the_longest_trial_is_the_longest_that_the_space_allows():
    def longest(**space: object) -> int:
        return make_plan(small_tree(sweep__space=space))[0].rounds()

    assert longest(**{"strategy.lam": {"uniform": [0, 1]}}) == 3
    assert longest(**{"training.rounds": {"randint": [1, 8]}}) == 7
    assert longest(**{"training.rounds": {"choice": [9, 2]}, "strategy.lam": {"uniform": [0, 1]}}) == 9
    assert longest(training={"choice": [{"rounds": 4}, {"rounds": 6, "batch_size": 64}]}) == 6
    named = {"choice": ["a", "b"]}
    assert (
        longest(**{"strategy.label": named, "training.rounds": {"choice": [8], "when": {"strategy.label": "b"}}}) == 8
    )


def test_keys_of_the_model_are_sampled():
    tree = small_tree(model={"name": "boosted_trees", "trees": 2}, strategy="federated_trees", selection={})
    for section in ("training", "selection"):
        del tree[section]
    tree["sweep"] = {"searcher": "grid", "space": {"model.depth": {"grid": [2, 3]}, "model.rate": {"grid": [0.1, 1]}}}
    plan, _ = make_plan(tree)
    assert plan.trials() == 4
    tree["sweep"]["space"]["model.depth"] = {"grid": [2, 40]}
    with pytest.raises(ConfigError, match=r"model\.depth: 40 is "):
        make_plan(tree)


@pytest.mark.parametrize(
    ("kind", "name", "wanted"),
    [
        (CLASSIFICATION, "accuracy", "max"),
        (CLASSIFICATION, "pooled_auroc", "max"),
        (CLASSIFICATION, "worst_decile", "max"),
        (CLASSIFICATION, "log_loss", "min"),
        (CLASSIFICATION, "std", "min"),
        (CLASSIFICATION, "bytes_up", "min"),
        (REGRESSION, "r2", "max"),
        (REGRESSION, "rmse", "min"),
        (REGRESSION, "worst_decile", "min"),
    ],
)
def test_an_objective_that_looks_for_what_is_worse_is_refused(kind, name, wanted):
    def aiming(direction: str) -> Sweep:
        return Sweep.model_validate({"space": {"a": {"choice": [1]}}, "trials": 1, "objectives": {name: direction}})

    assert fitted(aiming(wanted), kind, 10).objectives == {name: wanted}
    wrong = "min" if wanted == "max" else "max"
    with pytest.raises(ConfigError, match=f"sweep.objectives.{name}: {wrong} searches for the worst .* write {wanted}"):
        fitted(aiming(wrong), kind, 10)


@pytest.mark.parametrize("direction", ["min", "max"])
def test_an_objective_with_no_better_side_may_go_either_way(direction):
    tree = {"space": {"a": {"choice": [1]}}, "trials": 1, "objectives": {"size_bias": direction}}
    assert fitted(Sweep.model_validate(tree), CLASSIFICATION, 10).larger == (direction == "max",)


@pytest.mark.parametrize("kind", [CLASSIFICATION, REGRESSION])
@pytest.mark.parametrize("name", ["worst_decile", "size_bias_abs", "size_bias", "p10"])
def test_what_takes_ten_hospitals_is_refused_under_ten(kind, name):
    if kind is REGRESSION and name == "p10":
        name = "p90"
    direction = kind.objectives.get(name, "min")
    tree = {"space": {"a": {"choice": [1]}}, "trials": 1}
    stated = Sweep.model_validate(tree | {"objectives": {name: direction}})
    message = (
        f"sweep.objectives.{name}: it needs 10 hospitals, and only 9 can be judged on validation rows; "
        f"use {kind.headline} or gini"
    )
    if better(name, kind) in (None, direction):
        assert fitted(stated, kind, 10).objectives == {name: direction}
    with pytest.raises(ConfigError) as error:
        fitted(stated, kind, 9)
    assert str(error.value) == message
    assert fitted(Sweep.model_validate(tree), kind, 10).objectives == kind.objectives
    assert set(fitted(Sweep.model_validate(tree), kind, 9).objectives) == {kind.headline, "gini"}
    judged = Sweep.model_validate(tree | {"scheduler": {"name": "asha", "objective": "worst_decile"}})
    if kind is CLASSIFICATION:
        with pytest.raises(ConfigError, match=r"sweep\.scheduler\.objective: worst_decile needs 10 hospitals"):
            fitted(judged, kind, 9)


def test_a_sweep_on_few_hospitals_is_refused_before_it_starts():
    with pytest.raises(ConfigError, match=r"sweep\.objectives\.worst_decile: it needs 10 hospitals"):
        make_plan(small_tree(sweep__objectives={"worst_decile": "max"}))


def test_trials_are_judged_on_validation_rows_and_the_recommended_one_on_test_rows():
    plan, _ = make_plan(small_tree(evaluation={"part": "test", "every": 2}))
    assert [job.evaluation.part for job in plan.jobs({}, "validation")] == ["validation"]
    assert [job.evaluation.every for job in plan.jobs({}, "validation")] == [2]
    frozen = plan.frozen({"strategy.lam": 0.25}, 3)
    assert frozen["evaluation"]["part"] == "test"
    assert frozen["strategy"]["lam"] == 0.25
    assert frozen["strategy"]["mu"] == 0.05  # defaults of the strategy included
