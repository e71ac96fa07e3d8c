"""A configuration is made once: complete, checked, immutable, and equal to what its own dump makes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from raysim.config import plugins
from raysim.config.reading import COMPARISON, compared, read_tree, resolve
from raysim.config.schema import Config
from raysim.core import registry
from raysim.core.errors import ConfigError

FRAME = pd.DataFrame({"age": [71]})

REQUIRED: dict[str, dict[str, Any]] = {
    "table": {"path": "t.csv", "silo": "site", "label": "died"},
    "yaib": {"path": "tables", "eicu": "eicu"},
}
"""What sources cannot do without, besides ``path``."""


def again(tree: dict[str, Any]) -> Config:
    """What is read of a dump."""
    loaded = yaml.safe_load(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    return resolve(loaded)


def others(name: str, value: Any) -> st.SearchStrategy[Any]:
    """Values that a key may also take, by what it is by default; many will be refused."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(1, 50)
    if isinstance(value, float):
        return st.floats(0.01, 0.99)
    return st.sampled_from([None, value, 1, 0.5, "rank", [1], ["labels"], {}])


@settings(max_examples=40)
@given(st.data())
def test_reading_a_run_s_configuration_again_gives_an_equal_one(data):
    tree: dict[str, Any] = {}
    for kind, section in (("strategies", "strategy"), ("selections", "selection"), ("models", "model")):
        name = data.draw(st.sampled_from(sorted(registry.entries(kind))), label=section)
        cls = registry.load(kind, name, section)
        defaults = {
            field.name: field.default if field.default is not dataclasses.MISSING else None
            for field in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
        }
        keys = data.draw(st.sets(st.sampled_from(sorted(defaults)), max_size=2)) if defaults else set()
        tree[section] = {"name": name} | {key: data.draw(others(key, defaults[key]), label=key) for key in sorted(keys)}
    source = data.draw(st.sampled_from(sorted(registry.entries("sources"))), label="source")
    fields = registry.load("sources", source, "data.source").model_fields
    tree["data"] = {"source": source} | REQUIRED.get(source, {"path": "there"} if "path" in fields else {})
    tree["seed"] = data.draw(st.integers(0, 2**63 - 1))
    try:
        config = resolve(tree)
    except ConfigError:
        assume(False)
    run = config.of_run(config.seed)
    assert again(run.frozen_run()) == run == config
    assert again(config.frozen()) == config


@pytest.mark.parametrize("kind", ["strategies", "selections", "models", "sources"])
def test_every_registered_plug_in_is_filled_in(kind):
    for name in registry.entries(kind):
        section, key = {"strategies": ("strategy", "name"), "sources": ("data", "source")}.get(
            kind, (kind.removesuffix("s"), "name")
        )
        fields = getattr(registry.load(kind, name, section), "model_fields", {})
        required = REQUIRED.get(name, {"path": "there"} if "path" in fields else {})
        config = resolve({section: {key: name, **required}})
        assert again(config.frozen()) == config


def test_figures_that_are_not_wanted_stay_out():
    config = resolve({"evaluation": {"clinical": None}})
    assert config.frozen()["evaluation"]["clinical"] is None
    assert again(config.frozen()) == config
    assert "groups" not in config.frozen()["evaluation"]


def test_own_keys_are_filled_in_and_a_key_that_is_unset_stays_unset():
    config = resolve({"strategy": {"name": "ditto", "epochs": None}, "model": "mlp"})
    assert config.strategy.options()["epochs"] is None
    assert config.strategy.options()["lam"] == 1.0
    assert plugins.build_strategy(again(config.frozen()).strategy) == plugins.build_strategy(config.strategy)
    assert "epochs: null" in yaml.safe_dump(config.frozen())
    assert config.model.options() == {"hidden": [256, 128]}
    model = resolve({"model": {"name": "text_lstm", "vocabulary": 9}}).model
    assert model.options() == {"vocabulary": 9, "dimension": 32}


def test_a_configuration_is_immutable_and_resolving_it_again_changes_nothing():
    config = resolve({"strategy": "fedprox"})
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3
    assert resolve(config) == config
    assert resolve(config, ["strategy.mu=1"]).strategy.options()["mu"] == 1.0
    assert resolve(config).model_fields_set == config.model_fields_set == {"strategy"}


