"""Searchers: what they propose, and what they know of earlier trials."""

from __future__ import annotations

import math

import pytest

from raysim.tune.journal import Finished
from raysim.tune.running.driver import Proposals
from raysim.tune.search import make_source, objectives
from raysim.tune.settings import Sweep
from raysim.tune.spaces import Space, parse

SPACE = {
    "strategy.name": {"choice": ["chip", "fedavg"]},
    "strategy.lam": {"loguniform": [0.01, 1], "when": {"strategy.name": "chip"}},
    "strategy.clusters": {"randint": [2, 9], "when": {"strategy.name": "chip"}},
    "strategy.alpha": {"quniform": [0, 1, 0.25], "when": {"strategy.name": "chip"}},
    "strategy.signature": {"grid": [["mean"], ["std"]], "when": {"strategy.name": "chip"}},
}


def settings(searcher: str = "optuna", **more: object) -> tuple[Sweep, Space]:
    sweep = Sweep(space=SPACE, trials=9, searcher=searcher, **more)
    return sweep, parse(sweep.space)


def finished(number: int, params: dict, auroc: float, status: str = "completed") -> Finished:
    metrics = {"auroc": auroc, "worst_decile": auroc - 0.1, "size_bias_abs": 0.01, "gini": 0.1}
    finals = {} if status == "failed" else {1: {"global": metrics}}
    return Finished(number, params, status, finals=finals)


def test_random_and_grid_proposals_depend_on_the_number_alone():
    sweep, space = settings("random")
    forward = [make_source(sweep, space, 4, []).propose(n) for n in (1, 2, 3)]
    backward = [make_source(sweep, space, 4, []).propose(n) for n in (3, 2, 1)]
    assert forward == backward[::-1]
    listed = parse({"a": {"grid": [1, 2]}, "b": {"choice": ["x", "y"]}})
    grid = make_source(Sweep(space={}, searcher="grid"), listed, 4, [])
    assert [grid.propose(n) for n in (1, 4)] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_optuna_asks_for_conditional_keys_only_where_they_exist():
    sweep, space = settings()
    source = make_source(sweep, space, 1, [])
    seen = []
    for number in range(1, 31):
        params = source.propose(number)
        seen.append(params)
        assert ("strategy.lam" in params) == (params["strategy.name"] == "chip")
        source.learn(number, [0.5, 0.4, 0.1, 0.1])
    chips = [params for params in seen if params["strategy.name"] == "chip"]
    assert {params["strategy.alpha"] for params in chips} <= {0, 0.25, 0.5, 0.75, 1}
    assert {tuple(params["strategy.signature"]) for params in chips} == {("mean",), ("std",)}


def test_optuna_learns_and_receives_earlier_trials_of_a_resumed_sweep():
    sweep = Sweep(space={"a": {"uniform": [0, 1]}}, trials=9, objectives={"auroc": "max"})
    space = parse(sweep.space)

    def best_of_next_ten(earlier: list[Finished]) -> float:
        source = make_source(sweep, space, 0, earlier)
        return sum(abs(source.propose(100 + n)["a"] - 0.8) for n in range(10)) / 10

    earlier = [finished(n, {"a": n / 40}, -abs(n / 40 - 0.8)) for n in range(1, 40)]
    assert best_of_next_ten(earlier) < 0.6 * best_of_next_ten([])


BOUNDED = {
    "whole": {"randint": [2, 4]},
    "even": {"uniform": [-1, 3]},
    "log": {"loguniform": [1e-4, 1e4]},
    "step": {"quniform": [0, 1, 0.5]},
}


def test_optuna_s_random_trials_are_within_the_bounds_and_reach_them():
    """The upper end of whole numbers is left out. Half of a log-uniform range is below its geometric mean, 1."""
    space = parse(BOUNDED)
    seen = []
    for seed in range(12):
        source = make_source(Sweep(space=BOUNDED, trials=9), space, seed, [])
        seen += [source.propose(number) for number in range(1, 11)]
    assert {params["whole"] for params in seen} == {2, 3}
    assert {params["step"] for params in seen} == {0, 0.5, 1}
    even, log = ([params[key] for params in seen] for key in ("even", "log"))
    assert -1 <= min(even) < -0.8
    assert 2.8 < max(even) <= 3
    assert 1e-4 <= min(log) < 1e-3
    assert 1e3 < max(log) <= 1e4
    assert 40 < sum(value < 1 for value in log) < 80


