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


@pytest.mark.surroundings
@pytest.mark.parametrize(
    ("package", "call", "line"),
    [
        (
            "duckdb",
            "raysim.describe({'data': {'source': 'eicu', 'path': PATH}})",
            "data.source: needs the package duckdb, which is not installed; pip install 'raysim[eicu]'",
        ),
        (
            "optuna",
            "raysim.sweep({'sweep': {'space': {'training.rounds': [1, 2]}, 'trials': 2}}, out=PATH + '/out')",
            "sweep.searcher: needs the package optuna, which is not installed; pip install 'raysim[sweep]', or set it "
            "to random or grid",
        ),
    ],
)
def test_what_is_not_installed_is_named_with_its_line(tmp_path: Path, package: str, call: str, line: str):
    """Where Python finds no package of that name; all else of raysim does without it."""
    (tmp_path / "patient.csv").write_text("patientunitstayid\n1\n")
    blocked = f"import sys\nsys.modules[{package!r}] = None\nPATH = {str(tmp_path)!r}"
    caught = f"try:\n    {call}\nexcept raysim.RaysimError as error:\n    print(error)"
    code = f"{blocked}\nimport raysim, raysim.cli.main\n{caught}"
    environment = {**os.environ, "RAYSIM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == (f"{line}\n", 0), done.stderr
    assert not (tmp_path / "out").exists()
