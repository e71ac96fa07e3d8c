"""The picture of the rooms is that of the source, and what tells of files names files that there are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.commands import in_a_process

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


def first_step(*arguments: str) -> None:
    """The command ``raysim``, which writes the files that are on the stack at its first step into ``stack``."""
    import sys
    import traceback

    from raysim.cli.main import main
    from raysim.training.kernels import linear

    names = vars(linear)
    begin = names["begin"]

    def seen(*task: Any, **options: Any) -> Any:
        if not Path("stack").exists():
            frames = [Path(frame.filename) for frame in traceback.extract_stack()]
            inside = [frame.relative_to(ROOT).as_posix() for frame in frames if frame.is_relative_to(ROOT / "raysim")]
            descent = begin.__code__.co_filename
            Path("stack").write_text("\n".join([*inside, Path(descent).relative_to(ROOT).as_posix()]))
        return begin(*task, **options)

    names["begin"] = seen
    sys.argv = list(arguments)
    main()


def test_the_files_on_the_way_to_the_first_step(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    (example,) = re.findall(r"```yaml title=first.yaml\n(.*?)```", (ROOT / "docs/getting-started.md").read_text(), re.S)
    (tmp_path / "first.yaml").write_text(example)
    command = ["raysim", "run", "first.yaml", "--in-process", "--out", "out", "--set", "training.rounds=1"]
    environment = {"RAYSIM_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin", "HOME": str(tmp_path)}
    done = in_a_process(first_step, command, tmp_path, environment)
    assert done.code == 0, done.err
    stack = list(dict.fromkeys((tmp_path / "stack").read_text().split()))
    table = page.partition("on the call stack")[2].partition("**A hospital's rows**")[0]
    assert re.findall(r"^\| `([\w/.]+)` \|", table, re.M) == stack


def test_the_learning_rate_is_named_where_its_journey_says() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().partition("is named in five files")[2].partition("When ")[0]
    named = re.findall(r"^\| `([\w/.]+)` \|", table, re.M)
    assert [path for path in named if "learning_rate" not in (ROOT / path).read_text()] == []
    assert len(named) == 5
