"""Every strategy with every section that concerns it: a run starts, or one line says why not, before anything starts.

Combinations are checked against the data; a few are run.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raysim.config import reading
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.sources.synthetic_features import FEATURES
from raysim.experiment import idle_keys
from raysim.experiment.runs import Experiment

NAMES = sorted(registry.entries("strategies"))
COLUMNS = [feature[0] for feature in FEATURES[:4]]
DATA = {"source": "synthetic", "hospitals": 8, "rows": 600, "features": 4}
BASE = {
    "name": "walk",
    "data": DATA | {"split": {"train": 0.6, "validation": 0.2, "test": 0.2}},
    "tracking": {"uri": "none"},
}
NOISE = {"noise_multiplier": 1.0, "delta": 1e-3, "clip": 1.0}
PATIENTS = {"unit": "patient", "mode": "pooled", "declared_public": ["sizes", "metrics", "preprocessing"]}
SECTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "secure": {"secure": {"minimum": 3}},
    "hospitals": {"privacy": NOISE | {"unit": "hospital"}},
    "patients": {"privacy": NOISE | PATIENTS, "data": {"split": {"independent": True}}},
    "compression": {"compression": {"name": "grid"}},
    "stop": {"training": {"stop": {"patience": 1}}},
    "groups": {"evaluation": {"groups": ["age"]}},
    "unseen": {"evaluation": {"unseen": {"folds": 2}}},
    "personalization": {"strategy": {"personalization": {"epochs": 1}}},
    "virtual time": {"system": {"rows_per_second": 100}},
    "adversary": {"adversary": {"attack": "label_flip", "share": 0.3}},
    "rule": {"aggregation": {"name": "median"}},
}
NEEDED: dict[str, dict[str, Any]] = {
    "fairfed": {"strategy": {"attribute": "ethnicity", "privileged": "Caucasian"}},
    "random_trees": {"data": {"preprocessing": "declared", "ranges": {key: [-1000, 1000] for key in COLUMNS}}},
}
"""What strategies need on these data."""
MODELS: tuple[dict[str, Any], ...] = (
    {"name": "logistic_regression"},
    {"name": "mlp", "hidden": [3]},
    {"name": "boosted_trees", "depth": 2, "min_rows": 10},
    {"class": "tests.training.families.Normed"},
)
RUNS = {("rfa", "secure"), ("apfl", "virtual time"), ("own_intercepts", "groups"), ("fedsam", "adversary")}


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both trees in one."""
    both = dict(one)
    for key, value in other.items():
        both[key] = merged(both[key], value) if isinstance(value, dict) and key in both else value
    return both


def asked(name: str, model: dict[str, Any], section: str, out: Path) -> Experiment:
    """The checked experiment of a strategy with a section, before anything is run."""
    kind = registry.load("strategies", name, "")
    strategy: dict[str, Any] = {"name": name}
    if section == "hospitals" and "weights" in kind.__dataclass_fields__:
        strategy["weights"] = "uniform"
    rounds = {} if "rounds" in kind().unused_training() else {"rounds": 2}
    tree: dict[str, Any] = BASE | {"strategy": strategy, "model": model, "training": rounds}
    tree = merged(merged(tree, NEEDED.get(name, {})), SECTIONS[section])
    if section != "unseen":
        config = reading.resolve(tree)
        idle_keys.check_run(config)
        return Experiment(config, [config], [config.seed], out)
    tree |= {"strategies": [tree.pop("strategy")], "seeds": [1], "reference": name}
    return Experiment.comparing(reading.resolve(tree), out)


def fitting_model(name: str, out: Path) -> dict[str, Any]:
    """The first model that fits a strategy."""
    lines = []
    for model in MODELS:
        try:
            asked(name, model, "nothing", out)
        except ConfigError as error:
            lines.append(str(error))
        else:
            return model
    raise AssertionError(lines)


@pytest.mark.parametrize("name", NAMES)
def test_a_combination_starts_or_is_refused_in_a_line(name: str, tmp_path: Path):
    model = fitting_model(name, tmp_path / "out")
    lines = []
    for section in SECTIONS:
        try:
            experiment = asked(name, model, section, tmp_path / section)
        except ConfigError as error:
            lines.append(str(error))
            continue
        if (name, section) in RUNS:
            experiment.run(Console(file=io.StringIO()), in_process=True, verbose=False)
    assert all(re.fullmatch(r"[a-z_.]+: .+; .+", line) for line in lines), lines
    assert len(lines) < len(SECTIONS) - 1