def test_a_file_a_mapping_and_overrides_are_the_same(tmp_path: Path):
    tree = {"training": {"rounds": 3}, "model": {"name": "mlp", "hidden": [8]}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree))
    same = [tmp_path / "c.yaml", str(tmp_path / "c.yaml"), tree, resolve(tree)]
    assert all(resolve(source) == resolve(tree) for source in same)
    assert resolve(None, ["model=mlp", "model.hidden=[8]", "training.rounds=3"]) == resolve(tree)
    assert tree == {"training": {"rounds": 3}, "model": {"name": "mlp", "hidden": [8]}}


def test_a_run_reads_no_strategies_and_a_comparison_no_strategy():
    broken = {"name": "chip", "lam": -1}
    assert resolve({"strategies": [broken]}).strategy.name == "fedavg"
    assert resolve({"strategy": broken}, reads=COMPARISON).reference == "fedavg"
    with pytest.raises(ConfigError, match=r"^strategies.0.lam: -1.0 is not at least 0"):
        resolve({"strategies": [broken]}, reads=COMPARISON)
    with pytest.raises(ConfigError, match=r"^strategy.lam: -1.0 is not at least 0"):
        resolve({"strategy": broken})


def test_a_strategy_that_is_taken_from_elsewhere_brings_its_training_selection_and_model(tmp_path: Path):
    data = {"hospitals": 6, "rows": 300}
    other = {"data": data, "training": {"rounds": 9}, "model": "mlp", "strategy": {"name": "fedprox", "mu": 2}}
    (tmp_path / "o.yaml").write_text(yaml.safe_dump(other))
    taken = {"from": str(tmp_path / "o.yaml"), "label": "tuned"}
    alone = resolve({"data": data, "strategy": taken})
    first, second = compared(resolve({"data": data, "strategies": ["local", taken]}, reads=COMPARISON))
    assert (first.strategy.name, first.training.rounds, first.model.name) == ("local", 50, "logistic_regression")
    for config in (alone, second):
        strategy = config.strategy
        assert (strategy.name, strategy.label, strategy.options()["mu"]) == ("fedprox", "tuned", 2.0)
        assert (config.training.rounds, config.model.name) == (9, "mlp")
        assert again(config.of_run(3).frozen_run()).strategy == config.strategy
    assert alone == second.replaced(strategies=alone.strategies)


@pytest.mark.parametrize("section", [{"privacy": {"unit": "patient", "epsilon": 1}}, {"secure": {}}])
def test_no_guarantee_of_a_strategy_from_elsewhere_is_lost_in_silence(section, tmp_path: Path):
    data = {"hospitals": 6, "rows": 300}
    (tmp_path / "o.yaml").write_text(yaml.safe_dump({"data": data, **section}))
    taken = {"from": str(tmp_path / "o.yaml"), "label": "tuned"}
    (name,) = section
    with pytest.raises(
        ConfigError, match=rf"^strategies.0.from: .*o.yaml has its own section {name}, but all strategi"
    ):
        compared(resolve({"data": data, "strategies": [taken]}, reads=COMPARISON))
    (config,) = compared(resolve({"data": data, "strategies": [taken], **section}, reads=COMPARISON))
    assert getattr(config, name) is not None


def test_what_a_comparison_alone_reads_is_not_in_a_run_s_configuration():
    config = resolve({"seeds": [1, 2], "strategies": ["local"], "reference": "local"})
    run = config.of_run(2)
    assert run.seed == 2
    assert not {"seeds", "strategies", "reference"} & run.frozen_run().keys()
    assert (run.seeds, run.reference, run.strategies) == ((), "fedavg", resolve().strategies)


def test_a_tree_is_read_before_it_is_checked():
    assert read_tree({"sweep": {"trials": 3}}, ["sweep.trials=4"]) == {"sweep": {"trials": 4}}


@pytest.mark.parametrize("source", [5, ["a.yaml"], True, FRAME])
def test_what_is_no_configuration_is_named(source):
    with pytest.raises(ConfigError, match=r"^config: .* is neither a path nor keys and values; give a YAML file or a"):
        read_tree(source)


@pytest.mark.parametrize(
    "tree",
    [{"data": FRAME}, {"data": {"source": FRAME}}, {"strategy": FRAME}, {"seed": FRAME}, {"seeds": [FRAME]}],
    ids=["section", "source", "strategy", "seed", "in a list"],
)
def test_an_error_names_what_a_data_frame_is_and_not_what_it_holds(tree):
    """Its text would show rows of patients."""
    with pytest.raises(ConfigError) as refused:
        resolve(tree)
    (line,) = str(refused.value).splitlines()
    assert "a DataFrame" in line
    assert "71" not in line
