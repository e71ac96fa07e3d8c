"""Where a user's own code is looked for, and which ends of a process are a plug-in's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysim.core import importing


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory ``here`` with a module, beside a folder ``there`` with another one."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(importing, "_standing", None)
    monkeypatch.setattr(importing, "_strange", ())
    for folder, module in (("here", "module_here"), ("there", "module_there")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{module}.py").write_text("value = 7\n")
    (tmp_path / "there" / "package_there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "here"
    for name in ("module_here", "module_there", "package_there"):
        sys.modules.pop(name, None)


def test_the_end_of_a_process_is_a_plug_ins_where_it_is_plain_and_carries_nothing():
    class Ours(SystemExit):
        pass

    noted = SystemExit(3)
    noted.add_note("of Ray")
    assert [importing.ended_by_plugin(error) for error in (SystemExit(), SystemExit(3), Ours(), noted)] == [
        True,
        True,
        False,
        False,
    ]
    ours = Ours()
    ours.add_note("of ours")
    assert not importing.ended_by_plugin(ours)
    assert [importing.exit_call(SystemExit(*codes)) for codes in ((), (0,), ("no",))] == [
        "called sys.exit()",
        "called sys.exit(0)",
        "called sys.exit('no')",
    ]


def test_modules_of_the_working_directory_are_looked_for_last(here: Path):
    (here / "json.py").write_text("value = 8\n")
    before = [*sys.path]
    assert importing.by_path("module_here.value") == 7
    assert sys.path == [*before, str(here)]
    importing.by_path("module_here.value")
    assert sys.path == [*before, str(here)]
    with pytest.raises(ValueError, match=r"'json.value' cannot be imported \(module 'json' in .* has no 'value'\)"):
        importing.by_path("json.value")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("lone", r"'lone' cannot be imported \(it names no module\); write package\.module\.name"),
        ("module_here.other", r"\(module 'module_here' in .*module_here\.py has no 'other'\)"),
        ("sys.other", r"\(module 'sys' in Python itself has no 'other'\)"),
        (
            "module_there.value",
            r"\(ModuleNotFoundError: No module named 'module_there'\); run the command where it can be imported",
        ),
    ],
)
def test_what_is_not_there_is_said(here: Path, path: str, message: str):
    with pytest.raises(ValueError, match=message):
        importing.by_path(path)


def test_a_module_that_lies_in_a_strange_folder_is_said_to(here: Path):
    there = here.parent / "there"
    with importing.standing_here([there.parent, there]):
        for name, module in (("module_there.value", "module_there"), ("package_there.part.value", "package_there")):
            with pytest.raises(ValueError, match=rf"module '{module}' lies in {there}, and code .* from {here}"):
                importing.by_path(name)
        with pytest.raises(ValueError, match="run the command where it can be imported"):
            importing.by_path("module_nowhere.value")
        (here / "module_nameless.py").write_text("raise ModuleNotFoundError('something')\n")
        with pytest.raises(ValueError, match="ModuleNotFoundError: something"):
            importing.by_path("module_nameless.value")


def test_who_stands_here_looks_here_wherever_it_works_and_leaves_no_trace(here: Path, monkeypatch: pytest.MonkeyPatch):
    there = here.parent / "there"
    sys.path.insert(0, "")
    before = [*sys.path]
    with importing.standing_here([here, there]):
        assert importing._strange == (there,)
        assert sys.path[0] == str(here)
        monkeypatch.chdir(there)
        assert importing.by_path("module_here.value") == 7
        with pytest.raises(ValueError, match="lies in"):
            importing.by_path("module_there.value")
    assert sys.path == before
    assert (importing._standing, importing._strange) == (None, ())


def test_other_processes_look_in_the_folders_that_are_there(here: Path):
    sys.path += ["/no/such/folder", str(here.parent)]
    folders = importing.search_path()
    assert "/no/such/folder" not in folders
    assert folders[-2:] == (str(here.parent), str(here))
    assert len(set(folders)) == len(folders)
    assert all(os.path.isabs(folder) for folder in folders)
    importing.search_only([str(here.parent / "there")])
    assert sys.path[-1] == str(here.parent / "there")
    assert importing.search_path()[-1] == str(here.parent / "there")
    assert str(here) not in importing.search_path()
    assert importing.by_path("module_there.value") == 7


def test_an_exit_of_a_module_is_reported_and_one_for_the_process_goes_on(here: Path):
    (here / "module_leaving.py").write_text("raise SystemExit(3)\n")
    (here / "module_ended.py").write_text("error = SystemExit(4)\nerror.marked = True\nraise error\n")
    with pytest.raises(ValueError, match=r"module 'module_leaving' called sys.exit\(3\)"):
        importing.by_path("module_leaving.value")
    with pytest.raises(SystemExit) as ended:
        importing.by_path("module_ended.value")
    assert ended.value.code == 4