def test_optuna_remembers_trials_under_the_bounds_of_the_space():
    """As it proposes them: it would not learn from a trial of another distribution."""
    space = parse(BOUNDED)
    sweep = Sweep(space=BOUNDED, trials=9, objectives={"auroc": "max"})
    asked = make_source(sweep, space, 0, [])
    asked.learn(1, [0.5]) if asked.propose(1) else None
    earlier = finished(1, {"whole": 3, "even": 2.5, "log": 0.1, "step": 0.5}, 0.8)
    resumed = make_source(sweep, space, 0, [earlier])
    (first,), (second,) = (source._study.trials for source in (asked, resumed))
    assert first.distributions == second.distributions
    assert second.params == earlier.params
    assert second.values == [0.8]
    bounds = {key: (d.low, d.high, d.log) for key, d in second.distributions.items()}
    assert bounds == {
        "whole": (2, 3, False),
        "even": (-1, 3, False),
        "log": (1e-4, 1e4, True),
        "step": (0, 1, False),
    }


def test_a_resumed_search_tries_nothing_again_and_goes_on_as_often_as_it_is_resumed():
    """Random draws come first, and depend on how many trials are known: those of one seed do not come back."""
    space = parse({"a": {"uniform": [0, 1]}})
    sweep = Sweep(space={"a": {"uniform": [0, 1]}}, trials=9, objectives={"auroc": "max"})
    tried: list[float] = []
    for _ in range(3):
        earlier = [finished(n, {"a": a}, 0.5) for n, a in enumerate(tried, 1)]
        source = make_source(sweep, space, 7, earlier)
        tried += [source.propose(len(earlier) + n)["a"] for n in (1, 2, 3)]
    assert len(set(tried)) == 9
    again = make_source(sweep, space, 7, [finished(n, {"a": a}, 0.5) for n, a in enumerate(tried[:3], 1)])
    assert [again.propose(n)["a"] for n in (4, 5, 6)] == tried[3:6], "the same from the same journal"


def test_optuna_remembers_every_kind_of_value():
    sweep, space = settings()
    earlier = [finished(n, make_source(sweep, space, n, []).propose(n), 0.8) for n in range(1, 12)]
    earlier.append(finished(12, {"strategy.name": "fedavg"}, math.nan))
    earlier.append(finished(13, {"strategy.name": "fedavg"}, 0.0, "failed"))
    source = make_source(sweep, space, 0, earlier)
    assert len(source._study.trials) == 11
    assert space.pick(lambda d: source.propose(50).get(d.key))


@pytest.mark.parametrize("values", [None, [math.nan, 0.4, 0.1, 0.1]])
def test_optuna_takes_a_failed_or_undefined_trial_for_failed(values):
    sweep, space = settings()
    source = make_source(sweep, space, 1, [])
    source.propose(1)
    source.learn(1, values)
    assert source._study.trials[0].state.name == "FAIL"


def test_one_seed_of_the_search_gives_one_sequence():
    sweep, space = settings()
    first, second = (make_source(sweep, space, 7, []) for _ in range(2))
    assert [first.propose(n) for n in (1, 2, 3)] == [second.propose(n) for n in (1, 2, 3)]


def test_ray_tune_gets_the_trials_that_are_left():
    sweep, space = settings("random")
    source = make_source(sweep, space, 1, [])
    learned = []
    source.learn = lambda number, values: learned.append((number, values))
    proposals = Proposals(source, [3, 5], ["auroc", "gini"])
    first, second = proposals.suggest("x"), proposals.suggest("y")
    assert isinstance(first, dict)
    assert first["trial"] == {"number": 3, "params": source.propose(3)}
    assert isinstance(second, dict)
    assert proposals.suggest("z") == Proposals.FINISHED
    proposals.on_trial_complete("y", {"auroc": 0.5, "gini": 0.1})
    proposals.on_trial_complete("x", {"failed": True})
    assert learned == [(5, [0.5, 0.1]), (3, None)]


def test_objectives_of_a_trial():
    sweep, _ = settings()
    assert objectives(finished(1, {}, 0.75), sweep) == [0.75, 0.65, 0.01, 0.1]
    assert objectives(finished(1, {}, 0.75, "failed"), sweep) is None
