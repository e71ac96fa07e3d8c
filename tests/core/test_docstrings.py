"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.source import ROOT, modules

WITH_EXAMPLES = [name for name in modules() if ">>> " in (ROOT / name).read_text()]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name: str) -> None:
    inside = name if name.startswith("raysim/") else f"raysim/{name}"
    module = importlib.import_module(inside.removesuffix(".py").replace("/", "."))
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed
