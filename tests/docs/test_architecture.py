"""The picture of the rooms is that of the source, and what tells of files names files that there are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The names of the script that draws."""
    return runpy.run_path(str(ROOT / "docs" / "architecture.py"))


def test_the_picture_is_that_of_the_imports(script: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "architecture.svg").read_text() == script["drawn"](), "run python docs/architecture.py"


def test_each_room_says_its_duty(script: dict[str, Any]) -> None:
    assert [room for room, duty in script["duties"]().items() if not 10 < len(duty) < 52] == []


def test_arrows_are_left_out_only_where_others_imply_them(script: dict[str, Any]) -> None:
    arrows = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert script["layers"](arrows) == {"a": 2, "b": 1, "c": 0, "d": 1}
    assert script["reduced"](arrows) == [("a", "b"), ("a", "d"), ("b", "c"), ("d", "c")]
    with pytest.raises(ValueError, match="a circle: a -> b -> a"):
        script["layers"]({"a": {"b"}, "b": {"a"}})


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(page: str) -> None:
    named = re.findall(r"`((?:raysim|strategies|tune|tests|docs)/[\w/.]+)`", (ROOT / page).read_text())
    examples = ("alike.py", "registry.py")
    assert [path for path in named if not path.endswith(examples) and not (ROOT / path).exists()] == []
    assert len(named) > 5
