"""What a sweep says of having looked at all of its trials."""

from __future__ import annotations

import json

import pytest
from dp_accounting import get_epsilon_gaussian

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.privacy.calibration import parameters_of, resolved
from raysim.tune.guarantee import LOST, cost, read_cost, read_lost
from raysim.tune.plan import make_plan
from tests.tune.conftest import small_tree

PRIVACY = {
    "unit": "hospital",
    "epsilon": 1.5,
    "delta": 1e-3,
    "declared_public": ["sizes", "metrics", "preprocessing"],
}

NOISE = {"noise_multiplier": 2.0} | {key: value for key, value in PRIVACY.items() if key != "epsilon"}


def by_hand(*runs: tuple[float, int]) -> float:
    """Of ``(noise multiplier, rounds)`` of each run, with all hospitals in each round."""
    return float(get_epsilon_gaussian(sum(rounds / z**2 for z, rounds in runs) ** -0.5, PRIVACY["delta"]))


def test_all_trials_and_seeds_are_composed():
    tree = small_tree(seeds=[1, 2], strategy={"name": "fedavg"}, privacy=PRIVACY)
    tree["sweep"]["space"] = {"privacy.clip": {"uniform": [0.1, 1]}}
    plan, _ = make_plan(tree)
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy.clip": 0.2}, {"privacy.clip": 0.5}, {"privacy.clip": 0.7}], federations, [])
    assert spent["runs"] == 6
    (job,) = plan.jobs({"privacy.clip": 0.2}, "validation")[:1]
    multiplier = resolved(job.privacy, parameters_of(job, federations[0])).noise_multiplier
    assert spent["epsilon"] == pytest.approx(by_hand((multiplier, 6 * job.rounds)))
    assert spent["epsilon"] < 5.0
    assert spent["delta"] == PRIVACY["delta"]
    assert "all 6 runs" in spent["statement"]


def test_what_trials_tell_exactly_is_named_before_the_sweep_has_ended():
    stored = {**PRIVACY, "declared_public": ["sizes"]}
    plan, _ = make_plan(
        small_tree(strategy={"name": "fedavg"}, privacy=stored, sweep__space={"privacy.clip": {"uniform": [0.1, 1]}})
    )
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy.clip": 0.1}], federations, [])
    assert (spent["epsilon"], spent["not_private"]) == ("inf", ["metrics", "preprocessing"])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "; 1 run without any noise; this"),
        ({**PRIVACY, "declared_public": ["sizes"]}, "; not private: metrics, preprocessing; this"),
        (NOISE | {"unit": "patient", "mode": "pooled"}, "; this"),
    ],
)
def test_one_trial_with_another_guarantee_leaves_no_joint_one(other, why):
    plan, _ = make_plan(
        small_tree(strategy={"name": "fedavg"}, privacy=PRIVACY, sweep__space={"privacy": {"choice": [PRIVACY, other]}})
    )
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy": PRIVACY}, {"privacy": other}], federations, [])
    assert (spent["runs"], spent["epsilon"]) == (2, "inf")
    assert spent["statement"].startswith(
        f"against an adversary who sees all 2 runs of this sweep: epsilon at most infinite, delta 0.001{why}"
    )


def test_trials_that_a_stopped_sweep_lost_count_as_the_dearest():
    tree = small_tree(seeds=[1, 2], strategy={"name": "fedavg"}, privacy={**PRIVACY, "noise": "system"})
    tree["sweep"]["space"] = {"privacy.epsilon": {"uniform": [0.5, 4]}}
    plan, _ = make_plan(tree)
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    spent = cost(plan, [{"privacy.epsilon": 1.0}, {"privacy.epsilon": 3.0}], federations, [], lost=2)
    assert spent["runs"] == 8
    (job, dear) = (plan.jobs({"privacy.epsilon": each}, "validation")[0] for each in (1.0, 3.0))
    little, much = (
        resolved(each.privacy, parameters_of(each, federations[0])).noise_multiplier for each in (job, dear)
    )
    assert spent["epsilon"] == pytest.approx(by_hand((little, 2 * job.rounds), (much, 6 * job.rounds)))


def test_what_was_lost_is_read_back_and_nonsense_is_refused(tmp_path):
    assert read_lost(tmp_path) == 0
    (tmp_path / LOST).write_text('{"trials": 3}')
    assert read_lost(tmp_path) == 3
    (tmp_path / LOST).write_text('{"trials": -3}')
    with pytest.raises(ConfigError, match="'trials' is not a whole number of at least 0"):
        read_lost(tmp_path)


def test_the_cost_of_a_sweep_that_has_ended_is_read_from_its_summary(tmp_path):
    path, stored = tmp_path / "summary.json", {"runs": 2, "epsilon": 3.5, "statement": "epsilon at most 3.5"}
    path.write_text(json.dumps({"privacy": stored}))
    assert read_cost(path) == stored
    path.write_text("{}")
    assert read_cost(path) is None
    path.write_text('{"privacy": [1]}')
    with pytest.raises(ConfigError, match="'privacy' has no text 'statement'"):
        read_cost(path)


def test_a_sweep_without_a_guarantee_has_no_statement():
    plan, _ = make_plan(small_tree())
    federations = [Federation.open(folder) for folder in plan.folders.values()]
    assert cost(plan, [{"strategy.lam": 0.3}], federations, []) is None
