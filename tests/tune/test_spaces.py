"""Search spaces: values, conditions, grids, and how they meet the configuration."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from raysim.config.overrides import laid_over
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.tune.spaces import parse

KINDS = {
    "a": {"uniform": [-1, 2]},
    "b": {"loguniform": ["1e-3", 10]},  # as YAML reads 1e-3
    "c": {"quniform": [0.05, 0.52, 0.1]},
    "d": {"qloguniform": [16, 1024, 16]},
    "e": {"randint": [2, 12]},
    "f": {"choice": ["x", [1, 2], None]},
    "g": {"grid": [1, 2, 3]},
}


@given(st.floats(0, 1, exclude_max=True))
def test_every_value_lies_in_its_range(u):
    by_key = {dimension.key: dimension.at(u) for dimension in parse(KINDS)}
    assert -1 <= by_key["a"] <= 2
    assert 1e-3 <= by_key["b"] <= 10
    assert by_key["c"] in (0.1, 0.2, 0.3, 0.4, 0.5)
    assert by_key["d"] in range(16, 1025, 16)
    assert isinstance(by_key["d"], int)
    assert by_key["e"] in range(2, 12)
    assert by_key["f"] in ("x", [1, 2], None)
    assert by_key["g"] in (1, 2, 3)


def test_middles_are_where_they_should_be():
    by_key = {dimension.key: dimension for dimension in parse(KINDS)}
    assert by_key["a"].at(0.5) == 0.5
    assert by_key["b"].at(0.5) == pytest.approx(math.sqrt(1e-3 * 10))
    assert by_key["e"].at(0.5) == 7
    assert by_key["f"].at(0.5) == [1, 2]


def test_draws_depend_on_seed_and_number_alone_and_not_on_other_keys():
    space = parse(KINDS)
    assert space.draw(1, 7) == space.draw(1, 7)
    assert space.draw(1, 7) != space.draw(1, 8)
    assert space.draw(1, 7) != space.draw(2, 7)
    assert parse({"b": KINDS["b"]}).draw(1, 7)["b"] == space.draw(1, 7)["b"]


def test_long_names_draw_apart_and_short_ones_from_the_stream_of_their_name():
    long = "model." + "x" * 60
    names = [f"{long}_a", f"{long}_b", "strategy.lam"]
    drawn = parse({name: {"uniform": [0, 1]} for name in names}).draw(3, 5)
    assert drawn[names[0]] != drawn[names[1]]
    assert drawn["strategy.lam"] == stream(3, "sweep strategy.lam", 5).random()


def test_uniform_draws_fill_the_range():
    values = sorted(parse({"a": {"uniform": [0, 1]}}).draw(0, n)["a"] for n in range(200))
    assert max(abs(value - (i + 0.5) / 200) for i, value in enumerate(values)) < 0.12  # Kolmogorov, p < 1e-2


CONDITIONAL = {
    "strategy.clusters": {"randint": [2, 4], "when": {"strategy.name": "chip"}},
    "strategy.mu": {"grid": [0, 1], "when": {"strategy.name": ["chip", "fedprox"]}},
    "strategy.name": {"choice": ["chip", "fedprox", "fedavg"]},
}


def test_conditional_keys_exist_only_under_their_condition():
    space = parse(CONDITIONAL)
    for number in range(1, 40):
        params = space.draw(5, number)
        assert ("strategy.clusters" in params) == (params["strategy.name"] == "chip")
        assert ("strategy.mu" in params) == (params["strategy.name"] != "fedavg")
    assert next(iter(space)).key == "strategy.name"  # conditions look back


def test_a_grid_has_every_combination_once():
    combinations = parse(CONDITIONAL).grid()
    assert len(combinations) == 2 * 2 + 2 + 1  # chip, fedprox, fedavg
    assert len({repr(params) for params in combinations}) == 7
    with pytest.raises(ConfigError, match=r"sweep.space.a: uniform has infinitely many values, which searcher"):
        parse(KINDS).grid()


def test_a_grid_takes_every_step_of_a_range():
    space = {"a": {"quniform": [0.05, 0.52, 0.2]}, "b": {"quniform": [0.5, 1.4, 1]}, "c": {"randint": [3, 5]}}
    assert parse(space).grid() == [{"a": a, "b": 1, "c": c} for a in (0.2, 0.4) for c in (3, 4)]


@pytest.mark.parametrize(
    "space",
    [
        {"a": {"randint": [0, 10**12]}},
        {"a": {"quniform": [0, 1e9, 1e-6]}},
        {name: {"grid": [*range(100)]} for name in "abcdefgh"},
    ],
)
def test_a_grid_that_no_memory_holds_is_refused_before_it_is_made(space):
    with pytest.raises(ConfigError, match=r"sweep.space: has more than 100,000 combinations for searcher grid"):
        parse(space).grid()


def test_grids_take_turns_in_a_random_search():
    space = parse({"a": {"uniform": [0, 1]}, "g": {"grid": [1, 2]}, "h": {"grid": ["x", "y", "z"]}})
    seen = [tuple(space.draw(0, n)[key] for key in ("g", "h")) for n in range(1, 13)]
    assert sorted(seen) == sorted(2 * [(g, h) for g in (1, 2) for h in "xyz"])


def test_corners_try_both_ends_where_they_exist():
    corners = list(parse(CONDITIONAL).corners())
    assert ("strategy.clusters", {"strategy.name": "chip", "strategy.clusters": 3, "strategy.mu": 0}) in corners
    assert ("strategy.name", {"strategy.name": "fedavg"}) in corners


def test_values_go_to_their_place_and_the_base_stays():
    base = {"strategy": "chip", "training": {"rounds": 2}}
    tree = laid_over(base, {"strategy.personalization.epochs": 3, "training.rounds": 5, "strategy.lam": 1.0}, "")
    assert tree == {
        "strategy": {"name": "chip", "personalization": {"epochs": 3}, "lam": 1.0},
        "training": {"rounds": 5},
    }
    assert base == {"strategy": "chip", "training": {"rounds": 2}}
    whole = laid_over({"strategy": "chip"}, {"strategy.label": "x", "strategy": {"name": "fedprox", "mu": 1}}, "")
    assert whole["strategy"] == {"name": "fedprox", "mu": 1, "label": "x"}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "names no key to search"),
        ({"a": 3}, "3 is not one distribution; write one of uniform"),
        ({"a": {"unifrom": [0, 1]}}, "'unifrom' is not a distribution; did you mean 'uniform'?"),
        ({"a": {"uniform": 3}}, "3 is not a list"),
        ({"a": {"uniform": [0]}}, r"\[0\] is not \[low, high\]"),
        ({"a": {"quniform": [0, 1]}}, r"is not \[low, high, step\]"),
        ({"a": {"uniform": ["x", 1]}}, "'x' is not a finite number"),
        ({"a": {"uniform": [0, float("inf")]}}, "inf is not a finite number"),
        ({"a": {"uniform": [1, 1]}}, r"the lower end 1 is not below the upper end 1; correct"),
        ({"a": {"randint": [3, 3]}}, r"\[3, 3\] is empty, because the upper end is excluded"),
        ({"a": {"randint": [0.5, 3]}}, "0.5 is not a whole number"),
        ({"a": {"loguniform": [0, 1]}}, "0 has no logarithm; start above 0"),
        ({"a": {"qloguniform": [-1, 1, 1]}}, "-1 has no logarithm"),
        ({"a": {"quniform": [0, 1, 0]}}, "step 0 is not greater than 0"),
        ({"a": {"quniform": [0.1, 0.2, 3]}}, "no multiple of 3 lies between"),
        ({"a": {"choice": []}}, "is empty; list at least one value"),
        ({"a": {"choice": [1], "when": {"b": 1}}}, "'b' is not another key of this space"),
        ({"a": {"choice": [1], "when": 3}}, "3 is not keys and values"),
        ({"a": {"choice": [1], "when": {"b": 3}}, "b": {"choice": [1, 2]}}, r"3 is not one of its values; name one of"),
        (
            {"a": {"choice": [1], "when": {"b": 3}}, "b": {"uniform": [1, 5]}},
            "the key is searched by uniform, which almost never gives one of the values of the condition",
        ),
        (
            {"a": {"choice": [1], "when": {"b": 1}}, "b": {"choice": [1], "when": {"a": 1}}},
            "a and b depend on each other",
        ),
        ({"data.hospitals": {"choice": [1]}}, "'data' is the same for all trials"),
        ({"checkpoint.every": {"choice": [1]}}, "'checkpoint' is the same for all trials: trials have no checkpoints"),
        ({"seed": {"choice": [1]}}, "'seed' is the same for all trials: set seeds"),
    ],
)
def test_a_space_that_cannot_be_searched_is_one_line(space, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse(space)
    assert str(caught.value).startswith("sweep.space")
    assert "\n" not in str(caught.value)


def test_listed_numbers_with_an_exponent_are_numbers_as_bounds_are() -> None:
    written = """
    training.learning_rate: {grid: [1e-3, 1E-2, 0.1]}
    strategy.name: {choice: [fedavg, 3e]}
    strategy.mu: {uniform: [1e-3, 1], when: {training.learning_rate: [1e-3, 1e-2]}}
    """
    space = parse(yaml.safe_load(written))
    rate, name, mu = space.dimensions
    assert rate.values == (0.001, 0.01, 0.1)
    assert all(isinstance(value, float) for value in rate.values)
    assert name.values == ("fedavg", "3e")
    assert mu.when == {"training.learning_rate": (0.001, 0.01)}
