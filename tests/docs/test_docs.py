"""The documentation does what it says: its files are written and its commands run, in the order of each page.

A fenced block with ``title=NAME`` is a file; ``console`` blocks are commands, a line each after ``$``. Commands run
without Ray where they can, which gives the same results sooner, and sweeps on one that stands. Comparisons have one
seed, but for the first that a reader meets, which has two; runs have at most :data:`ROUNDS` rounds, and those of the
whole synthetic federation a :data:`SMALL` one.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from raysim.core import registry
from raysim.core.installed import is_own, registered
from tests.commands import in_a_process, raysim
from tests.conftest import empty_store, standing_ray

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = {
    "strategies": "strategies.md",
    "selections": "strategies.md",
    "models": "models.md",
    "sources": "data.md",
}  # where everything of a kind is listed
ELSEWHERE = ("make", "mlflow", "pre-commit")  # other tests, or a browser, see to these
TWO_SEEDS = ("first.yaml",)  # what a second seed adds to a page
ROUNDS = 2
SMALL = ("data.hospitals=20", "data.rows=2000")
READERS_OWN = ("my.yaml",)  # files that only the reader has


SWEEPS = ROOT / "docs" / "sweeps.md"


@pytest.mark.documentation
@pytest.mark.parametrize("page", [page for page in PAGES if page != SWEEPS], ids=lambda page: page.stem)
def test_every_block_works(page: Path, tmp_path: Path) -> None:
    try_page(page, tmp_path, {})


@pytest.mark.documentation
@pytest.mark.xdist_group("sweeps")
@pytest.mark.usefixtures("ray_here")
def test_every_block_about_sweeps_works(tmp_path: Path) -> None:
    try_page(SWEEPS, tmp_path, standing_ray())


def try_page(page: Path, folder: Path, environment: dict[str, str]) -> None:
    """Write the files of a page into ``folder`` and run its commands there."""
    for language, title, text in BLOCK.findall(page.read_text()):
        if title:
            (folder / title).write_text(text)
        if language == "yaml":
            yaml.safe_load(text)
        elif language == "python":
            compile(text, title or str(page), "exec")
        elif language == "console":
            for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                try_out(line, folder, environment)


def try_out(line: str, folder: Path, environment: dict[str, str]) -> None:
    """Run a command of the documentation in ``folder``."""
    command = shlex.split(line)
    if command[0] in ELSEWHERE or set(READERS_OWN) & set(command):
        return
    if command[:3] == ["python", "-m", "pytest"]:
        tested = in_a_process(run_tests, [*command[3:], f"--rootdir={folder}"], folder, {})
        assert tested.code == 0, tested.out + tested.err
        return
    if command[0] == "python":
        ended = in_a_process(run_script, command[1:], folder, {})
        assert ended.code == 0, ended.out + ended.err
        return
    assert command[0] == "raysim", line
    if command[1] in ("run", "compare", "curve"):
        command.append("--in-process")
    if command[1] == "compare":
        seeds = [1, 2] if command[2] in TWO_SEEDS else [1]
        if "split: {folds:" in (folder / command[2]).read_text():  # which need a seed each
            command += ["--set", "data.split.folds=2"]
            seeds = [0, 1]
        command += ["--set", f"seeds={seeds}"]
    if command[1] in ("run", "compare"):
        tree = yaml.safe_load((folder / command[2]).read_text())
        asked = tree.get("training", {}).get("rounds", 0)
        command += ["--set", f"training.rounds={ROUNDS}"] if asked > ROUNDS else []
        command += [f"--set={each}" for each in SMALL if tree["data"] == "synthetic"]
    if command[1] == "study":
        command += ["--set", "study.seeds=[0, 1]", "--set", "study.clients=[5]"]
    if command[1] == "sweep":  # with fewer processes, each of which first imports for seconds
        command += ["--set", "sweep.concurrent=1", "--set", "resources.runs_at_once=1"]
        command += ["--set", "resources.hospitals_per_actor=20"]
        command += ["--set", "sweep.trials=2", "--set", "seeds=[1]"]
    empty_store(folder)
    done = raysim(command[1:], folder, {"RAYSIM_CACHE": str(folder / "cache")} | environment)
    assert done.code == 0, f"{line}\n{done.out}{done.err}"


def run_script(path: str) -> None:
    """``python`` with a script that a page tells to write."""
    runpy.run_path(path, run_name="__main__")


def run_tests(*arguments: str) -> None:
    """``python -m pytest`` with ``arguments``, which finds what a page tells to write."""
    sys.exit(pytest.main([*arguments, "--config-file", os.devnull, "-p", "no:cacheprovider"]))


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)


@pytest.mark.parametrize(("kind", "page"), NAMED.items(), ids=list(NAMED))
def test_pages_name_everything_that_a_configuration_can(kind, page):
    tables = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("|")]
    first = "".join(line.split("|")[1] for line in tables)
    assert [name for name in registry.entries(kind) if f"`{name}`" not in first] == []


def test_a_definition_begins_its_own_line():
    """Otherwise the page shows the colon, and the definition as plain text."""
    assert [page.name for page in PAGES if re.search(r"^\S.* :   ", page.read_text(), re.MULTILINE)] == []


def test_the_readme_names_every_command():
    rows = re.findall(r"^\| `raysim (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    added = [entry.name for entry in registered("commands") if is_own(entry)]
    assert sorted(rows) == sorted([*added, "compare", "describe", "list", "plan", "run"])


def test_the_readme_leads_to_every_page_once():
    text = (ROOT / "README.md").read_text()
    names = [page.name for page in PAGES if page.parent != ROOT]
    assert {name: text.count(f"](docs/{name}") for name in names} == dict.fromkeys(names, 1)
