"""What ``docs/python.md`` and ``docs/python.ipynb`` show runs, in their order, in one process and an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import in_a_process
from tests.conftest import standing_ray
from tests.docs.test_docs import BLOCK, ROOT

PAGE = ROOT / "docs" / "python.md"

SMALLER = {
    '\\"hospitals\\": 80, \\"rows\\": 12_000': '\\"hospitals\\": 20, \\"rows\\": 3_000',
    '\\"rounds\\": 20': '\\"rounds\\": 2',
    '\\"seeds\\": [0, 1, 2]': '\\"seeds\\": [0, 1]',
}
"""What is replaced in the notebook before it runs here."""


def run_blocks(page: str) -> None:
    names = {"__name__": "__main__"}
    for language, _, text in BLOCK.findall(Path(page).read_text()):
        if language == "python":
            exec(compile(text, page, "exec"), names)
    assert set(names["compared"].runs) == {("fedavg", 0), ("half", 0), ("tenth", 0)}


@pytest.mark.documentation
def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    done = in_a_process(run_blocks, [str(PAGE)], tmp_path, {"RAYSIM_CACHE": str(tmp_path / "cache")})
    assert done.code == 0, done.out + done.err
    assert (tmp_path / "by_size.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.documentation
@pytest.mark.xdist_group("sweeps")
@pytest.mark.usefixtures("ray_here")
def test_the_notebook_runs_and_shows_what_it_gave(tmp_path: Path) -> None:
    """With a smaller federation, fewer rounds and fewer seeds than it has for its readers, on a Ray that stands."""
    path, text = tmp_path / "python.ipynb", (ROOT / "docs" / "python.ipynb").read_text()
    for much, little in SMALLER.items():
        assert text.count(much) == 1
        text = text.replace(much, little)
    path.write_text(text)
    command = [sys.executable, str(ROOT / "docs" / "notebook.py"), str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)} | standing_ray()
    )
    assert done.returncode == 0, done.stderr
    executed, kept = (json.loads(each)["cells"] for each in (path.read_text(), text))
    assert [shown(cell) for cell in kept] == [shown(cell) for cell in executed]
    assert sum(kinds != [] for _, kinds in map(shown, kept)) > 5
    assert str(tmp_path) not in path.read_text()
    lines = [line for cell in executed for each in cell.get("outputs", ()) for line in each.get("text", ())]
    assert "reading data\n" in lines, "progress is shown without being asked for"
    assert any(line.startswith("[1/") for line in lines)


def shown(cell: dict[str, Any]) -> tuple[str, list[list[str]]]:
    """A cell's text, and of what kinds its outputs are; figures of runs differ by processor."""
    assert not any(output["output_type"] == "error" for output in cell.get("outputs", ()))
    return "".join(cell["source"]), [sorted(output.get("data", output)) for output in cell.get("outputs", ())]
