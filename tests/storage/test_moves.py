"""Modules that move: what a run has left goes on under the registered name, wherever the code now lies."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.core import installed, registry
from raysim.data import cache
from raysim.engine.packing import pack_state, unpack_state
from raysim.storage.encoding import decode
from raysim.strategies.base import Strategy
from tests.storage.test_resume import FILES, SMALL, go_on, start, stopped

MINE = '''
from dataclasses import dataclass, field, replace

import numpy as np

from raysim import Strategy
from raysim.data.sources.synthetic import Synthetic
from raysim.strategies.base import State


@dataclass(frozen=True, eq=False)
class Rate:
    value: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Slowing(State):
    rate: Rate = field(default_factory=lambda: Rate(1.0))


@dataclass(frozen=True)
class Slower(Strategy):
    """Steps that become shorter: what the state holds decides the result."""

    def setup(self, view):
        return Slowing(models=view.initial[None, :].copy())

    def aggregate(self, view, state, update):
        assert isinstance(state, Slowing)
        step = state.rate.value * update.sums
        return replace(state, models=state.models + step, rate=Rate(0.5 * state.rate.value))


class Rows(Synthetic):
    """The synthetic federation under another name."""
'''

POINTS = "[raysim.strategies]\nslower = {module}:Slower\n\n[raysim.sources]\nrows = {module}:Rows\n"

Move = Callable[..., None]


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Move]:
    """Puts the module of a package that registers a strategy and a source in some place, and there alone."""
    packages = tmp_path / "packages"
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def to(module: str, text: str = MINE) -> None:
        shutil.rmtree(packages, ignore_errors=True)
        path = packages.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True)
        path.write_text(text)
        described = packages / "package-1.dist-info"
        described.mkdir()
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: package\nVersion: 1\n")
        (described / "entry_points.txt").write_text(POINTS.format(module=module))
        for name in [name for name in sys.modules if name.split(".")[0] in ("first", "second")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        forget_installed()

    yield to
    forget_installed()


def forget_installed() -> None:
    """Have a process look again at what is installed."""
    installed._all_entry_points.cache_clear()
    registry.entries.cache_clear()


TREE = SMALL | {
    "data": {**SMALL["data"], "source": "rows"},
    "strategy": "slower",
    "tracking": {"uri": "none"},
}


def test_a_stopped_run_goes_on_after_the_modules_of_its_strategy_and_its_data_have_moved(move, monkeypatch):
    move("first")
    start(TREE, "whole")
    stopped(monkeypatch, TREE, "stopped", 5)
    move("second.inside.place", MINE + "# a module that moves imports others by other names\n")
    assert "slower resumes from round 4 of 7" in go_on("stopped")
    for name in FILES:
        assert Path("whole", name).read_bytes() == Path("stopped", name).read_bytes(), name


def test_what_has_been_built_is_found_after_a_move(move, tmp_path: Path):
    keys = []
    for module in ("first", "second.place"):
        move(module)
        source = registry.load("sources", "rows", "data.source")(hospitals=3, rows=90)
        keys.append(cache.source_key(source, []))
    assert keys[0] == keys[1]
    path = tmp_path / "packages" / "second" / "place.py"
    path.write_text(path.read_text() + "# read differently\n")
    assert cache.source_key(source, []) != keys[0]  # no entry outlives the program that made it


def test_a_class_that_is_not_registered_is_named_by_its_import_path(move, monkeypatch):
    move("first")
    monkeypatch.setitem(TREE, "strategy", {"class": "first.Unlisted"})
    Path("packages/first.py").write_text(MINE + "\n\nclass Unlisted(Slower):\n    pass\n")
    stopped(monkeypatch, TREE, "stopped", 5)
    strategy = registry.load_class("first.Unlisted", "strategy.class")()
    content = next(Path("stopped/checkpoints").glob("round-000004*")).read_bytes()
    assert b"first.Slowing" in content
    assert type(decode(content, strategy)[0].state).__name__ == "Slowing"
    assert "resumes from round 4 of 7" in go_on("stopped")


def test_the_state_nearest_to_the_strategy_is_meant(move):
    """Two strategies may call their states the same."""
    made = {}
    for module in ("first", "second.place"):
        move(module)
        made[module] = importlib.import_module(module)
    strategy = made["second.place"].Slower()
    state = made["second.place"].Slowing(models=np.zeros((1, 2)))
    arrays: dict[str, Any] = {}
    packed = pack_state(state, arrays, strategy)
    assert (packed["strategy"], packed["class"]) == ("slower", "Slowing")
    assert type(unpack_state(packed, arrays, strategy)) is made["second.place"].Slowing
    with pytest.raises(ValueError, match="of the strategy 'slower', which is not the configured one"):
        unpack_state(packed, arrays, Strategy())
