"""What a sweep says of having looked at all of its trials."""

from __future__ import annotations

import json
import math

import pytest

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.privacy.statement import Statement
from raysim.tune.plan import make_plan
from raysim.tune.promised import LOST, cost, read_lost, read_statement
from tests.tune.conftest import small_tree

PROMISE = {"unit": "hospital", "epsilon": 1.5, "delta": 1e-3, "declared_public": ["sizes", "metrics", "preprocessing"]}


def test_epsilons_and_deltas_of_all_trials_and_seeds_add_up():
    tree = small_tree(seeds=[1, 2], strategy={"name": "fedavg"}, privacy=PROMISE)
    tree["sweep"]["space"] = {"privacy.clip": {"uniform": [0.1, 1]}}
    plan, _ = make_plan(tree)
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy.clip": 0.2}, {"privacy.clip": 0.5}, {"privacy.clip": 0.7}], federations, [])
    assert spent["runs"] == 6
    assert spent["epsilon"] == pytest.approx(9.0)
    assert spent["delta"] == pytest.approx(6e-3)
    assert "all 6 runs" in spent["statement"]


def test_what_trials_tell_exactly_is_named_before_the_sweep_has_ended():
    told = {**PROMISE, "declared_public": ["sizes"]}
    plan, _ = make_plan(
        small_tree(strategy={"name": "fedavg"}, privacy=told, sweep__space={"privacy.clip": {"uniform": [0.1, 1]}})
    )
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy.clip": 0.1}], federations, [])
    assert (spent["epsilon"], spent["not_private"]) == ("inf", ["metrics", "preprocessing"])


def test_trials_that_a_stopped_sweep_lost_count_as_the_dearest():
    tree = small_tree(seeds=[1, 2], strategy={"name": "fedavg"}, privacy={**PROMISE, "noise": "system"})
    tree["sweep"]["space"] = {"privacy.epsilon": {"uniform": [0.5, 4]}}
    plan, _ = make_plan(tree)
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy.epsilon": 1.0}, {"privacy.epsilon": 3.0}], federations, [], lost=2)
    assert spent["runs"] == 8
    assert spent["epsilon"] == pytest.approx(2 * (1 + 3) + 2 * 2 * 3)


def test_what_was_lost_is_read_back_and_nonsense_is_refused(tmp_path):
    assert read_lost(tmp_path) == 0
    (tmp_path / LOST).write_text('{"trials": 3}')
    assert read_lost(tmp_path) == 3
    (tmp_path / LOST).write_text('{"trials": -3}')
    with pytest.raises(ConfigError, match="holds no number of trials"):
        read_lost(tmp_path)


def test_the_guarantee_of_a_run_is_read_from_its_summary(tmp_path):
    told = Statement("patient", "local", "server", 1e-5, {"server": math.inf}, {"server": 2.0}, not_private=("loss",))
    (tmp_path / "summary.json").write_text(json.dumps({"privacy": told.as_json()}))
    read = read_statement(tmp_path / "summary.json")
    assert read is not None
    assert (read.epsilon, read.delta, read.not_private) == (math.inf, 1e-5, ("loss",))
    assert read_statement(tmp_path / "nothing.json") is None


def test_a_sweep_without_a_promise_says_nothing():
    plan, _ = make_plan(small_tree())
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    assert cost(plan, [{"strategy.lam": 0.3}], federations, []) is None
