"""The project's own source, for tests that read it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TOGETHER = pytest.mark.xdist_group("source")
"""For ``pytestmark`` of modules whose tests read all files: on one test process, which parses each file once."""


def modules(*folders: str) -> list[str]:
    """The Python files of ``folders``, from the root, where those that are links are left out: of the whole package."""
    paths = [path for folder in folders or ("raysim", "strategies", "tune") for path in (ROOT / folder).rglob("*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return sorted(name for name in names if not name.startswith(("raysim/strategies/", "raysim/tune/")))


@functools.cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """What a file of ours holds; see :func:`walked`."""
    return walked((ROOT / name).read_text())


def walked(code: str) -> tuple[ast.AST, ...]:
    """The nodes of a module's syntax, from the root down."""
    return tuple(ast.walk(ast.parse(code)))
