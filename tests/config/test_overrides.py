"""``--set``: every plug-in's section by name alone, sections before what is in them, and errors that name the key."""

from __future__ import annotations

from itertools import permutations

import pytest

from raysim.config.overrides import laid_over, parsed
from raysim.config.reading import resolve
from raysim.core.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "section", "keys"),
    [
        (["model=mlp", "model.hidden=[8]"], "model", {"hidden": [8]}),
        (["selection=uniform", "selection.fraction=0.5", "selection.minimum=3"], "selection", {"fraction": 0.5}),
        (["strategy=fedprox", "strategy.mu=2", "strategy.label=proximal"], "strategy", {"mu": 2.0}),
        (["data=digits", "data.clients=7", "data.split.train=0.7", "data.split.test=0.3"], "data", {"clients": 7}),
        (["data.source=digits", "data.clients=7", "data.partition.alpha=1"], "data", {"clients": 7}),
    ],
)
def test_the_order_of_settings_makes_no_difference(settings, section, keys):
    configs = [resolve(None, order) for order in permutations(settings)]
    assert all(config == configs[0] for config in configs)
    assert keys.items() <= getattr(configs[0], section).options().items()


def test_the_last_of_a_key_counts_and_a_name_replaces_what_the_file_says():
    assert parsed(["seed=1", "seed=2"]) == {"seed": 2}
    config = resolve({"strategy": {"name": "chip", "clusters": 3}}, ["strategy=fedavg"])
    assert (config.strategy.name, "clusters" in config.strategy.options()) == ("fedavg", False)


def test_a_dotted_key_of_a_search_space_is_one_key():
    tree = {"sweep": {"searcher": "grid", "space": {"training.rounds": {"grid": [1]}}}}
    values = parsed(["sweep.space.privacy.epsilon={grid: [1, 2]}", "sweep.trials=3"])
    assert laid_over(tree, values, "--set ")["sweep"] == {
        "searcher": "grid",
        "trials": 3,
        "space": {"training.rounds": {"grid": [1]}, "privacy.epsilon": {"grid": [1, 2]}},
    }


def test_a_name_in_the_file_and_its_keys_in_settings():
    assert resolve({"model": "mlp"}, ["model.hidden=[4]"]).model.options() == {"hidden": [4]}
    assert resolve({"system": None}, ["system.dropout=0.1"]).system.dropout == 0.1


def test_a_tree_is_not_changed_by_what_is_laid_over_it():
    tree = {"training": {"rounds": 3}, "model": "mlp"}
    assert laid_over(tree, {"training.rounds": 4, "model.hidden": [2]}, "") == {
        "training": {"rounds": 4},
        "model": {"name": "mlp", "hidden": [2]},
    }
    assert tree == {"training": {"rounds": 3}, "model": "mlp"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.hiden=[8]", "model=mlp"], "model.hiden: is not an option of MLP; did you mean 'hidden'?"),
        (["strategy.mu=x", "strategy=fedprox"], "strategy.mu: 'x' is not a number"),
        (
            ["seed.x=1", "seed=3"],
            "--set seed.x: is a key inside 'seed', which already has the value 3; keep one of the two",
        ),
        (["a..b=1"], "--set: 'a..b=1' is not key=value; write for example training.rounds=5"),
        (["model"], "--set: 'model' is not key=value"),
        (["name=[1"], "--set name: '[1' is not a YAML value; quote it"),
        (["training.rounds.x=1"], "training.rounds: {x: 1} is not a whole number"),
    ],
)
def test_what_cannot_be_set_is_named(settings, said):
    with pytest.raises(ConfigError) as error:
        resolve(None, settings)
    assert str(error.value).startswith(said)
