"""What a sweep says of having looked at all of its trials."""

from __future__ import annotations

import pytest

from raysim.data.federation import Federation
from raysim.tune.plan import make_plan
from raysim.tune.promised import cost
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


def test_a_sweep_without_a_promise_says_nothing():
    plan, _ = make_plan(small_tree())
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    assert cost(plan, [{"strategy.lam": 0.3}], federations, []) is None
