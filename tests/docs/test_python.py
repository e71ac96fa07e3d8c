"""What ``docs/python.md`` shows runs, in the order of the page, in one process and an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import in_a_process
from tests.docs.test_docs import BLOCK, ROOT

PAGE = ROOT / "docs" / "python.md"


def run_blocks(page: str) -> None:
    names = {"__name__": "__main__"}
    for language, _, text in BLOCK.findall(Path(page).read_text()):
        if language == "python":
            exec(compile(text, page, "exec"), names)
    assert set(names["compared"].runs) == {("fedavg", 0), ("half", 0), ("tenth", 0)}  # type: ignore[attr-defined]


@pytest.mark.documentation
def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    done = in_a_process(run_blocks, [str(PAGE)], tmp_path, {"RAYSIM_CACHE": str(tmp_path / "cache")})
    assert done.code == 0, done.out + done.err
    assert (tmp_path / "auroc_by_size.png").stat().st_size > 10_000
