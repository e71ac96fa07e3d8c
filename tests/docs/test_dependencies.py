"""Every dependency is imported and explained, and nothing is imported that is none."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from raysim.cluster.software import source_files

ROOT = Path(__file__).parents[2]
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
    for path in source_files(ROOT / "raysim"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"raysim", "__future__"}


def test_what_is_imported_is_what_is_installed():
    brought = {"pydantic_core"}  # a part of pydantic
    extras = {name.replace("-", "_") for name in OPTIONAL["privacy"]} | {"vl_convert"}
    assert imported() - brought - extras == {IMPORTED_AS.get(name, name) for name in NEEDED}


def test_each_dependency_is_explained():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    explained = set(re.findall(r"^\| `([\w-]+)", page, re.MULTILINE))
    assert explained == set(NEEDED)
    for name in (name for names in OPTIONAL.values() for name in names):
        assert f"`{name}`" in page or name in ("pandas-stubs", "types-PyYAML", "types-psutil"), name
