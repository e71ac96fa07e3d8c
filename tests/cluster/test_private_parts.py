"""Private parts of libraries, of which the next version may know nothing: Ray's behind one file, of others none."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata

import pytest

from raysim.cluster import ray_private
from tests.source import ROOT, TOGETHER, modules, nodes, walked

pytestmark = TOGETHER

BEHIND = "raysim/cluster/ray_private.py"

PRIVATE = re.compile(r"\b(ray|numpy|mlflow)(\.\w+)*\._")
"""A private name within a text, such as that of a module to import."""

DOCUMENTED = {"_exit", "_fields", "_asdict", "_replace"}
"""Of ``os`` and of named tuples: private by their spelling alone."""


@pytest.mark.parametrize("what", ray_private.NAMES)
def test_ray_still_has_it(what: str):
    assert ray_private.read(what) is not None or what == "node"  # there is none before a Ray is up


def test_a_job_searches_no_folder_of_the_driver():
    job = ray_private.job_without_folders()
    job._py_driver_sys_path.extend(["/first"])  # as ray.init does
    sent = job._serialize()
    assert isinstance(sent, bytes)
    assert b"/first" not in sent


def test_a_ray_without_these_names_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_private, "NAMES", dict.fromkeys(ray_private.NAMES, "ray.no_such_module.name"))
    monkeypatch.setattr("ray.job_config.JobConfig.__init__", lambda self: None)
    ray_private.reread_authentication()
    assert ray_private.ended_parts() == []
    assert type(ray_private.job_without_folders()).__name__ == "JobConfig"


def test_at_most_five_names_are_private():
    arguments = {word.arg for node in nodes(BEHIND) if isinstance(node, ast.Call) for word in node.keywords}
    assert {name for name in arguments if name and name.startswith("_")} == {"_py_driver_sys_path"}
    assert len(ray_private.NAMES) == 3


def test_versions_are_bounded_where_private_parts_are_used():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "ray[default,tune]>=2.52,<3" in wanted  # tokens, which we ask for, came with 2.52
    assert (2, 52) <= tuple(int(part) for part in metadata.version("ray").split(".")[:2]) < (3, 0)


def test_nothing_private_of_a_library_is_used_elsewhere():
    trees = {path: nodes(path) for path in modules()}
    ours = {name for tree in trees.values() for name in _given(tree)}
    assert [f"{path}:{line} {name}" for path, tree in trees.items() for line, name in _private(tree, ours)] == []
    named = {path for path, tree in trees.items() if any(PRIVATE.search(text) for text in _texts(tree))}
    assert named == {BEHIND}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import ray._private.worker", ["_private"]),
        ("from ray._private import utils", ["_private"]),
        ("from ray import _raylet", ["_raylet"]),
        ("import ray\nray._private", ["_private"]),
        ("import ray.util as u\nu._private", ["_private"]),
        ("adapter._type", ["_type"]),
        ("section.__pydantic_extra__", ["__pydantic_extra__"]),
        ("self._private\nfrom raysim.x import _private\nx.__class__\nos._exit(1)", []),
    ],
)
def test_the_rule_knows_what_is_private(code, names):
    assert [name for _, name in _private(walked(code), {"_private"})] == names


@pytest.mark.parametrize("library", ["ray", "numpy", "mlflow"])
def test_no_part_of_a_library_is_changed(library: str):
    for name in modules():
        tree = nodes(name)
        stored = [node for node in tree if isinstance(node, ast.Attribute) and type(node.ctx) is ast.Store]
        imported = _imported_from(tree, library) if stored else set()
        assert [f"{name}:{node.lineno}" for node in stored if _base(node) in imported] == []


def _base(node: ast.expr) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imported_from(tree: Sequence[ast.AST], library: str) -> set[str]:
    """What a file calls the parts of a library that it imports."""
    names = set()
    for node in tree:
        if isinstance(node, ast.Import | ast.ImportFrom):
            of = getattr(node, "module", None) or ""
            for alias in node.names:
                if (of or alias.name).partition(".")[0] == library:
                    names.add(alias.asname or alias.name.partition(".")[0])
    return names


def _texts(tree: Sequence[ast.AST]) -> Iterator[str]:
    """The texts of a file."""
    return (node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _given(tree: Sequence[ast.AST]) -> Iterator[str]:
    """Names that begin with an underscore and that this file gives to something."""
    for node in tree:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _private(tree: Sequence[ast.AST], ours: Collection[str]) -> Iterator[tuple[int, str]]:
    """What begins with one underscore and is a library's: imported, of an imported module, or not one of ``ours``."""
    imported = [alias for node in tree if isinstance(node, ast.Import) for alias in node.names]
    libraries = {alias.asname or alias.name.split(".")[0] for alias in imported}
    for node in tree:
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("raysim"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute):
            of_library = isinstance(node.value, ast.Name) and node.value.id in libraries
            names = [node.attr] if of_library or node.attr not in ours else []
        for name in names:
            pythons = name.startswith("__") and not name.startswith("__pydantic")
            if name.startswith("_") and not pythons and name not in DOCUMENTED:
                yield getattr(node, "lineno", 0), name
