"""Whose code a run that goes on takes: that of the folder where the command is typed, never that of a file's choice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysim.core import importing
from raysim.core.errors import ConfigError
from tests.storage.test_resume import SMALL, go_on, start, stopped

MINE = '''
from pathlib import Path
from dataclasses import dataclass

from raysim import Strategy

Path({mark!r}).touch()


@dataclass(frozen=True)
class Mine(Strategy):
    """The average, under a name of the user's."""
'''


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a stopped run whose strategy is a module beside it, and us in another folder."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir(), ours.mkdir()
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(theirs)
    (theirs / "strangers_module.py").write_text(MINE.format(mark=str(tmp_path / "mark")))
    tree = SMALL | {"strategy": {"class": "strangers_module.Mine"}, "tracking": {"uri": "none"}}
    stopped(monkeypatch, tree, "run", 5)
    _forget()
    (tmp_path / "mark").unlink()
    monkeypatch.chdir(ours)
    sys.path.remove(str(theirs))
    yield theirs
    _forget()


def _forget() -> None:
    sys.modules.pop("strangers_module", None)


def test_the_module_of_a_strangers_folder_is_refused_in_a_line_that_names_it(theirs: Path):
    with pytest.raises(ConfigError) as refused:
        go_on(theirs / "run")
    assert str(refused.value) == (
        f"strategy.class: 'strangers_module.Mine' cannot be imported: module 'strangers_module' lies in {theirs}, and "
        f"code is imported only from {os.getcwd()}, where the command was started, and from installed packages; check "
        f"that module, then run the command in {theirs}"
    )
    assert not (theirs.parent / "mark").exists()
    assert str(theirs) not in sys.path


def test_a_module_inside_the_folder_of_the_run_is_refused_too(theirs: Path):
    (theirs / "strangers_module.py").rename(theirs / "run" / "strangers_module.py")
    with pytest.raises(ConfigError, match=f"module 'strangers_module' lies in {theirs / 'run'}, and code"):
        go_on(theirs / "run")
    assert not (theirs.parent / "mark").exists()


def test_where_it_was_begun_it_goes_on(theirs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(theirs)
    assert "Mine resumes from round 4 of 7" in go_on("run")
    assert (theirs.parent / "mark").exists()


def test_a_module_of_ones_own_is_taken_and_never_theirs(theirs: Path):
    local_module = Path("strangers_module.py")
    local_module.write_text(MINE.format(mark=str(theirs.parent / "ours was taken")))
    assert "Mine resumes from round 4 of 7" in go_on(theirs / "run")
    assert (theirs.parent / "ours was taken").exists()
    assert not (theirs.parent / "mark").exists()


def test_an_empty_entry_of_the_search_path_does_not_lead_there(theirs: Path):
    """As ``python -c`` and notebooks have one, which means whichever folder is worked in."""
    sys.path.insert(0, "")
    with pytest.raises(ConfigError, match="module 'strangers_module' lies in"):
        go_on(theirs / "run")
    assert sys.path[0] == ""
    assert not (theirs.parent / "mark").exists()


def test_child_processes_receive_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    monkeypatch.chdir(here)
    with importing.standing_here([there]):
        monkeypatch.chdir(there)
        assert str(here) in importing.search_path()
        assert str(there) not in importing.search_path()
    assert str(there) in importing.search_path()


def test_without_a_class_any_run_goes_on(theirs: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as there:
        there.chdir(theirs)
        stopped(monkeypatch, SMALL | {"strategy": "local", "selection": "all", "tracking": {"uri": "none"}}, "plain", 5)
        start(SMALL | {"strategy": "local", "selection": "all", "tracking": {"uri": "none"}}, "whole")
    go_on(theirs / "plain")
    whole, plain = ((theirs / name / "models.safetensors").read_bytes() for name in ("whole", "plain"))
    assert whole == plain
