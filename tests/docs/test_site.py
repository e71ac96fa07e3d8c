"""The site of the documentation is built without a warning, holds every page, and takes nothing from the network."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysim.core import registry
from tests.docs.test_docs import PAGES, ROOT

pytestmark = pytest.mark.surroundings

FOREIGN = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"' >]+)""")
"""What a page would load from elsewhere; links that a reader follows are no such thing."""


@pytest.mark.documentation
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "not included in the" not in done.stderr, "a page that no menu has"
    built = {
        path.relative_to(tmp_path / "site").as_posix(): path.read_text() for path in (tmp_path / "site").rglob("*.html")
    }
    for page in (page for page in PAGES if page.parent.name == "docs" and page.stem != "index"):
        assert f"{page.stem}/index.html" in built, page
    for name, text in built.items():
        loaded = [address for address in FOREIGN.findall(text) if "rel=canonical" not in address]
        assert not loaded, (name, loaded)
    assert "raysim.compare" in built["api/index.html"]
    assert ":func:" not in built["api/index.html"]
    assert "raysim.compare" in built["python/index.html"]
    assert "AUROC" in built["notebook/index.html"]
    assert "<math" in built["metrics/index.html"]
    assert not any(re.search(r"</p>\s*<math", page) for page in built.values()), "a formula ends no paragraph"
    assert not any(re.search(r"\$(?:<span>)?<math|</math>(?:</span>)?\$", page) for page in built.values())


def made(script: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / script))


def test_the_gallery_shows_what_the_pages_have() -> None:
    script = made("gallery.py")
    assert (ROOT / "docs" / "gallery.md").read_text() == script["page"](), "run python docs/gallery.py"
    for entry in script["ENTRIES"]:
        assert (ROOT / "docs" / "pictures" / script["name"](entry)).stat().st_size > 2_000


def test_the_tree_of_strategies_is_the_stored_one_and_names_what_there_is() -> None:
    script = made("which_strategy.py")
    assert (ROOT / "docs" / "pictures" / "which-strategy.svg").read_text() == script["drawing"]()
    page = (ROOT / "docs" / "which-strategy.md").read_text()
    for question in script["QUESTIONS"]:
        assert f"{question.asks} {question.names}." in page, "the text for those who do not see the picture"
        assert set(question.names.split(", ")) <= set(registry.entries("strategies"))


def test_every_page_is_in_the_menu_once() -> None:
    text = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text())
    named = re.findall(r": ([\w-]+\.(?:md|ipynb))", str(yaml.safe_load(text)["nav"]).replace("'", ""))
    assert sorted(named) == sorted({page.name for page in PAGES if page.parent.name == "docs"} | {"python.ipynb"})
