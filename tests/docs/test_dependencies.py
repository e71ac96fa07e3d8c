"""Every dependency is imported and explained, and nothing is imported that is none."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.source import ROOT, TOGETHER, modules, nodes

pytestmark = TOGETHER

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"scikit-learn": "sklearn", "pyyaml": "yaml"}
NEEDED = [re.split(r"[\[<>=!]", line)[0] for line in PROJECT["dependencies"]]
OPTIONAL = {
    extra: [re.split(r"[\[<>=!]", line)[0] for line in lines if not line.startswith("raysim[")]
    for extra, lines in PROJECT["optional-dependencies"].items()
}


def imported() -> set[str]:
    """The packages that raysim's modules import, wherever in them."""
    names: set[str] = set()
    for name in modules():
        for node in nodes(name):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"raysim", "__future__"}


def test_what_is_imported_is_what_is_installed():
    brought = {"pydantic_core"}  # a part of pydantic
    extras = {name.replace("-", "_") for extra in ("eicu", "onnx", "privacy", "sweep") for name in OPTIONAL[extra]}
    extras |= {"vl_convert"}
    assert imported() - brought - extras == {IMPORTED_AS.get(name, name) for name in NEEDED}


def test_each_dependency_is_explained():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    explained = set(re.findall(r"^\| `([\w-]+)", page, re.MULTILINE))
    assert explained == set(NEEDED)
    for name in (name for names in OPTIONAL.values() for name in names):
        assert f"`{name}`" in page or name in ("pandas-stubs", "types-PyYAML", "types-psutil"), name


WITHOUT = """
import sys
sys.modules["duckdb"] = sys.modules["optuna"] = None
import raysim, raysim.cli.main
path, tried = sys.argv[1:]
space = {"space": {"training.rounds": [1, 2]}, "trials": 2}
table = {"data": {"source": "eicu", "path": path}}
for call in (lambda: raysim.describe(table), lambda: raysim.sweep({"sweep": space}, out=tried)):
    try:
        call()
    except raysim.RaysimError as error:
        print(error)
"""


@pytest.mark.surroundings
def test_what_is_not_installed_is_named_with_its_line(tmp_path: Path):
    """Where Python finds no package of that name; all else of raysim does without it."""
    (tmp_path / "patient.csv").write_text("patientunitstayid\n1\n")
    environment = {**os.environ, "RAYSIM_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", WITHOUT, str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == [
        "data.source: needs the package duckdb, which is not installed; pip install 'raysim[eicu]'",
        "sweep.searcher: needs the package optuna, which is not installed; pip install 'raysim[sweep]', or set it "
        "to random or grid",
    ], done.stderr
    assert done.returncode == 0
    assert not (tmp_path / "out").exists()
