"""A small sweep that tests share, on a small synthetic federation in a cache of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysim.config.schema import Config
from raysim.tune.plan import SweepPlan, make_plan

Tree = dict[str, Any]

SMALL: Tree = {
    "name": "small",
    "seed": 3,
    "data": {
        "source": "synthetic",
        "hospitals": 12,
        "rows": 900,
        "split": {"train": 0.6, "validation": 0.2, "test": 0.2, "seed": 1},
    },
    "model": {"name": "logistic_regression", "init": "zeros"},
    "training": {"rounds": 3, "batch_size": 64, "learning_rate": 0.1},
    "selection": {"name": "all"},
    "strategy": {"name": "chip", "clusters": 2},
    "tracking": {"uri": "none"},
    "resources": {"hospitals_per_actor": 6},
    "sweep": {
        "trials": 4,
        "searcher": "random",
        "space": {"strategy.lam": {"loguniform": [0.01, 1]}, "strategy.alpha": {"uniform": [0, 1]}},
    },
}


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of federations for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSIM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def small() -> Callable[..., Tree]:
    """A function that gives the small sweep's tree, with ``section__key=value`` changes."""
    return small_tree


def small_tree(**changes: Any) -> Tree:
    tree = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return tree


@pytest.fixture
def plan() -> tuple[SweepPlan, Config]:
    """The small sweep, checked."""
    return make_plan(small_tree())


@pytest.fixture
def sweep_file(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes the small sweep, with changes, and gives its path."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump(small_tree(**changes)))
        return path

    return write
