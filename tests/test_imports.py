"""Imports run one way: tune -> raysim -> strategies; and the heavy ones only where they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FORBIDDEN = {
    "strategies": {"ray", "mlflow", "raysim", "tune", "pandas"},
    "raysim/data": {"ray", "mlflow", "torch", "tune"},
    "raysim/training": {"ray", "mlflow", "tune", "strategies"},
    "raysim": {"tune"},
}


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("room", FORBIDDEN)
def test_no_arrow_runs_back(room):
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        assert not imported(path) & FORBIDDEN[room], path


def test_the_engine_names_no_strategy():
    methods = [path.stem for path in (ROOT / "strategies").glob("*.py")]
    interface = {"__init__", "base"}
    for path in (ROOT / "raysim").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strategies"):
                assert (node.module or "").removeprefix("strategies").strip(".") in {*interface, ""}, path
    assert len(methods) > len(interface)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import raysim.cli", {"numpy", "pydantic", "ray", "torch", "mlflow", "rich"}),
        ("import raysim.config", {"ray", "torch", "mlflow", "pandas"}),
        ("import raysim.pool, raysim.hospital", {"torch", "mlflow", "sklearn", "matplotlib"}),
        ("import strategies.chip", {"sklearn", "torch"}),
    ],
)
def test_what_is_heavy_is_imported_only_where_it_is_needed(statement, absent):
    code = f"import sys; {statement}; print(*sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""
